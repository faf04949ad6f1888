//! Exit codes of libtorch's errors, and errors that carry an exit code.

use std::process::ExitStatus;

pub use pybench_types::exit_code::ExitCode;
use tch::TchError;
use thiserror::Error;

/// The code of a failure in libtorch: a lack of memory is the environment.
pub fn of_torch(message: &str) -> ExitCode {
    let message = message.to_ascii_lowercase();
    let lacks = [
        "out of memory",
        "allocate memory",
        "not enough memory",
        "no space left",
    ];
    match lacks.iter().any(|text| message.contains(text)) {
        true => ExitCode::Environment,
        false => ExitCode::Internal,
    }
}

pub fn of_tch(error: &TchError) -> ExitCode {
    of_torch(&error.to_string())
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

pub(crate) fn conflict(message: impl Into<String>) -> anyhow::Error {
    coded(ExitCode::Conflict, message)
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
    fn a_lack_of_memory_is_no_bug() {
        assert_eq!(of_torch("CUDA out of memory. Tried"), ExitCode::Environment);
        assert_eq!(of_torch("sizes do not match"), ExitCode::Internal);
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
