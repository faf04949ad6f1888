//! What a session's container is made of, whoever makes it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::interpreter::engine::Order;
use crate::interpreter::environment::Environment;
use crate::interpreter::network::Door;
use crate::interpreter::seccomp;
use crate::interpreter::view::View;

/// Something to be seen inside.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Mount {
    /// A file or folder of the host; nothing set-uid works on it, nor a device.
    Bind {
        from: PathBuf,
        to: PathBuf,
        writable: bool,
    },
    /// A folder in memory that holds at most so many bytes.
    Temporary { to: &'static str, bytes: u64 },
}

/// A session's container.
#[derive(Clone, Debug)]
pub(super) struct Container {
    /// In the order in which they are mounted.
    pub(super) mounts: Vec<Mount>,
    /// The whole environment.
    pub(super) variables: Vec<(&'static str, &'static str)>,
    /// What runs in it.
    pub(super) command: Vec<String>,
}

/// Where the system and the Python environment come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum World {
    /// This machine, mounted read-only.
    Machine,
    /// The image.
    Image,
}

impl Container {
    /// The container of an order, in which `boot.<begin>` takes the last steps. `door` is its way out.
    pub(super) fn new(
        environment: &Environment,
        order: &Order,
        world: World,
        begin: &str,
        door: Option<&Door>,
    ) -> Self {
        let view = View::of(environment, &order.spec);
        let temporary = |to| Mount::Temporary {
            to,
            bytes: order.temporary(),
        };
        let mut mounts = vec![temporary("/dev/shm"), temporary("/tmp")];
        let shown = |to: &Path| world == World::Machine || is_ours(to);
        let binds = view.binds.iter().filter(|(_, to)| shown(to));
        mounts.extend(binds.map(|(from, to)| bind(from, to, false)));
        if world == World::Machine {
            mounts.extend(view.caches.iter().map(|(from, to)| {
                let from = from.strip_prefix("/opt/env").unwrap_or(from);
                bind(&environment.root.join(from), to, false)
            }));
        }
        let (path, inside) = (order.workspace.path(), Path::new("/workspace"));
        mounts.push(bind(path, inside, true));
        let read_only = order.workspace.read_only().iter();
        mounts.extend(read_only.map(|inner| bind(&path.join(inner), &inside.join(inner), false)));
        mounts.extend(door.map(|door| bind(door.folder(), Path::new(DOOR), false)));
        Self {
            mounts,
            variables: view.variables,
            command: command(begin, Some(&seccomp::program()), door.is_some()),
        }
    }
}

/// The way out of an order, where it asks for one: for `Container::new` and for the sandbox.
pub(super) fn door(environment: &Environment, order: &Order) -> io::Result<Option<Door>> {
    let make = |_: &_| Door::make(&environment.cache.join("doors"), order.user);
    order.spec.network.as_ref().map(make).transpose()
}

/// The command that calls `boot.<begin>`, with a system call filter and a way out, or without.
pub(super) fn command(begin: &str, filter: Option<&[u8]>, way: bool) -> Vec<String> {
    let filter = filter.map(|filter| format!("'{}'", STANDARD.encode(filter)));
    let way = if way { ", way=True" } else { "" };
    let code = format!(
        "import sys; sys.path.insert(0, '/opt/pybench/lib'); \
         from pybench_runner import boot; boot.{begin}({}{way})",
        filter.unwrap_or_default(),
    );
    ["/opt/env/bin/python", "-P", "-u", "-c", &code]
        .map(str::to_owned)
        .to_vec()
}

/// What no image brings.
fn is_ours(to: &Path) -> bool {
    to == Path::new("/opt/wheelhouse") || to.starts_with("/opt/pybench")
}

fn bind(from: &Path, to: &Path, writable: bool) -> Mount {
    Mount::Bind {
        from: from.to_owned(),
        to: to.to_owned(),
        writable,
    }
}

/// Where a container has its way out (`python/way.py`).
const DOOR: &str = "/opt/door";

/// Folders of a root folder that not every view has something in.
pub(super) const PLACES: [&str; 8] = [
    "proc",
    "dev",
    "sys",
    "tmp",
    "etc/ssl/certs",
    "workspace",
    "opt/wheelhouse",
    "opt/door",
];

/// Make a root folder: the places where a view is mounted, and its links.
pub(super) fn mount_points(root: &Path, view: &View) -> io::Result<()> {
    let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    for folder in PLACES {
        fs::create_dir_all(root.join(folder))?;
    }
    // `runsc` mounts all of them into this folder first, those below `/tmp` too.
    let caches = view
        .caches
        .iter()
        .map(|(_, to)| (Path::new(""), to.as_path()));
    let binds = view
        .binds
        .iter()
        .map(|(from, to)| (from.as_path(), to.as_path()));
    for (from, to) in binds.chain(caches) {
        let to = inside(to);
        if from.is_dir() {
            fs::create_dir_all(&to)?;
        } else {
            fs::create_dir_all(to.parent().unwrap_or(root))?;
            File::options().append(true).create(true).open(&to)?;
        }
    }
    for (target, path) in &view.links {
        match std::os::unix::fs::symlink(target, inside(path)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
