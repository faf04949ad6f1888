//! Exit codes (docs/exit-codes.md), and errors that carry one.

use std::io;
use std::process::ExitStatus;

use tch::TchError;
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCode {
    Success = 0,
    Internal = 1,
    Usage = 2,
    BadInput = 3,
    Environment = 4,
    Endpoint = 5,
    Budget = 6,
    Incomplete = 7,
    Conflict = 8,
    Interrupted = 130,
}

impl ExitCode {
    const ALL: [Self; 10] = [
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

    fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|code| *code as i32 == number)
    }

    /// The code of a file operation: wrong files are bad input, a lack of space or rights is the environment.
    pub fn of_io(error: &io::Error) -> Self {
        use io::ErrorKind::*;
        match error.kind() {
            NotFound | InvalidData | InvalidInput | UnexpectedEof | IsADirectory
            | NotADirectory => Self::BadInput,
            Other => Self::Internal,
            _ => Self::Environment,
        }
    }

    /// The code of a failure in libtorch: a lack of memory is the environment.
    pub fn of_torch(message: &str) -> Self {
        let message = message.to_ascii_lowercase();
        let lacks = [
            "out of memory",
            "allocate memory",
            "not enough memory",
            "no space left",
        ];
        match lacks.iter().any(|text| message.contains(text)) {
            true => Self::Environment,
            false => Self::Internal,
        }
    }

    pub fn of_tch(error: &TchError) -> Self {
        Self::of_torch(&error.to_string())
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

/// A message with an exit code, for errors without a type of their own.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct CodedError {
    pub code: ExitCode,
    message: String,
}

fn coded(code: ExitCode, message: impl Into<String>) -> anyhow::Error {
    let message = message.into();
    CodedError { code, message }.into()
}

pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    coded(ExitCode::Usage, message)
}

pub(crate) fn bad_input(message: impl Into<String>) -> anyhow::Error {
    coded(ExitCode::BadInput, message)
}

pub(crate) fn environment(message: impl Into<String>) -> anyhow::Error {
    coded(ExitCode::Environment, message)
}

pub(crate) fn endpoint(message: impl Into<String>) -> anyhow::Error {
    coded(ExitCode::Endpoint, message)
}

pub(crate) fn interrupted(message: impl Into<String>) -> anyhow::Error {
    coded(ExitCode::Interrupted, message)
}

/// A program that we started has failed. If it is one of ours, its exit code becomes ours.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct ChildError {
    pub code: ExitCode,
    message: String,
}

impl ChildError {
    pub(crate) fn new(message: String, status: ExitStatus) -> Self {
        let code = status.code().and_then(ExitCode::from_number);
        let code = code.filter(|code| *code != ExitCode::Success);
        Self {
            code: code.unwrap_or(ExitCode::Internal),
            message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_outside_of_the_program_are_told_apart() {
        let code = |kind: io::ErrorKind| ExitCode::of_io(&kind.into());
        assert_eq!(code(io::ErrorKind::NotFound), ExitCode::BadInput);
        assert_eq!(code(io::ErrorKind::StorageFull), ExitCode::Environment);
        assert_eq!(code(io::ErrorKind::PermissionDenied), ExitCode::Environment);
        let torch = ExitCode::of_torch;
        assert_eq!(torch("CUDA out of memory. Tried"), ExitCode::Environment);
        assert_eq!(torch("sizes do not match"), ExitCode::Internal);
    }

    #[test]
    fn codes_of_our_own_programs_are_passed_on() {
        use std::os::unix::process::ExitStatusExt;
        let code = |raw: i32| ChildError::new(String::new(), ExitStatus::from_raw(raw)).code;
        assert_eq!(code(5 << 8), ExitCode::Endpoint);
        assert_eq!(code(130 << 8), ExitCode::Interrupted);
        assert_eq!(code(77 << 8), ExitCode::Internal);
        assert_eq!(code(libc::SIGKILL), ExitCode::Internal);
    }
}
