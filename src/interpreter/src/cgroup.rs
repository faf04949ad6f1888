//! Limits on the memory, the processes and the processor time of a whole session, by control groups of versions 1
//! and 2.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Limits;

/// The writable control group hierarchies of this machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cgroups {
    memory: Option<Hierarchy>,
    processes: Option<Hierarchy>,
    cpus: Option<Hierarchy>,
}

#[derive(Clone, Debug, PartialEq)]
struct Hierarchy {
    /// The group in which session groups are created.
    parent: PathBuf,
    v2: bool,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Share of the memory limit that the buffers of TCP and UDP sockets may take, and the least that they get, bytes.
/// Version 1 counts them in addition to the memory limit; version 2 counts them as memory.
const SOCKET_SHARE: u64 = 8;
const MIN_SOCKET_BYTES: u64 = 4 << 20;

/// Weight of a session where processors are scarce, in units of each version; that of other groups is 1024 or 100.
const CPU_SHARES: &str = "256";
const CPU_WEIGHT: &str = "25";

/// The time over which the kernel measures a session's processor time, and the least time per period, µs.
pub const CPU_PERIOD: u64 = 100_000;
const MIN_CPU_QUOTA: u64 = 1000;

/// The time that so many processors give in each [`CPU_PERIOD`], µs.
pub fn cpu_quota(cpus: f64) -> u64 {
    ((cpus * CPU_PERIOD as f64) as u64).max(MIN_CPU_QUOTA)
}

impl Cgroups {
    /// Finds writable hierarchies and removes groups that dead processes have left.
    pub fn detect() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let found = Self::among(&candidates(&mounts, &own));
        found.remove_stale();
        found
    }

    fn among(candidates: &[Candidate]) -> Self {
        let find = |controller: &str, v1_file: &str, v2_file: &str| {
            let usable = |c: &&Candidate| match c.controllers {
                Some(ref names) => {
                    names.iter().any(|name| name == controller) && can_make(&c.path, v1_file)
                }
                None => {
                    // Fails if the group has processes (EBUSY); harmless if the controller is already enabled.
                    let _ = fs::write(
                        c.path.join("cgroup.subtree_control"),
                        format!("+{controller}"),
                    );
                    can_make(&c.path, v2_file)
                }
            };
            candidates.iter().find(usable).map(|c| Hierarchy {
                parent: c.path.clone(),
                v2: c.controllers.is_none(),
            })
        };
        Self {
            memory: find("memory", "memory.limit_in_bytes", "memory.max"),
            processes: find("pids", "pids.max", "pids.max"),
            cpus: find("cpu", "cpu.cfs_quota_us", "cpu.max"),
        }
    }

    fn remove_stale(&self) {
        let hierarchies = [&self.memory, &self.processes, &self.cpus];
        for hierarchy in hierarchies.into_iter().flatten() {
            for entry in fs::read_dir(&hierarchy.parent)
                .into_iter()
                .flatten()
                .flatten()
            {
                let name = entry.file_name();
                let owner = name
                    .to_str()
                    .and_then(|name| name.strip_prefix("pybench-")?.split('-').next());
                if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                    let _ = fs::remove_dir(entry.path());
                }
            }
        }
    }

    /// Whether the memory of a whole session can be limited.
    pub fn bounds_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Whether the number of processes of a whole session can be limited.
    pub fn bounds_processes(&self) -> bool {
        self.processes.is_some()
    }

    /// Whether the processor time of a whole session can be limited.
    pub fn bounds_cpus(&self) -> bool {
        self.cpus.is_some()
    }

    /// The versions of the control groups that limit memory, processes and processor time, if any.
    pub fn versions(&self) -> [Option<u8>; 3] {
        let version = |hierarchy: &Hierarchy| if hierarchy.v2 { 2 } else { 1 };
        [&self.memory, &self.processes, &self.cpus].map(|found| found.as_ref().map(version))
    }

    /// Creates the groups of one session.
    pub(super) fn create(&self, limits: &Limits) -> io::Result<Group> {
        let name = format!(
            "pybench-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let mut group = Group::default();
        let controllers: [(_, Limit); 3] = [
            (&self.memory, limit_memory),
            (&self.processes, limit_processes),
            (&self.cpus, limit_cpus),
        ];
        for (hierarchy, limit) in controllers {
            if let Some(hierarchy) = hierarchy {
                let folder = hierarchy.parent.join(&name);
                group.add(&folder)?;
                limit(&folder, hierarchy.v2, limits)?;
            }
        }
        Ok(group)
    }
}

/// A folder in which groups may be creatable; `controllers` is `None` in version 2.
#[derive(Debug, PartialEq)]
struct Candidate {
    path: PathBuf,
    controllers: Option<Vec<String>>,
}

/// Our own group, its parent, and the root of each hierarchy, in this order.
fn candidates(mountinfo: &str, own: &str) -> Vec<Candidate> {
    let mut found = Vec::new();
    for line in mountinfo.lines() {
        // … root mount-point options … - type source super-options
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (Some(root), Some(point), Some(kind)) = (left.get(3), left.get(4), right.first())
        else {
            continue;
        };
        let controllers: Option<Vec<String>> = match *kind {
            "cgroup2" => None,
            "cgroup" => Some(
                right
                    .last()
                    .unwrap_or(&"")
                    .split(',')
                    .map(str::to_owned)
                    .collect(),
            ),
            _ => continue,
        };
        let point = PathBuf::from(point);
        let inner = own_path(own, controllers.as_deref()).unwrap_or("/");
        // A container may see only part of the hierarchy.
        let inner = inner
            .strip_prefix(root)
            .unwrap_or(inner)
            .trim_start_matches('/');
        let ours = if inner.is_empty() {
            point.clone()
        } else {
            point.join(inner)
        };
        let mut paths = vec![ours.clone()];
        paths.extend(
            ours.parent()
                .filter(|path| path.starts_with(&point))
                .map(Path::to_path_buf),
        );
        paths.push(point);
        paths.dedup();
        found.extend(paths.into_iter().map(|path| Candidate {
            path,
            controllers: controllers.clone(),
        }));
    }
    found
}

/// Our path in a hierarchy, from `/proc/self/cgroup`: lines of `id:controllers:path`.
fn own_path<'a>(own: &'a str, controllers: Option<&[String]>) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next()?, parts.next()?);
        let ours = match controllers {
            None => names.is_empty(),
            Some(wanted) => names
                .split(',')
                .any(|name| wanted.iter().any(|w| w == name)),
        };
        ours.then_some(path)
    })
}

/// Whether a group can be created there and has a writable `file`.
fn can_make(parent: &Path, file: &str) -> bool {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let probe = parent.join(format!("pybench-{}-probe{number}", std::process::id()));
    if fs::create_dir(&probe).is_err() {
        return false;
    }
    let usable = OpenOptions::new()
        .write(true)
        .open(probe.join(file))
        .is_ok();
    let _ = fs::remove_dir(&probe);
    usable
}

/// Sets the limits of one controller in a group; the flag says whether it is of version 2.
type Limit = fn(&Path, bool, &Limits) -> io::Result<()>;

fn limit_memory(group: &Path, v2: bool, limits: &Limits) -> io::Result<()> {
    let bytes = limits.memory_mib << 20;
    if v2 {
        fs::write(group.join("memory.max"), bytes.to_string())?;
        // The file is absent if swap is not accounted.
        let _ = fs::write(group.join("memory.swap.max"), "0");
        return Ok(());
    }
    fs::write(group.join("memory.limit_in_bytes"), bytes.to_string())?;
    let _ = fs::write(group.join("memory.memsw.limit_in_bytes"), bytes.to_string());
    // The file is absent if the kernel does not count the buffers of sockets.
    let sockets = (bytes / SOCKET_SHARE).max(MIN_SOCKET_BYTES);
    let _ = fs::write(
        group.join("memory.kmem.tcp.limit_in_bytes"),
        sockets.to_string(),
    );
    Ok(())
}

fn limit_processes(group: &Path, _v2: bool, limits: &Limits) -> io::Result<()> {
    fs::write(group.join("pids.max"), limits.processes.to_string())
}

fn limit_cpus(group: &Path, v2: bool, limits: &Limits) -> io::Result<()> {
    let quota = cpu_quota(limits.cpus);
    if v2 {
        fs::write(group.join("cpu.weight"), CPU_WEIGHT)?;
        return fs::write(group.join("cpu.max"), format!("{quota} {CPU_PERIOD}"));
    }
    fs::write(group.join("cpu.shares"), CPU_SHARES)?;
    fs::write(group.join("cpu.cfs_period_us"), CPU_PERIOD.to_string())?;
    match fs::write(group.join("cpu.cfs_quota_us"), quota.to_string()) {
        // The quota of a group above is lower; it applies here as well.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        written => written,
    }
}

/// The groups of one session.
#[derive(Debug, Default)]
pub struct Group {
    folders: Vec<PathBuf>,
}

impl Group {
    /// Creates a group. In version 2, controllers share it.
    fn add(&mut self, folder: &Path) -> io::Result<()> {
        if !self.folders.iter().any(|known| known == folder) {
            fs::create_dir(folder)?;
            self.folders.push(folder.to_owned());
        }
        Ok(())
    }

    /// Files into which a single-threaded process writes `0` to join. Version 1 uses `tasks`, which moves
    /// one thread: moving a whole process (`cgroup.procs`) blocks all forks on the machine and takes 6 to
    /// 9 ms.
    pub fn cgroup_files(&self) -> io::Result<Vec<File>> {
        let open = |folder: &PathBuf| {
            let mut file = folder.join("tasks");
            if !file.exists() {
                file = folder.join("cgroup.procs");
            }
            OpenOptions::new().write(true).open(file)
        };
        self.folders.iter().map(open).collect()
    }

    /// Whether the OOM killer has killed a process of the group.
    pub(super) fn out_of_memory(&self) -> bool {
        out_of_memory(&self.folders)
    }

    /// A function that reports whether the OOM killer has killed a process of the group.
    pub fn oom_watcher(&self) -> impl Fn() -> bool + Send + use<> {
        let folders = self.folders.clone();
        move || out_of_memory(&folders)
    }

    /// Removes the groups; waits up to 5 s for their processes to end.
    fn remove(&mut self) {
        let until = Instant::now() + Duration::from_secs(5);
        self.folders.retain(|folder| {
            loop {
                match fs::remove_dir(folder) {
                    Ok(()) => return false,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return false,
                    Err(_) if Instant::now() > until => return true,
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        });
        for folder in &self.folders {
            tracing::warn!(
                "the control group {} could not be removed",
                folder.display()
            );
        }
    }
}

fn out_of_memory(folders: &[PathBuf]) -> bool {
    let killed = |file: &Path| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().any(|line| {
            line.strip_prefix("oom_kill ")
                .is_some_and(|count| count.trim() != "0")
        })
    };
    folders.iter().any(|folder| {
        killed(&folder.join("memory.events")) || killed(&folder.join("memory.oom_control"))
    })
}

impl Drop for Group {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_hierarchies_are_found_by_controller() {
        let mounts = "34 24 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      35 24 0:30 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      36 24 0:31 / /proc rw - proc proc rw";
        let found = candidates(mounts, "4:memory:/a/b\n8:pids:/\n0::/\n");
        let paths: Vec<&str> = found.iter().map(|c| c.path.to_str().unwrap()).collect();
        let expected = [
            "/sys/fs/cgroup/memory/a/b",
            "/sys/fs/cgroup/memory/a",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/pids",
        ];
        assert_eq!(paths, expected);
    }

    #[test]
    fn version_2_paths_are_relative_to_the_container() {
        let mounts = "30 23 0:26 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw,nsdelegate";
        let found = candidates(mounts, "0::/docker/x/inner\n");
        assert_eq!(found[0].path, Path::new("/sys/fs/cgroup/inner"));
        assert_eq!(found[1].path, Path::new("/sys/fs/cgroup"));
        assert!(found.iter().all(|c| c.controllers.is_none()));
    }

    #[test]
    fn without_a_writable_group_nothing_is_limited() {
        let missing = Candidate {
            path: "/nonexistent".into(),
            controllers: None,
        };
        assert_eq!(Cgroups::among(&[missing]), Cgroups::default());
    }

    #[test]
    fn controllers_of_version_2_share_a_group() {
        let parent = tempfile::tempdir().unwrap();
        let hierarchy = Some(Hierarchy {
            parent: parent.path().to_owned(),
            v2: true,
        });
        let cgroups = Cgroups {
            memory: hierarchy.clone(),
            processes: hierarchy.clone(),
            cpus: hierarchy,
        };
        let mut group = cgroups.create(&Limits::default()).unwrap();
        let [folder] = &std::mem::take(&mut group.folders)[..] else {
            panic!("more than one group");
        };
        let text = |file| fs::read_to_string(folder.join(file)).unwrap();
        assert_eq!(text("memory.max"), "2147483648");
        assert_eq!(text("pids.max"), "128");
        assert_eq!(text("cpu.max"), "200000 100000");
    }

    proptest::proptest! {
        #[test]
        fn no_mount_table_panics(mounts in "\\PC{0,200}", own in "\\PC{0,100}") {
            candidates(&mounts, &own);
        }
    }
}
