//! Devices.

use super::Outside::*;
use super::Reason::*;

attempts! {
    the_console_of_the_machine: Depends, "return any(map(opened, ['/dev/console', '/dev/tty0', '/dev/tty1']))";
    terminals_of_others: Depends, "return any(map(opened, glob.glob('/dev/pts/[0-9]*')))";
    typing_into_a_terminal: Depends, "def typed():
    _, terminal = os.openpty(); os.setsid(); fcntl.ioctl(terminal, 0x540E, 0); fcntl.ioctl(terminal, 0x5412, b'x'); return True
return apart(typed)";
    hanging_up_terminals: WorksForRoot, "return apart(lambda: (os.setsid(), call(153))[1] == 0)";
    a_file_system_of_ones_own: Depends, "return opened('/dev/fuse')";
    a_virtual_machine: Depends, "return opened('/dev/kvm')";
    the_graphics_card: Depends, "return any(map(opened, glob.glob('/dev/dri/*') + glob.glob('/dev/nvidia*')))";
    the_watchdog: NotTried(Machine), "return any(map(opened, glob.glob('/dev/watchdog*')))";
    the_entropy_of_the_machine: WorksForRoot, "fcntl.ioctl(os.open('/dev/urandom', os.O_RDWR), 0x40045201, struct.pack('i', 0)); return True";
}
