//! The exit code of an error, from the first cause with a known type.

use std::error::Error;
use std::io;

use pybench_training_data::{
    FileError, HubError, RemoteError, SourceError, StoreError, TemplateError, TokenizeError,
    TokenizerError,
};
use tch::TchError;

use crate::exit::{self, ChildError, CodedError, ExitCode};
use crate::gguf::GgufError;
use crate::model::{ConfigError, LoadError, SaveError};
use crate::serve::VocabularyError;
use crate::torch::CommunicatorError;
use crate::train::{CheckpointError, RecipeError, StepError, UnknownTargetModule};

pub(super) fn of(error: &anyhow::Error, default: ExitCode) -> ExitCode {
    error.chain().find_map(of_cause).unwrap_or(default)
}

fn of_cause(cause: &(dyn Error + 'static)) -> Option<ExitCode> {
    macro_rules! first {
        ($($kind:ty => $code:expr),* $(,)?) => {
            $(if let Some(error) = cause.downcast_ref::<$kind>() {
                let code: fn(&$kind) -> ExitCode = $code;
                return Some(code(error));
            })*
        };
    }
    first! {
        CodedError => |error| error.code,
        ChildError => |error| error.code,
        RecipeError => RecipeError::exit_code,
        CheckpointError => CheckpointError::exit_code,
        StepError => StepError::exit_code,
        UnknownTargetModule => |_| ExitCode::BadInput,
        TokenizeError => TokenizeError::exit_code,
        SourceError => SourceError::exit_code,
        HubError => HubError::exit_code,
        RemoteError => RemoteError::exit_code,
        StoreError => |_| ExitCode::Environment,
        TokenizerError => TokenizerError::exit_code,
        TemplateError => |_| ExitCode::BadInput,
        VocabularyError => VocabularyError::exit_code,
        FileError => FileError::exit_code,
        LoadError => LoadError::exit_code,
        SaveError => SaveError::exit_code,
        ConfigError => |_| ExitCode::BadInput,
        GgufError => |_| ExitCode::BadInput,
        CommunicatorError => |_| ExitCode::Environment,
        TchError => exit::of_tch,
        serde_json::Error => |_| ExitCode::BadInput,
        toml::de::Error => |_| ExitCode::BadInput,
        io::Error => of_io,
    }
    None
}

fn of_io(error: &io::Error) -> ExitCode {
    match error.kind() {
        // The reader of our output has closed it, as in `| head`.
        io::ErrorKind::BrokenPipe => ExitCode::Success,
        _ => ExitCode::of_io(error),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn causes_behind_contexts_are_found() {
        let code = |error: anyhow::Error| of(&error, ExitCode::Internal);
        let missing: Result<(), io::Error> = Err(io::ErrorKind::NotFound.into());
        assert_eq!(
            code(missing.context("reading").unwrap_err()),
            ExitCode::BadInput
        );
        let diverged = StepError::Diverged {
            step: 1,
            what: "loss",
            value: f64::NAN,
        };
        let diverged = anyhow::Error::new(diverged).context("the batch is saved");
        assert_eq!(code(diverged), ExitCode::BadInput);
        assert_eq!(code(anyhow::anyhow!("what?")), ExitCode::Internal);
        let closed = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(code(closed.into()), ExitCode::Success);
    }
}
