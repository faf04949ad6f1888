//! The API of E2B's code interpreter client on one port: the control plane ([`control`]), the interpreter of
//! a sandbox ([`code`]) and its files ([`files`], [`filesystem`]). A header names the sandbox; `POST
//! /sandboxes` returns its token.

mod charts;
pub(super) mod code;
pub(super) mod control;
pub(super) mod files;
pub(super) mod filesystem;

/// The version of E2B's sandbox daemon that we report: the first one with raw uploads.
const DAEMON_VERSION: &str = "0.5.7";

/// Home directory in E2B's sandboxes, and the workspace of our sessions.
const E2B_HOME: &str = "/home/user";
const WORKSPACE: &str = "/workspace";

/// A path as sessions see it.
fn inside(path: &str) -> String {
    format!("{WORKSPACE}/{path}")
        .trim_end_matches('/')
        .to_owned()
}
