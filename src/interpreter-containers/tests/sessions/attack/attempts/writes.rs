//! Writing where it should not.

use super::Outside::*;
use super::Reason::*;

attempts! {
    a_program: WorksForRoot, "return open('/usr/bin/env', 'ab').close() is None";
    a_library_of_python: WorksForRoot, "return open(os.__file__, 'ab').close() is None";
    the_runner: WorksForRoot, "path = sys.modules['pybench_runner.runner'].__file__ if 'pybench_runner.runner' in sys.modules else glob.glob(CACHE + '/runner/*/lib/pybench_runner/runner.py')[0]
return open(path, 'ab').close() is None";
    a_file_in_the_root: WorksForRoot, "path = f'/pybench-test-{os.getpid()}'; open(path, 'w').close(); os.remove(path); return True";
    a_file_among_devices: WorksForRoot, "path = f'/dev/pybench-test-{os.getpid()}'; open(path, 'w').close(); os.remove(path); return True";
    a_setting_of_the_kernel: WorksForRoot, "return os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY) > 0";
    the_system_request_key: Depends, "return os.open('/proc/sysrq-trigger', os.O_WRONLY) > 0";
    prepared_caches: WorksForRoot, "return open(os.environ.get('MPLCONFIGDIR', ENVIRONMENT + '/caches/matplotlib') + '/matplotlibrc', 'ab').close() is None";
    given_inputs: WorksInNone, "os.rename('data', 'moved'); return True";
    mode_bits_of_the_system: WorksForRoot, "os.chmod('/usr/bin/env', stat.S_IMODE(os.stat('/usr/bin/env').st_mode)); return True";
    its_own_program: NotTried(Machine), "return opened('/proc/self/exe', os.O_WRONLY) or opened('/proc/1/exe', os.O_WRONLY)";
    an_interpreter_for_the_hosts_programs: Depends, "return opened('/proc/sys/fs/binfmt_misc/register', os.O_WRONLY)";
    capabilities_of_a_file: WorksForRoot, "path = tempfile.mkdtemp() + '/file'; open(path, 'w').close(); os.setxattr(path, 'security.capability', struct.pack('<5I', 0x2000001, 1, 0, 0, 0)); return True";
    a_file_that_cannot_be_deleted: Depends, "file = os.open(tempfile.mkdtemp() + '/file', os.O_CREAT | os.O_RDWR); flags, = struct.unpack('q', fcntl.ioctl(file, 0x80086601, bytes(8)))
for flags in (flags | 16, flags): fcntl.ioctl(file, 0x40086602, struct.pack('q', flags))
return True";
    a_sparse_file_of_a_tebibyte: Works, "path = tempfile.mkdtemp() + '/file'; open(path, 'w').close(); os.truncate(path, 1 << 40); os.remove(path); return True";
    a_page_that_a_pipe_shares: Depends, "path = tempfile.mkdtemp() + '/file'; open(path, 'w').write('a' * 4096); file, (r, w) = os.open(path, os.O_RDONLY), os.pipe()
os.write(w, bytes(1 << 16)); os.read(r, 1 << 16); os.splice(file, w, 1, offset_src=0); os.write(w, b'b'); return 'b' in open(path).read()";
}
