//! What E2B's code interpreter client asks for, of one port: the control plane ([`control`]), the
//! interpreter of a sandbox ([`code`]) and its files ([`files`], [`filesystem`]). A header names the
//! sandbox; its token comes with `POST /sandboxes`.

mod charts;
pub(super) mod code;
pub(super) mod control;
pub(super) mod files;
pub(super) mod filesystem;
mod time;

/// The version of E2B's daemon in the sandbox that we answer as: the first that takes raw uploads.
const DAEMON_VERSION: &str = "0.5.7";

/// Where a sandbox's clients believe to be, and where its sessions are.
const THEIR_HOME: &str = "/home/user";
const OUR_HOME: &str = "/workspace";

/// A path as sessions see it.
fn inside(path: &str) -> String {
    format!("{OUR_HOME}/{path}")
        .trim_end_matches('/')
        .to_owned()
}
