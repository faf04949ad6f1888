//! Files of the host, and what can be learned from them.

use super::Outside::*;
use super::Reason::*;

attempts! {
    a_file_of_the_host: Works, "return open(FOLDER + '/secret').read() == 'x'";
    a_file_by_way_of_the_first_process: Works, "return open(f'/proc/{os.getppid()}/root{FOLDER}/secret').read() == 'x' or open(f'/proc/1/root{FOLDER}/secret').read() == 'x'";
    a_file_by_way_of_a_parent_folder: Works, "return open('../' * 40 + FOLDER + '/secret').read() == 'x'";
    a_file_by_way_of_a_link: Works, "os.symlink(FOLDER, tempfile.gettempdir() + f'/link{os.getpid()}'); path = tempfile.gettempdir() + f'/link{os.getpid()}'
try: return open(path + '/secret').read() == 'x'
finally: os.remove(path)";
    shared_memory_of_the_host: Works, "return open(SHM).read() == 'x'";
    the_password_file: WorksForRoot, "return ':' in open('/etc/shadow').read()";
    the_users_of_the_host: Works, "return 'root' in open('/etc/passwd').read()";
    the_log_of_the_kernel: Depends, "return len(os.read(os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK), 9999)) > 0";
    sysfs: Works, "return os.path.exists('/sys/kernel')";
    control_groups: Works, "return bool(glob.glob('/sys/fs/cgroup/*'))";
    block_devices: Depends, "return any(os.open(d, os.O_RDONLY) for d in glob.glob('/dev/*') if stat.S_ISBLK(os.stat(d).st_mode))";
    devices_of_ones_own: WorksForRoot, "path = tempfile.mkdtemp() + '/null'; os.mknod(path, 0o20666, os.makedev(1, 3)); return os.write(os.open(path, 1), b'x') == 1";
    memory_of_the_kernel: Depends, "return len(os.pread(os.open('/proc/kcore', 0), 4, 0)) == 4";
    folders_that_hold_workspaces: Works, "return any(os.path.isdir(p) for p in ['/sessions', '/old', '/view', CACHE + '/sessions', '/workspace/../sessions'])";
    the_journal_of_a_run: Works, "return open(JOURNAL, 'rb').read(6) == b'SQLite'";
    the_journal_of_the_system: Works, "return bool(glob.glob('/var/log/*') + glob.glob('/run/log/journal/*'))";
    a_pipe_of_the_host: Works, "return os.open(FIFO, os.O_RDONLY | os.O_NONBLOCK) > 0";
    descriptors_that_others_hold: Works, "def held(p):
    try: return os.readlink(p) == JOURNAL and open(p, 'rb').read(6) == b'SQLite'
    except OSError: return False # others close theirs meanwhile
return any(held(p) for p in glob.glob(f'/proc/{PID}/fd/*'))";
    a_link_to_a_file_of_the_host: Works, "os.link(FOLDER + '/secret', FOLDER + f'/link{os.getpid()}'); os.remove(FOLDER + f'/link{os.getpid()}'); return True";
    a_folder_that_was_left_open: NotTried(Jail), "def is_folder(fd):
    try: return stat.S_ISDIR(os.fstat(fd).st_mode)
    except OSError: return False
return any(map(is_folder, range(3, 1024)))";
    what_others_do_with_shared_files: Works, "watch = libc.inotify_init1(0o4000); check(watch)
check(libc.inotify_add_watch(watch, os.__file__.encode(), 0x20)); open(os.__file__).close(); return len(os.read(watch, 99)) > 0";
    what_was_installed_by_hand: Depends, "return any(os.path.isfile(p) for p in glob.glob('/usr/local/*/*'))";
    what_others_do_with_shared_folders: Depends, "heard = []
signal.signal(signal.SIGIO, lambda *_: heard.append(1)); folder = os.open(os.path.dirname(os.__file__), os.O_RDONLY)
fcntl.fcntl(folder, 1026, 1); open(os.__file__).read(); time.sleep(0.1); os.close(folder); return bool(heard)";
    a_lease_on_a_shared_file: Depends, "file = os.open(os.__file__, os.O_RDONLY); taken = fcntl.fcntl(file, 1024, fcntl.F_RDLCK) == 0; os.close(file); return taken";
    the_identity_of_the_machine: Depends, "return any(map(os.path.exists, ['/etc/machine-id', '/var/lib/dbus/machine-id', '/etc/hostname', '/sys/class/dmi/id']))";
    the_name_of_the_machine: Works, "return socket.gethostname() == HOST";
}
