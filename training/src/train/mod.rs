//! A training run: recipe, data, steps, checkpoints.

mod checkpoint;
mod dataset;
mod estimate;
mod metrics;
mod mixture;
mod optimizer;
mod plan;
mod recipe;
mod run;
mod schedule;
mod stages;
mod trainer;

pub use checkpoint::{Checkpoint, CheckpointError, State};
pub use dataset::{Batch, Dataset, Document, prepare};
pub use mixture::Share;
pub use optimizer::AdamW;
pub use plan::MemoryPlan;
pub use recipe::{Recipe, RecipeError};
pub use run::{Options, run};
pub use schedule::{Schedule, ScheduleKind};
pub use stages::Stage;
pub use trainer::{StepError, StepReport, Trainer, attach_lora};
