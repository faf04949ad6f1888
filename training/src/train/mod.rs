//! A training run: recipe, data, steps, checkpoints.

mod checkpoint;
mod dataset;
mod metrics;
mod optimizer;
mod plan;
mod recipe;
mod run;
mod schedule;
mod trainer;

pub use checkpoint::{Checkpoint, CheckpointError, State};
pub use dataset::{Batch, Dataset, Document, prepare};
pub use optimizer::AdamW;
pub use plan::MemoryPlan;
pub use recipe::{Recipe, RecipeError};
pub use run::{Options, run};
pub use schedule::{Schedule, ScheduleKind};
pub use trainer::{StepError, StepReport, Trainer, attach_lora};
