//! A training run: recipe, data, steps, checkpoints.

mod checkpoint;
mod dataset;
mod estimate;
mod flops;
mod launch;
mod lora;
mod metrics;
mod mixture;
mod moments;
mod optimizer;
mod plan;
mod recipe;
mod report;
mod run;
mod schedule;
mod shard;
mod shelf;
mod stages;
mod team;
mod tensorboard;
mod trainer;
mod watch;

pub use checkpoint::{Checkpoint, CheckpointError, State};
pub use dataset::{Batch, Dataset, Document, prepare};
pub use lora::{UnknownTarget, attach_lora};
pub use mixture::Share;
pub use optimizer::{AdamW, Piece, StatePart};
pub use plan::MemoryPlan;
pub use recipe::{Recipe, RecipeError};
pub use run::{Options, run};
pub use schedule::{Schedule, ScheduleKind};
pub use shard::{Parameters, Shards};
pub use stages::Stage;
pub use team::Team;
pub use trainer::{StepError, StepReport, Trainer};
pub use watch::Watch;
