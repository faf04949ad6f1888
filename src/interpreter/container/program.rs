//! The program through which an engine is asked.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::interpreter::InterpreterError;
use crate::interpreter::sandbox::memfd;

/// Most bytes of an answer that are read.
const MOST: u64 = 1 << 20;

/// A program of this machine.
#[derive(Clone, Debug)]
pub(super) struct Program(PathBuf);

impl Program {
    /// The one that settings name, or the first of that name in `PATH`.
    pub(super) fn find(
        name: &str,
        given: Option<&Path>,
        remedy: &str,
    ) -> Result<Self, InterpreterError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let in_path = || {
            let mut found = std::env::split_paths(&path).map(|folder| folder.join(name));
            found.find(|path| path.is_file())
        };
        let found = match given {
            Some(given) => Some(given.to_owned()).filter(|path| path.is_file()),
            None => in_path(),
        };
        found.map(Self).ok_or_else(|| {
            let name = given.map_or(name.into(), Path::to_string_lossy);
            InterpreterError::Unavailable(format!("{name} is missing. {remedy}"))
        })
    }

    /// A call of it, which ends when the thread that starts it does.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.0);
        command.current_dir("/").stdin(Stdio::null());
        let die = || {
            Ok(rustix::process::set_parent_process_death_signal(Some(
                Signal::KILL,
            ))?)
        };
        // SAFETY: one system call on the new process; nothing is allocated or locked.
        unsafe { command.pre_exec(die) };
        command
    }

    /// Ask and wait for the answer, or for what it complains of.
    pub(super) fn ask(
        &self,
        arguments: &[String],
        input: &[u8],
        patience: Duration,
    ) -> Result<String, String> {
        let mut command = self.command();
        command.args(arguments);
        answer(command, input, patience).map_err(|error| error.to_string())
    }
}

fn answer(mut command: Command, input: &[u8], patience: Duration) -> io::Result<String> {
    let [mut given, mut said, mut complaint] =
        [memfd("input")?, memfd("answer")?, memfd("complaint")?];
    given.write_all(input)?;
    given.rewind()?;
    let child = command
        .stdin(given)
        .stdout(said.try_clone()?)
        .stderr(complaint.try_clone()?)
        .spawn()?;
    match wait(child, patience)? {
        None => Err(io::Error::other(format!(
            "no answer within {} s",
            patience.as_secs()
        ))),
        Some(true) => text(&mut said),
        Some(false) => {
            let text = text(&mut complaint)?;
            Err(io::Error::other(text.trim().to_owned()))
        }
    }
}

/// Whether it ended well; `None`, and it is killed, when it takes too long.
pub(super) fn wait(mut child: Child, patience: Duration) -> io::Result<Option<bool>> {
    let until = Instant::now() + patience;
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
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(script: &str, input: &[u8], patience: u64) -> Result<String, String> {
        let shell = Program(PathBuf::from("/bin/sh"));
        let words = ["-c".to_owned(), script.to_owned()];
        shell.ask(&words, input, Duration::from_secs(patience))
    }

    #[test]
    fn programs_answer_complain_or_take_too_long() {
        assert_eq!(ask("tr a-z A-Z", b"abc", 600), Ok("ABC".to_owned()));
        assert_eq!(ask("echo no >&2; exit 3", b"", 600), Err("no".to_owned()));
        let late = Err("no answer within 1 s".to_owned());
        assert_eq!(ask("exec sleep 600", b"", 1), late);
    }

    #[test]
    fn a_missing_program_says_what_to_do() {
        let error = Program::find("no-such-program", None, "Install it.").unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("no-such-program is missing. Install it."),
            "{error}"
        );
        let given = Program::find("sh", Some(Path::new("/no/such")), "Install it.").unwrap_err();
        assert!(given.to_string().contains("/no/such"), "{given}");
    }
}
