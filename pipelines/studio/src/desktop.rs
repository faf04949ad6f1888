//! The browser of the desktop.

use std::io::IsTerminal as _;
use std::process::Stdio;

use tokio::process::Command;

/// What the environment says of where the command was typed.
struct Environment {
    is_mac: bool,
    /// Whether a person reads what the program prints.
    is_terminal: bool,
    /// Whether there is a display.
    has_display: bool,
    /// Whether the terminal is on another machine.
    is_remote: bool,
}

impl Environment {
    fn of_process() -> Self {
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        Self {
            is_mac: cfg!(target_os = "macos"),
            is_terminal: std::io::stdout().is_terminal(),
            has_display: ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(is_set),
            is_remote: ["SSH_CONNECTION", "SSH_TTY"].iter().any(is_set),
        }
    }

    fn has_desktop(&self) -> bool {
        self.is_terminal && !self.is_remote && (self.is_mac || self.has_display)
    }
}

/// Whether a browser can be opened for the person who typed the command.
pub(crate) fn is_there() -> bool {
    Environment::of_process().has_desktop()
}

/// Opens an address. Nothing happens if the desktop has no program for that: the address is printed too.
pub(crate) fn open(address: &str) {
    let program = match cfg!(target_os = "macos") {
        true => "open",
        false => "xdg-open",
    };
    let mut command = Command::new(program);
    command
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Err(error) = command.spawn() {
        tracing::info!("{program} cannot be started: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_is_opened_only_where_a_person_sees_it() {
        let desktop = || Environment {
            is_mac: false,
            is_terminal: true,
            has_display: true,
            is_remote: false,
        };
        assert!(desktop().has_desktop());
        for (where_to, expected) in [
            (
                Environment {
                    is_terminal: false,
                    ..desktop()
                },
                false,
            ),
            (
                Environment {
                    has_display: false,
                    ..desktop()
                },
                false,
            ),
            (
                Environment {
                    is_remote: true,
                    ..desktop()
                },
                false,
            ),
            (
                Environment {
                    is_mac: true,
                    has_display: false,
                    ..desktop()
                },
                true,
            ),
        ] {
            assert_eq!(where_to.has_desktop(), expected);
        }
    }
}
