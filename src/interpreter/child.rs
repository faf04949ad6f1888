//! What a child process does between fork and exec, in whatever tier: system calls only, on values prepared
//! before.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::thread::{Gid, Uid};

/// Join the groups, hand over the descriptors `inside` and no others, become nobody.
pub(super) fn enter(joins: &[File], inside: &[OwnedFd], user: Option<u32>) -> io::Result<()> {
    for join in joins {
        rustix::io::write(join, b"0")?;
    }
    // SAFETY: marks descriptors, this process's own, to be closed when the program starts.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    for fd in inside {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
    }
    if let Some(id) = user {
        let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(group, group, group)?;
        rustix::thread::set_thread_res_uid(user, user, user)?;
    }
    Ok(())
}

/// Equal work at equal addresses: `id()` and sets of objects repeat. Where it is refused they do not.
pub(super) fn fix_addresses() {
    // SAFETY: changes a flag of this process only.
    unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
}
