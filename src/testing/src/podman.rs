//! Podman for tests: images and containers that are removed with the test that made them.

use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use pybench_interpreter::environment::Environment;
use pybench_interpreter::mount_spec::MountSpec;
use tempfile::TempDir;

use crate::program::write_program;
use crate::{sessions, skip};

/// Podman, with its arguments noted beside the program. crun refuses machines that have control groups of both
/// versions; here it sees only one of them.
const WRAPPER: &str = r#"#!/bin/sh
echo "$*" >> "$0.calls"
[ -e /sys/fs/cgroup/unified ] || exec podman "$@"
exec unshare --mount sh -c 'umount /sys/fs/cgroup/unified; exec podman "$@"' podman "$@"
"#;

/// Control groups of version 2, on a machine that also has those of version 1.
const UNIFIED: &str = "/sys/fs/cgroup/unified";

/// Images and containers of tests are named with this, the process that made them, and a number.
const PREFIX: &str = "pybench-test-";

/// The signal that ends a program which writes to a pipe that nobody reads.
const SIGPIPE: i32 = 13;

/// The Podman of this machine.
pub struct Podman {
    folder: TempDir,
    namespace: Option<MountNamespace>,
}

impl Podman {
    /// `None`, with a printed reason, if it is not installed or does not answer.
    pub fn find() -> Option<Self> {
        answers("podman").map_err(skip::missing_tool).ok()?;
        let folder = sessions::shared_folder();
        write_program(&folder.path().join("podman"), WRAPPER);
        let podman = Self {
            folder,
            namespace: None,
        };
        podman.remove_orphans();
        Some(podman)
    }

    /// Runs all commands in one mount namespace, so that `exec` finds what `run` has mounted.
    fn in_one_namespace(mut self) -> io::Result<Self> {
        if Path::new(UNIFIED).exists() {
            self.namespace = Some(MountNamespace::new()?);
        }
        Ok(self)
    }

    /// The program to start instead of `podman`.
    pub fn program(&self) -> PathBuf {
        self.folder.path().join("podman")
    }

    /// The arguments of all calls so far, a line each.
    pub fn calls(&self) -> String {
        fs::read_to_string(self.folder.path().join("podman.calls")).unwrap_or_default()
    }

    fn command<Text: AsRef<str>>(&self, arguments: &[Text]) -> Command {
        let mut command = match &self.namespace {
            Some(namespace) => namespace.command("podman"),
            None => Command::new(self.program()),
        };
        command.args(arguments.iter().map(AsRef::as_ref));
        command
    }

    /// What a command prints.
    ///
    /// # Errors
    /// What it says if it fails.
    fn ask<Text: AsRef<str>>(&self, arguments: &[Text]) -> Result<String, String> {
        let output = self.command(arguments).stdin(Stdio::null()).output();
        said(output)
    }

    /// Containers, then images of tests, by name.
    fn made_by_tests(&self) -> [Vec<String>; 2] {
        let lists = [
            ["ps", "--all", "--format", "{{.Names}}"].as_slice(),
            ["images", "--format", "{{.Repository}}"].as_slice(),
        ];
        lists.map(|list| {
            let names = self.ask(list).unwrap_or_default();
            let names = names.lines().filter(|name| name.contains(PREFIX));
            names.map(str::to_owned).collect()
        })
    }

    /// Removes images and containers of test processes that were killed.
    fn remove_orphans(&self) {
        let made = self.made_by_tests();
        for (names, remove) in made.iter().zip(["rm", "rmi"]) {
            for name in names.iter().filter(|name| is_orphan(name)) {
                let _ = self.ask(&[remove, "--force", name]);
            }
        }
    }

    /// Images and containers that this process has made and not removed.
    pub fn left(&self) -> Vec<String> {
        let mine = format!("{PREFIX}{}-", std::process::id());
        let mut left = self.made_by_tests().concat();
        left.retain(|name| name.contains(&mine));
        left
    }
}

/// A mount namespace without [`UNIFIED`]. It ends with this process.
struct MountNamespace(Child);

impl MountNamespace {
    fn new() -> io::Result<Self> {
        let script = format!("umount {UNIFIED} && echo && exec cat");
        let mut process = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = [0];
        let ready = process
            .stdout
            .take()
            .map(|mut output| output.read_exact(&mut line));
        let namespace = Self(process);
        match ready {
            Some(Ok(())) => Ok(namespace),
            _ => Err(io::Error::other(format!("{UNIFIED} cannot be unmounted"))),
        }
    }

    /// A command that starts a program in it.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.0.id());
        command.args([&namespace, program]);
        command
    }
}

impl Drop for MountNamespace {
    fn drop(&mut self) {
        // `cat` ends with its input, which `wait` closes.
        let _ = self.0.wait();
    }
}

/// Whether an engine of this machine answers.
///
/// # Errors
/// Why it does not.
pub fn answers(engine: &str) -> Result<(), String> {
    let output = Command::new(engine).arg("ps").stdin(Stdio::null()).output();
    said(output)
        .map(drop)
        .map_err(|error| format!("`{engine} ps` fails: {error}"))
}

fn said(output: io::Result<Output>) -> Result<String, String> {
    match output {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether the process that made it is dead.
fn is_orphan(name: &str) -> bool {
    let (_, rest) = name.split_once(PREFIX).unwrap_or_default();
    let pid = rest.split('-').next().unwrap_or_default();
    !pid.is_empty() && !Path::new("/proc").join(pid).exists()
}

fn new_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{}-{number}", std::process::id())
}

/// This machine's system and the Python environment of sessions as a base image, for machines that reach no registry
/// of images. The image holds folders only: every container mounts the system read-only, and the environment at
/// `/opt/env`.
pub struct HostSystem {
    podman: Podman,
    base: String,
    volumes: Vec<String>,
}

impl HostSystem {
    /// `None`, with a printed reason, if there is no Podman or it cannot start a container.
    pub fn find() -> Option<Self> {
        let unable = |error: String| {
            skip::unavailable(format!("podman cannot start a container: {error}"));
        };
        let podman = Podman::find()?.in_one_namespace();
        let podman = podman.map_err(|error| unable(error.to_string())).ok()?;
        let environment = Environment::find().map_err(skip::missing_tool).ok()?;
        let mut mounts = MountSpec::new(&environment, None, false);
        // The runner of sessions and their users are not part of the system.
        mounts
            .binds
            .retain(|(_, to)| !to.starts_with("/opt/pybench") && !is_account_file(to));
        let volume = |(from, to): &(PathBuf, PathBuf)| {
            format!("--volume={}:{}:ro", from.display(), to.display())
        };
        let volumes = mounts.binds.iter().map(volume).collect();
        let base = format!("localhost/{}", new_name());
        let system = Self {
            podman,
            base,
            volumes,
        };
        let started = system.import(&mounts).and_then(|()| system.start_one());
        started.map_err(unable).ok()?;
        Some(system)
    }

    /// Whether a container starts.
    fn start_one(&self) -> Result<String, String> {
        self.podman.ask(&self.run(&["--rm", &self.base, "true"]))
    }

    /// Name of the base image.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Creates the base image.
    fn import(&self, mounts: &MountSpec) -> Result<(), String> {
        let folder = sessions::shared_folder();
        root_folder(folder.path(), mounts).map_err(|error| error.to_string())?;
        let archive = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        let mut pack = Command::new("tar");
        pack.args(["--create", "--owner=0", "--group=0", "--file"])
            .arg(archive.path())
            .arg("--directory")
            .arg(folder.path())
            .arg(".");
        said(pack.output())?;
        let path = "--change=ENV PATH=/opt/env/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let archive = archive.path().display().to_string();
        self.podman.ask(&["import", path, &archive, &self.base])?;
        Ok(())
    }

    /// Builds an image from a Dockerfile that starts with [`HostSystem::base`].
    ///
    /// # Errors
    /// What podman says.
    pub fn build(&self, dockerfile: &str, context: &Path) -> Result<Image<'_>, String> {
        let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        fs::write(file.path(), dockerfile).map_err(|error| error.to_string())?;
        let image = Image {
            system: self,
            name: format!("localhost/{}", new_name()),
        };
        let mut arguments = words("build --quiet --layers=false --isolation=chroot --network=host");
        arguments.extend(self.volumes.clone());
        arguments.push(format!("--file={}", file.path().display()));
        arguments.push(format!("--tag={}", image.name));
        arguments.push(context.display().to_string());
        self.podman.ask(&arguments)?;
        Ok(image)
    }

    /// Arguments that run a container, with limits that every machine's own allow.
    fn run(&self, more: &[&str]) -> Vec<String> {
        let mut arguments = words(
            "run --pull=never --network=none --cgroups=disabled --ulimit=nofile=1024:1024 --ulimit=nproc=4096:4096 \
             --security-opt=label=disable --http-proxy=false",
        );
        arguments.extend(self.volumes.clone());
        arguments.extend(more.iter().map(|&word| word.to_owned()));
        arguments
    }
}

impl Drop for HostSystem {
    fn drop(&mut self) {
        let _ = self.podman.ask(&["rmi", "--force", &self.base]);
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Files that an image has of its own.
fn is_account_file(path: &Path) -> bool {
    ["/etc/passwd", "/etc/group", "/etc/hosts"]
        .iter()
        .any(|own| path == Path::new(own))
}

/// The folders and links of a small Linux system, with mount points for the rest of it.
fn root_folder(root: &Path, mounts: &MountSpec) -> io::Result<()> {
    let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    for folder in [
        "proc", "dev", "sys", "tmp", "etc", "home", "root", "run", "var/tmp",
    ] {
        fs::create_dir_all(root.join(folder))?;
    }
    for (from, to) in &mounts.binds {
        let to = inside(to);
        if from.is_dir() {
            fs::create_dir_all(&to)?;
        } else {
            fs::create_dir_all(to.parent().unwrap_or(root))?;
            fs::write(&to, "")?;
        }
    }
    for (target, path) in &mounts.links {
        symlink(target, inside(path))?;
    }
    for folder in ["tmp", "var/tmp"] {
        fs::set_permissions(root.join(folder), Permissions::from_mode(0o1777))?;
    }
    let nobody = "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin";
    fs::write(
        root.join("etc/passwd"),
        format!("root:x:0:0::/root:/bin/bash\n{nobody}\n"),
    )?;
    fs::write(root.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;
    // A new user gets a group, as in Debian.
    fs::write(root.join("etc/login.defs"), "USERGROUPS_ENAB yes\n")
}

/// An image, removed when it is dropped.
pub struct Image<'a> {
    system: &'a HostSystem,
    name: String,
}

impl Image<'_> {
    /// Starts a container that waits for commands.
    ///
    /// # Errors
    /// What podman says.
    pub fn start(&self) -> Result<Container<'_>, String> {
        let container = Container {
            podman: &self.system.podman,
            name: new_name(),
        };
        // It ends by itself if this process is killed.
        let command = [
            "--rm",
            "--detach",
            "--name",
            &container.name,
            &self.name,
            "sleep",
            "1h",
        ];
        self.system.podman.ask(&self.system.run(&command))?;
        Ok(container)
    }
}

impl Drop for Image<'_> {
    fn drop(&mut self) {
        let _ = self.system.podman.ask(&["rmi", "--force", &self.name]);
    }
}

/// A running container, removed when it is dropped.
pub struct Container<'a> {
    podman: &'a Podman,
    name: String,
}

impl Container<'_> {
    /// Runs a shell command as a user and returns what it prints.
    ///
    /// # Errors
    /// What it says if it fails.
    pub fn exec(&self, user: &str, command: &str) -> Result<String, String> {
        self.podman
            .ask(&["exec", "--user", user, &self.name, "bash", "-c", command])
    }

    /// Copies what a folder holds to a folder of the container, which root then owns.
    ///
    /// # Errors
    /// What podman says.
    pub fn upload(&self, folder: &Path, to: &str) -> Result<(), String> {
        let mut pack = Command::new("tar");
        pack.args(["--create", "--directory"]).arg(folder).arg(".");
        let mut pack = pack
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let unpack = format!("mkdir -p {to} && tar --extract --no-same-owner --directory {to}");
        let arguments = [
            "exec",
            "--interactive",
            "--user",
            "root",
            &self.name,
            "bash",
            "-c",
            &unpack,
        ];
        let mut command = self.podman.command(&arguments);
        command.stdin(pack.stdout.take().map_or_else(Stdio::null, Stdio::from));
        let unpacked = said(command.output());
        let packed = pack.wait().map_err(|error| error.to_string())?;
        unpacked?;
        // The archive ends before its padding, which podman may no longer read.
        match packed.success() || packed.signal() == Some(SIGPIPE) {
            true => Ok(()),
            false => Err(format!("tar cannot read {}: {packed}", folder.display())),
        }
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let _ = self.podman.ask(&["rm", "--force", "--time=0", &self.name]);
    }
}
