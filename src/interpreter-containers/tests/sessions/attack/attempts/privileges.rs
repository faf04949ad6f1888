//! Privileges and limits.

use super::Outside::*;
use super::Reason::*;

attempts! {
    capabilities: WorksForRoot, "return int(next(l for l in open('/proc/self/status') if l.startswith('CapBnd')).split()[1], 16) != 0";
    new_privileges: Works, "return 'NoNewPrivs:\\t0' in open('/proc/self/status').read()";
    becoming_root: WorksForRoot, "return apart(lambda: os.setuid(0) is None)";
    becoming_another: WorksForRoot, "return apart(lambda: os.setuid(1001) is None)";
    other_groups: WorksForRoot, "return apart(lambda: os.setgroups([0]) is None)";
    a_set_uid_program: WorksForRoot, "path = tempfile.mkdtemp() + '/id'; open(path, 'wb').write(open('/usr/bin/id', 'rb').read()); os.chown(path, 0, 0); os.chmod(path, 0o6755)
return subprocess.run([path, '-u'], capture_output=True, text=True).stdout == '0\\n'";
    a_higher_priority: WorksForRoot, "return apart(lambda: os.nice(-1) < 0)";
    higher_limits: Works, "return apart(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)) is None)";
    safety_from_the_memory_killer: Depends, "return apart(lambda: os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1000') > 0)";
    the_hosts_name: WorksForRoot, "return socket.sethostname(socket.gethostname()) is None";
    the_clock: NotTried(Machine), "time.clock_settime(time.CLOCK_REALTIME, time.time()); return True";
    a_restart: NotTried(Machine), "return call(169, 0, 0, 0) or True";
    taking_capabilities_back: WorksForRoot, "return apart(lambda: call(126, struct.pack('Ii', 0x20080522, 0), struct.pack('6I', 1, 1, 0, 0, 0, 0)) == 0)";
    taking_the_filter_off: NotTried(Jail), "return check(libc.prctl(22, 0, 0, 0, 0))";
    users_of_the_host_in_its_map: NotTried(Jail), "return os.write(os.open('/proc/self/uid_map', os.O_WRONLY), b'0 0 1') > 0";
    a_real_time_priority: Depends, "return apart(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)) is None)";
    disk_access_before_others: WorksForRoot, "return apart(lambda: call(251, 1, 0, 1 << 13) == 0)";
    memory_reserves_of_the_kernel: Depends, "return apart(lambda: check(libc.prctl(57, 1, 0, 0, 0)))";
    a_core_dump: Depends, "return apart(lambda: resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20)) is None)";
    process_accounting: NotTried(Machine), "return call(163, 0) == 0";
    waking_the_machine: Depends, "return call(283, 8, 0) > 0";
}
