//! Main memory of this machine that is still free, within the limits of control groups.

use std::fs;
use std::path::Path;

/// Main memory that processes of this machine can still take, without swap: what the kernel reports, or less if a
/// control group limits it.
pub fn available() -> Option<u64> {
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

/// The bytes in a line such as `VmRSS:  1234 kB`.
pub fn kib_of(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory() {
        assert!(available().unwrap() > 1 << 20);
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
