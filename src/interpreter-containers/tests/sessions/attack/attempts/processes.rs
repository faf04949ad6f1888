//! Processes of others.

use super::Outside::*;

attempts! {
    a_signal_to_the_host: Works, "return os.kill(PID, 0) is None";
    a_descriptor_of_the_host: Works, "return os.pidfd_open(PID) > 0";
    the_environment_of_the_host: Works, "return len(open(f'/proc/{PID}/environ', 'rb').read()) > 0";
    the_memory_of_the_host: WorksForRoot, "return os.open(f'/proc/{PID}/mem', os.O_RDONLY) > 0";
    limits_of_the_host: Works, "return len(resource.prlimit(PID, resource.RLIMIT_NOFILE)) == 2";
    processors_of_the_host: Works, "return os.sched_setaffinity(PID, os.sched_getaffinity(PID)) is None";
    message_queues_of_the_host: Works, "return libc.msgget(QUEUE, 0) >= 0";
    the_memory_of_its_first_process: Depends, "return os.open('/proc/1/mem', os.O_RDWR) > 0";
    signals_of_a_file_to_the_host: Works, "a, b = socket.socketpair(); return fcntl.fcntl(a, fcntl.F_SETOWN, PID) == 0";
    pages_of_the_host: Depends, "return call(279, PID, 0, 0, 0, 0, 0) == 0";
    comparing_with_the_host: Depends, "return call(312, os.getpid(), PID, 1, 0, 0) >= 0";
    locks_of_the_host: Depends, "return call(274, PID, ctypes.byref(ctypes.c_void_p()), ctypes.byref(ctypes.c_size_t())) == 0";
}
