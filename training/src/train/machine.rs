//! What this machine has: memory of this process, processes, space on its disks.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pybench_types::memory;

/// Resident memory of this process.
pub(super) fn resident() -> Option<u64> {
    status("VmRSS:")
}

/// The highest resident memory of this process since it started, or since [`reset_peak`].
pub(super) fn resident_peak() -> Option<u64> {
    status("VmHWM:")
}

/// Lets [`resident_peak`] start again from the present memory. Returns whether the kernel supports it.
pub(super) fn reset_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

fn status(key: &str) -> Option<u64> {
    memory::kib_of(&fs::read_to_string("/proc/self/status").ok()?, key)
}

/// Number of processes of a run of `world` on this machine. torchrun tells it; without it all are assumed to be here.
pub(super) fn local_processes(world: usize) -> usize {
    let told = std::env::var("LOCAL_WORLD_SIZE").ok();
    let told = told.and_then(|text| text.trim().parse().ok());
    told.filter(|local| (1..=world).contains(local))
        .unwrap_or(world)
}

/// A file system with its free bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FreeDisk {
    pub(super) file_system: u64,
    pub(super) bytes: u64,
}

/// The file system that a folder, which need not exist, is or would be on.
pub(super) fn free_disk(folder: &Path) -> Option<FreeDisk> {
    let absolute = std::path::absolute(folder).ok()?;
    let existing: PathBuf = absolute.ancestors().find(|path| path.exists())?.into();
    let name = CString::new(existing.as_os_str().as_bytes()).ok()?;
    // SAFETY: statvfs is plain numbers, for which zeros are valid.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the name is a C string, and the structure outlives the call.
    if unsafe { libc::statvfs(name.as_ptr(), &mut found) } != 0 {
        return None;
    }
    Some(FreeDisk {
        file_system: fs::metadata(&existing).ok()?.dev(),
        bytes: found.f_bavail as u64 * found.f_frsize as u64,
    })
}

/// Bytes of all files below a folder; 0 if it does not exist.
pub(super) fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        Some(match metadata.is_dir() {
            true => folder_bytes(&entry.path()),
            false => metadata.len(),
        })
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory_and_disk() {
        let resident = resident().unwrap();
        assert!(resident > 1 << 20 && resident_peak().unwrap() > 1 << 20);
        let folder = tempfile::tempdir().unwrap();
        let here = free_disk(folder.path()).unwrap();
        let below = free_disk(&folder.path().join("not/yet")).unwrap();
        assert_eq!(here.file_system, below.file_system);
        std::fs::write(folder.path().join("a"), [0; 100]).unwrap();
        std::fs::create_dir(folder.path().join("b")).unwrap();
        std::fs::write(folder.path().join("b/c"), [0; 23]).unwrap();
        assert_eq!(folder_bytes(folder.path()), 123);
        assert_eq!(folder_bytes(&folder.path().join("none")), 0);
    }
}
