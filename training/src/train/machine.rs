//! What this machine has: main memory, memory of its GPU, space on its disks.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    kib_of(&fs::read_to_string("/proc/self/status").ok()?, key)
}

/// The bytes in a line such as `VmRSS:  1234 kB`.
fn kib_of(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Main memory that processes of this machine can still take, without swap: what the kernel reports, or less if a
/// control group limits it.
pub(super) fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let free = kib_of(&text, "MemAvailable:")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some(group_memory(&groups, Path::new("/sys/fs/cgroup")).map_or(free, |left| left.min(free)))
}

/// What the memory limits of the control groups of a process leave. `groups` is its `/proc/self/cgroup`.
fn group_memory(groups: &str, root: &Path) -> Option<u64> {
    let left = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let path = path.trim_start_matches('/');
        let v1 = controllers.split(',').any(|name| name == "memory");
        match (v1, controllers) {
            (true, _) => left_in(&root.join("memory"), path, &V1),
            (false, "") => left_in(root, path, &V2),
            _ => None,
        }
    });
    left.min()
}

/// Files of a control group with limit and use, and the keys of its page cache, which the kernel can drop.
struct GroupFiles {
    limit: &'static str,
    used: &'static str,
    cache: [&'static str; 2],
}

const V1: GroupFiles = GroupFiles {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: ["total_active_file ", "total_inactive_file "],
};
const V2: GroupFiles = GroupFiles {
    limit: "memory.max",
    used: "memory.current",
    cache: ["active_file ", "inactive_file "],
};

/// The least that a group and those above it leave.
fn left_in(root: &Path, path: &str, files: &GroupFiles) -> Option<u64> {
    let groups = Path::new(path).ancestors().map(|group| root.join(group));
    let left = groups.filter_map(|group| {
        let read = |name: &str| fs::read_to_string(group.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let (limit, used) = (number(files.limit)?, number(files.used)?);
        let stat = read("memory.stat").unwrap_or_default();
        let cache = files.cache.iter().filter_map(|key| {
            let line = stat.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().parse::<u64>().ok()
        });
        Some(limit.saturating_sub(used.saturating_sub(cache.sum())))
    });
    left.min()
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
        assert!(available_memory().unwrap() > 1 << 20);
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

    /// A group of version 2 below one with a limit, and one of version 1.
    #[test]
    fn limits_of_control_groups_count() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("a/memory.max", "1000\n");
        write("a/memory.current", "700\n");
        write(
            "a/memory.stat",
            "anon 300\nactive_file 100\ninactive_file 50\n",
        );
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "600\n");
        assert_eq!(group_memory("0::/a/b\n", root.path()), Some(450));
        assert_eq!(group_memory("0::/c\n", root.path()), None);
        write("memory/x/memory.limit_in_bytes", "5000\n");
        write("memory/x/memory.usage_in_bytes", "1000\n");
        write("memory/x/memory.stat", "total_inactive_file 200\n");
        let groups = "4:cpu,cpuacct:/\n3:memory:/x\n0::/a/b\n";
        assert_eq!(group_memory("3:memory:/x\n", root.path()), Some(4200));
        assert_eq!(group_memory(groups, root.path()), Some(450));
    }
}
