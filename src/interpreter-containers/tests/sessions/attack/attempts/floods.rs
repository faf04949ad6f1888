//! Floods: each in a session of its own, because it leaves it full.

use super::Outside::*;
use super::Reason::*;

attempts! {
    a_flood_of_threads: NotTried(Flood), "started = 0
try:
    for _ in range(2000): threading.Thread(target=time.sleep, args=(2,), daemon=True).start(); started += 1
except RuntimeError: pass
return started > 100";
    a_flood_of_descriptors: NotTried(Flood), "opened = []
try:
    while len(opened) < 100_000: opened.append(os.dup(0))
except OSError: pass
count = len(opened)
for fd in opened: os.close(fd)
return count > 2000";
    a_flood_of_text: NotTried(Flood), "written = 0
try:
    for _ in range(100): written += os.write(1, b'x' * (1 << 20))
except OSError: os.ftruncate(1, 0)
return written > 64 << 20";
    a_flood_of_shared_memory: NotTried(Flood), "written = 0
with open('/dev/shm/flood', 'wb', buffering=0) as file:
    while written < 2 << 30: written += file.write(bytes(1 << 20))
return True";
    a_flood_of_mapped_memory: NotTried(Flood), "import mmap
held = [mmap.mmap(-1, 64 << 20) for _ in range(32)]
for m in held:
    for i in range(0, len(m), 4096): m[i] = 1
return True";
    a_flood_of_folders: NotTried(Flood), "path = 'output'
for i in range(200_000): os.mkdir(f'output/{i}')
return True";
    a_very_deep_folder: NotTried(Flood), "os.chdir('output')
for _ in range(100_000): os.mkdir('d'); os.chdir('d')
return True";
    contexts_of_asynchronous_input: Depends, "return call(206, 32, ctypes.byref(ctypes.c_ulong())) >= 0";
    queues_of_the_other_kind: Depends, "name = f'pybench-{os.getpid()}'.encode(); check(call(240, name, 0o102, 0o600, 0)); return call(241, name) == 0";
    a_flood_of_pending_signals: Works, "def flood():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    return all(libc.sigqueue(os.getpid(), signal.SIGRTMIN, 0) == 0 for _ in range(2000))
return apart(flood)";
    a_flood_of_terminals: Works, "opened = []
try:
    while len(opened) < 200: opened.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))
except OSError: pass
for fd in opened: os.close(fd)
return len(opened) == 200";
    a_flood_of_queues: NotTried(Flood), "made = 0
while made < 50_000:
    check(libc.msgget(0, 0o1600)); made += 1
return True";
    endless_recursion: NotTried(Bomb), "sys.setrecursionlimit(10**9)
def f(): f()
f(); return True";
    a_flood_of_timers: Works, "return apart(lambda: all(call(222, 0, 0, ctypes.byref(ctypes.c_int())) == 0 for _ in range(2000)))";
    a_flood_of_anonymous_files: NotTried(Flood), "for _ in range(64): file = os.memfd_create('x'); [os.write(file, bytes(1 << 20)) for _ in range(30)]
return True";
    a_flood_of_page_tables: NotTried(Flood), "import mmap
pages = mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)
for start in range(0, 1 << 40, 1 << 21): pages[start]
return True";
    a_flood_of_descriptors_on_their_way: WorksForRoot, "a, b = socket.socketpair(); a.setblocking(False)
for _ in range(80): fds = [os.dup(0) for _ in range(250)]; socket.send_fds(a, [b'x'], fds); [os.close(fd) for fd in fds]
return True";
}
