//! Namespaces and mounts.

use super::Outside::*;
use super::Reason::*;

attempts! {
    a_user_namespace: Depends, "return apart(lambda: check(libc.unshare(0x10000000)))";
    a_mount_namespace: WorksForRoot, "return apart(lambda: check(libc.unshare(0x20000)))";
    a_network_namespace: WorksForRoot, "return apart(lambda: check(libc.unshare(0x40000000)))";
    a_child_in_a_user_namespace: Depends, "pid = call(56, 0x10000011, 0, 0, 0, 0)
if pid == 0: os._exit(0)
os.waitpid(pid, 0); return True";
    entering_a_namespace: WorksForRoot, "fd = os.open('/proc/self/ns/net', 0); return apart(lambda: check(libc.setns(fd, 0)))";
    a_mount: WorksForRoot, "path = tempfile.mkdtemp(); return apart(lambda: check(libc.unshare(0x20000)) and check(libc.mount(b'x', path.encode(), b'tmpfs', 0, None)))";
    a_writable_remount: NotTried(Machine), "return check(libc.mount(None, b'/usr', None, 4096 | 32, None))";
    unmounting_what_covers: NotTried(Machine), "return any(libc.umount2(p, 2) == 0 for p in [b'/tmp', b'/proc', b'/workspace', b'/workspace/data', b'/dev/shm'])";
    the_new_way_to_mount: WorksForRoot, "return call(430, b'tmpfs', 0) > 0";
    cloning_a_mount: WorksForRoot, "return call(428, -100, b'/', 1) > 0";
    another_root: WorksForRoot, "path = tempfile.mkdtemp(); return apart(lambda: os.chroot(path) is None)";
    file_handles: Works, "handle = struct.pack('Ii', 128, 0) + bytes(128); buffer = ctypes.create_string_buffer(handle); mount = ctypes.c_int(); return call(303, -100, b'/', buffer, ctypes.byref(mount), 0) == 0";
    a_child_by_the_newer_call: Depends, "pid = call(435, struct.pack('11Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88)
if pid == 0: os._exit(0)
os.waitpid(pid, 0); return True";
}
