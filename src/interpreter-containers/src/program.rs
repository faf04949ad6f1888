//! Calls the client program of an engine (`docker`, `podman`, `kubectl`).

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use pybench_interpreter::InterpreterError;
use pybench_interpreter::sandbox::memfd;

/// Maximum size of an answer, bytes.
const MAX_ANSWER: u64 = 1 << 20;

/// Path of a client program.
#[derive(Clone, Debug)]
pub(super) struct Program(PathBuf);

impl Program {
    /// Finds the program that the settings name, or the first one of that name in `PATH`.
    pub(super) fn find(
        name: &str,
        configured: Option<&Path>,
        remedy: &str,
    ) -> Result<Self, InterpreterError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let in_path = || {
            let mut found = std::env::split_paths(&path).map(|folder| folder.join(name));
            found.find(|path| path.is_file())
        };
        let found = match configured {
            Some(configured) => Some(configured.to_owned()).filter(|path| path.is_file()),
            None => in_path(),
        };
        found.map(Self).ok_or_else(|| {
            let name = configured.map_or(name.into(), Path::to_string_lossy);
            InterpreterError::Unavailable(format!("{name} is missing. {remedy}"))
        })
    }

    /// A command that is killed when the thread that started it ends.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.0);
        command.current_dir("/").stdin(Stdio::null());
        command.process_group(0); // a signal to our group must not end a session
        let die = || {
            Ok(rustix::process::set_parent_process_death_signal(Some(
                Signal::KILL,
            ))?)
        };
        // SAFETY: one system call on the new process; nothing is allocated or locked.
        unsafe { command.pre_exec(die) };
        command
    }

    /// Runs the program; returns its stdout, or its stderr as the error.
    pub(super) fn ask(
        &self,
        arguments: &[String],
        input: &[u8],
        timeout: Duration,
    ) -> Result<String, String> {
        let mut command = self.command();
        command.args(arguments);
        answer(command, input, timeout).map_err(|error| error.to_string())
    }
}

fn answer(mut command: Command, input: &[u8], timeout: Duration) -> io::Result<String> {
    let [mut stdin, mut stdout, mut stderr] =
        [memfd("input")?, memfd("answer")?, memfd("complaint")?];
    stdin.write_all(input)?;
    stdin.rewind()?;
    let child = command
        .stdin(stdin)
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .spawn()?;
    match wait(child, timeout)? {
        None => Err(io::Error::other(format!(
            "no answer within {} s",
            timeout.as_secs()
        ))),
        Some(true) => text(&mut stdout),
        Some(false) => {
            let text = text(&mut stderr)?;
            Err(io::Error::other(text.trim().to_owned()))
        }
    }
}

/// Waits for a child; returns whether it succeeded. On timeout kills it and returns `None`.
pub(super) fn wait(mut child: Child, timeout: Duration) -> io::Result<Option<bool>> {
    let until = Instant::now() + timeout;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn text(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(MAX_ANSWER).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(script: &str, input: &[u8], timeout: u64) -> Result<String, String> {
        let shell = Program(PathBuf::from("/bin/sh"));
        let words = ["-c".to_owned(), script.to_owned()];
        shell.ask(&words, input, Duration::from_secs(timeout))
    }

    #[test]
    fn success_failure_and_timeout_are_distinguished() {
        assert_eq!(ask("tr a-z A-Z", b"abc", 600), Ok("ABC".to_owned()));
        assert_eq!(ask("echo no >&2; exit 3", b"", 600), Err("no".to_owned()));
        let late = Err("no answer within 1 s".to_owned());
        assert_eq!(ask("exec sleep 600", b"", 1), late);
    }

    #[test]
    fn the_error_for_a_missing_program_says_what_to_do() {
        let error = Program::find("no-such-program", None, "Install it.").unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("no-such-program is missing. Install it."),
            "{error}"
        );
        let configured =
            Program::find("sh", Some(Path::new("/no/such")), "Install it.").unwrap_err();
        assert!(configured.to_string().contains("/no/such"), "{configured}");
    }
}
