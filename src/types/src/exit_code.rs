//! Exit codes of all programs.

use std::io;

/// Exit codes of all commands, documented in `docs/exit-codes.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Everything requested was done.
    Success = 0,
    /// A bug or an unexpected failure in pybench.
    Internal = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A recipe, template or other input file is wrong.
    BadInput = 3,
    /// The machine lacks a requirement (sandbox, Python environment, disk space).
    Environment = 4,
    /// An endpoint could not be used (API key refused, not reachable after all retries).
    Endpoint = 5,
    /// A budget is used up; raise it and run the same command again to continue.
    Budget = 6,
    /// The run ended, but some units failed or fewer rows were accepted than the recipe requires.
    Incomplete = 7,
    /// Another process uses the run folder or has continued the conversation, or the folder belongs to a different recipe.
    Conflict = 8,
    /// Ctrl-C; run the same command again to continue.
    Interrupted = 130,
}

impl ExitCode {
    pub const ALL: [Self; 10] = [
        Self::Success,
        Self::Internal,
        Self::Usage,
        Self::BadInput,
        Self::Environment,
        Self::Endpoint,
        Self::Budget,
        Self::Incomplete,
        Self::Conflict,
        Self::Interrupted,
    ];

    /// The code that a process of ours ended with; `None` for other numbers.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|code| *code as i32 == number)
    }

    /// The code of a file operation: wrong files are bad input, a lack of space or rights is the environment.
    pub fn of_io(error: &io::Error) -> Self {
        use io::ErrorKind::*;
        match error.kind() {
            NotFound | AlreadyExists | InvalidData | InvalidInput | UnexpectedEof
            | IsADirectory | NotADirectory => Self::BadInput,
            Other => Self::Internal,
            _ => Self::Environment,
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_files_differ_from_lacking_space() {
        let code = |kind: io::ErrorKind| ExitCode::of_io(&kind.into());
        assert_eq!(code(io::ErrorKind::NotFound), ExitCode::BadInput);
        assert_eq!(code(io::ErrorKind::StorageFull), ExitCode::Environment);
        assert_eq!(code(io::ErrorKind::PermissionDenied), ExitCode::Environment);
    }
}
