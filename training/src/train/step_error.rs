//! Why a training step failed.

use tch::TchError;
use thiserror::Error;

use crate::exit::{self, ExitCode};
use crate::model::ShardUnit;

#[derive(Debug, Error)]
pub enum StepError {
    #[error(
        "step {step}: the {what} is {value}: training diverged, or a document is broken. Inspect the saved batch, or lower optimizer.learning_rate"
    )]
    Diverged {
        step: u64,
        what: &'static str,
        value: f64,
    },
    #[error(
        "step {step}: the loss jumped to {loss:.3} from a median of {median:.3}: training diverges, or a document is broken. Inspect the saved batch; lower optimizer.learning_rate, or raise optimizer.loss_spike_threshold (now {threshold}) to continue"
    )]
    Spike {
        step: u64,
        loss: f64,
        median: f64,
        threshold: f64,
    },
    #[error(
        "step {step}: the gradient norm of {unit} is {value}: training diverged, or a document is broken. optimizer.optimizer_in_bwd has updated the units before it, so this step is lost and the run can only go on from its last checkpoint. Inspect the saved batch, or lower optimizer.learning_rate"
    )]
    UnitDiverged {
        step: u64,
        unit: ShardUnit,
        value: f64,
    },
    #[error(
        "step {step}: optimizer.optimizer_in_bwd needs one micro-batch, and there are {count}; raise train.micro_batch_size"
    )]
    SeveralMicroBatches { step: u64, count: usize },
    #[error("step {0} has no trained token; raise train.batch_size, or check the data")]
    NoTargets(u64),
    #[error("step {step}: {reason}")]
    Failed { step: u64, reason: String },
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

impl StepError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Diverged { .. }
            | Self::Spike { .. }
            | Self::UnitDiverged { .. }
            | Self::SeveralMicroBatches { .. }
            | Self::NoTargets(_) => ExitCode::BadInput,
            Self::Failed { reason, .. } => exit::of_torch(reason),
            Self::Torch(error) => exit::of_tch(error),
        }
    }

    /// Whether the batch should be saved for inspection.
    pub fn is_divergence(&self) -> bool {
        matches!(
            self,
            Self::Diverged { .. } | Self::Spike { .. } | Self::UnitDiverged { .. }
        )
    }
}
