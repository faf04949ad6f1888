//! The seccomp filter of sessions, as a classic BPF program (docs/jail.md).
//!
//! It refuses system calls that access other processes or kernel internals, create namespaces or mounts,
//! take what sessions share with the host, or open sockets other than Unix, TCP and UDP sockets, and all calls newer
//! than the ones known here.
//!
//! The crate `seccompiler` is not used because a filter of it has one action for all calls that match (this one
//! returns three different errors) and cannot compare the number of a call with a range.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub use supported::{program, program_offline};

/// There is no filter for other processor architectures; `warnings` says so.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn program() -> Vec<u8> {
    Vec::new()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn program_offline() -> Vec<u8> {
    Vec::new()
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod supported {
    use libc::*;

    /// Refused with EPERM for all arguments.
    const REFUSED: &[c_long] = &[
        // Other processes.
        SYS_ptrace,
        SYS_process_vm_readv,
        SYS_process_vm_writev,
        SYS_process_madvise,
        SYS_kcmp,
        SYS_pidfd_getfd,
        SYS_perf_event_open,
        // Parts of the kernel with a history of vulnerabilities.
        SYS_bpf,
        SYS_userfaultfd,
        SYS_io_uring_setup,
        SYS_io_uring_enter,
        SYS_io_uring_register,
        SYS_keyctl,
        SYS_add_key,
        SYS_request_key,
        SYS_fanotify_init,
        SYS_memfd_secret,
        SYS_migrate_pages,
        SYS_move_pages,
        // Limits that all users of the machine share. Inotify also tells what others do with shared files.
        #[cfg(target_arch = "x86_64")]
        SYS_inotify_init,
        SYS_inotify_init1,
        SYS_io_setup,
        SYS_mq_open,
        // Namespaces, mounts, roots, handles.
        SYS_unshare,
        SYS_setns,
        SYS_mount,
        SYS_umount2,
        SYS_pivot_root,
        SYS_chroot,
        SYS_move_mount,
        SYS_open_tree,
        SYS_fsopen,
        SYS_fsconfig,
        SYS_fsmount,
        SYS_fspick,
        SYS_mount_setattr,
        SYS_open_by_handle_at,
        SYS_name_to_handle_at,
        SYS_quotactl,
        SYS_quotactl_fd,
        // The machine.
        SYS_init_module,
        SYS_finit_module,
        SYS_delete_module,
        SYS_kexec_load,
        SYS_reboot,
        SYS_swapon,
        SYS_swapoff,
        SYS_acct,
        SYS_syslog,
        SYS_vhangup,
        SYS_settimeofday,
        SYS_clock_settime,
        SYS_clock_adjtime,
        SYS_adjtimex,
        SYS_sethostname,
        SYS_setdomainname,
        SYS_personality,
        #[cfg(target_arch = "x86_64")]
        SYS_kexec_file_load,
        #[cfg(target_arch = "x86_64")]
        SYS_iopl,
        #[cfg(target_arch = "x86_64")]
        SYS_ioperm,
        #[cfg(target_arch = "x86_64")]
        SYS_modify_ldt,
    ];

    /// System calls from this number on did not exist when the list was written.
    const UNKNOWN_FROM: c_long = 453;

    const NAMESPACES: c_int = CLONE_NEWNS
        | CLONE_NEWCGROUP
        | CLONE_NEWUTS
        | CLONE_NEWIPC
        | CLONE_NEWUSER
        | CLONE_NEWPID
        | CLONE_NEWNET;

    /// They tell what others do with shared files, and delay it.
    const REFUSED_FCNTLS: [c_int; 2] = [F_NOTIFY, F_SETLEASE];

    /// `TIOCSTI` and `TIOCLINUX` insert characters into a terminal.
    const REFUSED_IOCTLS: [u32; 2] = [0x5412, 0x541c];

    #[cfg(target_arch = "x86_64")]
    const ARCHITECTURE: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const ARCHITECTURE: u32 = 0xc000_00b7;

    // Offsets in `struct seccomp_data`; the low half of an argument on little-endian machines.
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    const fn argument(index: u32) -> u32 {
        16 + 8 * index
    }

    const LOAD: u16 = (BPF_LD | BPF_W | BPF_ABS) as u16;
    const EQUAL: u16 = (BPF_JMP | BPF_JEQ | BPF_K) as u16;
    const AT_LEAST: u16 = (BPF_JMP | BPF_JGE | BPF_K) as u16;
    const ANY_BIT: u16 = (BPF_JMP | BPF_JSET | BPF_K) as u16;
    const RETURN: u16 = (BPF_RET | BPF_K) as u16;

    struct Program(Vec<u8>);

    impl Program {
        fn push(&mut self, code: u16, if_true: u8, if_false: u8, value: u32) {
            self.0.extend(code.to_ne_bytes());
            self.0.extend([if_true, if_false]);
            self.0.extend(value.to_ne_bytes());
        }

        /// Returns `action` if the comparison holds; continues otherwise.
        fn when(&mut self, comparison: u16, value: u32, action: u32) {
            self.push(comparison, 0, 1, value);
            self.push(RETURN, 0, 0, action);
        }

        /// Runs `body`, which checks arguments, only for one system call.
        fn for_call(&mut self, call: c_long, body: impl FnOnce(&mut Program)) {
            self.if_equal(call as u32, |inner| {
                body(inner);
                inner.push(RETURN, 0, 0, SECCOMP_RET_ALLOW);
            });
        }

        /// Runs `body`, which returns an action, only if an argument has a value.
        fn for_argument(&mut self, index: u32, value: c_int, body: impl FnOnce(&mut Program)) {
            self.push(LOAD, 0, 0, argument(index));
            self.if_equal(value as u32, body);
        }

        /// Skips `body` unless the loaded word is `value`.
        fn if_equal(&mut self, value: u32, body: impl FnOnce(&mut Program)) {
            let mut inner = Program(Vec::new());
            body(&mut inner);
            self.push(EQUAL, 0, (inner.0.len() / 8) as u8, value);
            self.0.extend(inner.0);
        }
    }

    fn unix_socket(program: &mut Program) {
        program.push(LOAD, 0, 0, argument(0));
        program.when(EQUAL, AF_UNIX as u32, SECCOMP_RET_ALLOW);
        program.push(RETURN, 0, 0, error(EAFNOSUPPORT));
    }

    fn ip_socket(program: &mut Program) {
        program.push(LOAD, 0, 0, argument(2));
        for protocol in [IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP] {
            program.when(EQUAL, protocol as u32, SECCOMP_RET_ALLOW);
        }
        program.push(RETURN, 0, 0, error(EPROTONOSUPPORT));
    }

    const fn error(errno: c_int) -> u32 {
        SECCOMP_RET_ERRNO | errno as u32
    }

    /// The filter program in the kernel's binary format.
    pub fn program() -> Vec<u8> {
        with_sockets(true)
    }

    /// The same without IP sockets, for tiers without a network namespace of their own.
    pub fn program_offline() -> Vec<u8> {
        with_sockets(false)
    }

    fn with_sockets(ip: bool) -> Vec<u8> {
        let mut program = Program(Vec::new());
        program.push(LOAD, 0, 0, ARCH);
        program.push(EQUAL, 1, 0, ARCHITECTURE);
        program.push(RETURN, 0, 0, SECCOMP_RET_KILL_PROCESS);
        program.push(LOAD, 0, 0, NUMBER);
        // On ENOSYS glibc falls back to clone, whose flags the filter can check.
        // The next rule also refuses the x32 calls on x86.
        program.when(EQUAL, SYS_clone3 as u32, error(ENOSYS));
        program.when(AT_LEAST, UNKNOWN_FROM as u32, error(ENOSYS));
        for &call in REFUSED {
            program.when(EQUAL, call as u32, error(EPERM));
        }
        program.for_call(SYS_clone, |program| {
            program.push(LOAD, 0, 0, argument(0));
            program.when(ANY_BIT, NAMESPACES as u32, error(EPERM));
        });
        program.for_call(SYS_ioctl, |program| {
            program.push(LOAD, 0, 0, argument(1));
            for request in REFUSED_IOCTLS {
                program.when(EQUAL, request, error(EPERM));
            }
        });
        program.for_call(SYS_fcntl, |program| {
            program.push(LOAD, 0, 0, argument(1));
            for command in REFUSED_FCNTLS {
                program.when(EQUAL, command as u32, error(EPERM));
            }
        });
        // The huge pages that the machine has reserved count toward no limit of a session.
        program.for_call(SYS_mmap, |program| {
            program.push(LOAD, 0, 0, argument(3));
            program.when(ANY_BIT, MAP_HUGETLB as u32, error(ENOMEM));
        });
        program.for_call(SYS_memfd_create, |program| {
            program.push(LOAD, 0, 0, argument(1));
            program.when(ANY_BIT, MFD_HUGETLB, error(ENOMEM));
        });
        // Device nodes; Linux refuses them anyway, but gVisor's kernel does not.
        #[cfg(target_arch = "x86_64")]
        program.for_call(SYS_mknod, |program| {
            program.push(LOAD, 0, 0, argument(1));
            program.when(ANY_BIT, S_IFCHR, error(EPERM)); // a block device has this bit as well
        });
        program.for_call(SYS_mknodat, |program| {
            program.push(LOAD, 0, 0, argument(2));
            program.when(ANY_BIT, S_IFCHR, error(EPERM));
        });
        program.for_call(SYS_socketpair, unix_socket);
        program.for_call(SYS_socket, |program| {
            if ip {
                program.for_argument(0, AF_INET, ip_socket);
                program.for_argument(0, AF_INET6, ip_socket);
            }
            unix_socket(program);
        });
        program.push(RETURN, 0, 0, SECCOMP_RET_ALLOW);
        program.0
    }
}
