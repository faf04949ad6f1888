//! Parts of the kernel that a session does not need.

use super::Outside::*;
use super::Reason::*;

attempts! {
    tracing_ones_own_child: Works, "return swap(lambda pid: call(101, 16, pid, 0, 0) == 0, paused())";
    memory_of_a_child_by_a_call: Works, "data = ctypes.create_string_buffer(8); iov = struct.pack('PN', ctypes.addressof(data), 8)
return swap(lambda pid: call(310, pid, iov, ctypes.c_ulong(1), iov, ctypes.c_ulong(1), ctypes.c_ulong(0)) == 8, paused())";
    descriptors_of_a_child: Works, "return swap(lambda pid: call(438, os.pidfd_open(pid), 0, 0) > 0, paused())";
    bpf_programs: Depends, "return call(321, 0, struct.pack('IIIII', 2, 4, 8, 1, 0) + bytes(100), 120) > 0";
    faults_in_user_space: Depends, "return call(323, 0) > 0";
    io_uring: Depends, "return call(425, 1, ctypes.create_string_buffer(200)) > 0";
    performance_counters: Depends, "return call(298, struct.pack('IIQ', 1, 112, 0) + bytes(96), 0, -1, -1, 0) > 0";
    keys_of_the_kernel: Depends, "return call(248, b'user', b'pybench', b'x', 1, -2) > 0";
    the_execution_domain: Works, "return call(135, 0xffffffff) >= 0";
    secret_memory: Depends, "return call(447, 0) > 0";
    kernel_modules: NotTried(Machine), "return call(175, b'', 0, b'') == 0";
    another_kernel: NotTried(Machine), "return call(246, 0, 0, 0, 0) == 0";
    reading_the_kernels_messages: WorksForRoot, "return call(103, 10, 0, 0) >= 0";
    calls_of_the_other_word_size: Depends, "return call(0x40000000 + 39) > 0";
    calls_of_32_bits: Depends, "import mmap
code = mmap.mmap(-1, 4096, prot=7); code.write(bytes.fromhex('b814000000cd80c3')); start = ctypes.addressof(ctypes.c_char.from_buffer(code))
return apart(lambda: ctypes.CFUNCTYPE(ctypes.c_int)(start)() > 0)";
    calls_that_came_later: Depends, "def is_known(number): return libc.syscall(number, -1, -1, -1, -1, -1, -1) >= 0 or ctypes.get_errno() != errno.ENOSYS
return any(map(is_known, range(453, 475)))";
    watching_a_whole_file_system: Depends, "return call(300, 0, 0) > 0";
    segments_of_ones_own: Depends, "return call(154, 0, ctypes.create_string_buffer(16), 16) >= 0";
    ports_of_the_hardware: Depends, "return apart(lambda: call(172, 3) == 0)";
    huge_pages: Depends, "import mmap; return len(mmap.mmap(-1, 1 << 21, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)) > 0";
    huge_pages_of_a_file: Depends, "return os.memfd_create('huge', os.MFD_HUGETLB) > 0";
    addresses_of_the_kernel: Depends, "return int(open('/proc/kallsyms').readline().split()[0], 16) != 0";
    allocations_of_the_kernel: Depends, "return len(open('/proc/slabinfo').read()) > 0";
    physical_addresses: Depends, "page = ctypes.create_string_buffer(b'x' * 8192); entry = os.pread(os.open('/proc/self/pagemap', os.O_RDONLY), 8, ctypes.addressof(page) // 4096 * 8)
return struct.unpack('Q', entry)[0] & (1 << 55) - 1 != 0";
}
