//! The user that runs the servers. PostgreSQL refuses to run as root.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use pybench_run::RunError;

/// Users of the system that may run a server for root, in order. Not `nobody`: sessions can run as that one, and must not
/// reach what servers store.
const CANDIDATES: [&str; 2] = ["postgres", "daemon"];

/// Another user than this process's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl User {
    /// Makes a program run as this user, without any group of this process.
    pub(crate) fn run(&self, command: &mut Command) {
        // Rust drops the other groups of root when it sets the user.
        command.uid(self.uid).gid(self.gid);
    }
}

/// The user that runs servers whose data are in `folder` and whose programs are in `programs`; `None` if this process can.
///
/// # Errors
/// [`RunError::Environment`] if this process is root's and there is no user for them, or if that user cannot reach the
/// folders.
pub(crate) fn for_servers(folder: &Path, programs: &Path) -> Result<Option<User>, RunError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(RunError::io("/etc/passwd"))?;
    let user = CANDIDATES
        .iter()
        .find_map(|name| find(&users, |other, _| other == *name));
    let Some(user) = user else {
        return Err(RunError::Environment(format!(
            "PostgreSQL does not run as root, and this machine has none of the users {}: create one (useradd --system \
             postgres), or run this command as an ordinary user",
            CANDIDATES.join(", ")
        )));
    };
    for path in [folder, programs] {
        if let Some(closed) = first_closed(path)? {
            return Err(RunError::Environment(format!(
                "PostgreSQL does not run as root, and the user {} cannot reach {}: {} is closed to other users; give \
                 another folder with --data DIR, such as /var/lib/pybench/cluster",
                user.name,
                path.display(),
                closed.display()
            )));
        }
    }
    Ok(Some(user))
}

/// The user that owns existing data, if that is not this process's.
pub(crate) fn of_data(data: &Path) -> Result<Option<User>, RunError> {
    let Ok(owner) = fs::metadata(data) else {
        return Ok(None);
    };
    if owner.uid() == rustix::process::geteuid().as_raw() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(RunError::io("/etc/passwd"))?;
    let known = find(&users, |_, uid| uid == owner.uid());
    Ok(Some(known.unwrap_or(User {
        name: owner.uid().to_string(),
        uid: owner.uid(),
        gid: owner.gid(),
    })))
}

/// The first line of `/etc/passwd` that fits.
fn find(users: &str, fits: impl Fn(&str, u32) -> bool) -> Option<User> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, uid, gid) = (
            fields.next()?,
            fields.next()?,
            fields.next()?,
            fields.next()?,
        );
        let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
        fits(name, uid).then(|| User {
            name: name.to_owned(),
            uid,
            gid,
        })
    })
}

/// The first folder above and with `path` that other users cannot enter.
fn first_closed(path: &Path) -> Result<Option<&Path>, RunError> {
    let mut folders: Vec<&Path> = path.ancestors().collect();
    folders.reverse();
    for folder in folders {
        let found = fs::metadata(folder).map_err(RunError::io(folder.display().to_string()))?;
        if found.mode() & 0o001 == 0 {
            return Ok(Some(folder));
        }
    }
    Ok(None)
}
