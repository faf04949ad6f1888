//! Ends a process that works on a shared run within a stated time.

use std::time::Duration;

use pybench_run::cli::{BeginArgs, InProfile, RunArgs, WritesDataset};
use pybench_run::{Interrupt, RunContext, RunError, RunFolder, Urgency};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// Arguments of `pybench synthesize`.
#[derive(Clone, Debug, clap::Args)]
pub struct SynthesizeArgs {
    #[command(flatten)]
    pub run: InProfile<WritesDataset<BeginArgs>>,
    /// With --profile: seconds in which turns may end after SIGTERM; then they are dropped, and their calls stay charged
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub drain_seconds: u32,
}

impl From<SynthesizeArgs> for RunArgs {
    fn from(args: SynthesizeArgs) -> Self {
        args.run.into()
    }
}

/// As [`crate::run`]. If other processes can join the run, SIGTERM drains this one, as it drains them.
///
/// # Errors
/// As [`crate::run`]; SIGTERM cannot be handled.
pub async fn run(context: &RunContext, seconds: u32) -> Result<(), RunError> {
    let mut draining = JoinSet::new();
    if context.folder.journal().is_shared() {
        let handler = signal(SignalKind::terminate());
        let mut terminate = handler.map_err(RunError::io("cannot handle SIGTERM"))?;
        let (folder, interrupt) = (context.folder.clone(), context.interrupt.clone());
        draining.spawn(async move {
            terminate.recv().await;
            drain(&folder, &interrupt, seconds).await;
        });
    }
    crate::run(context).await
}

/// Lets trajectories end after their present turns, and drops what has not ended after `seconds`. Nothing new starts, since the
/// interrupt is raised already.
pub(crate) async fn drain(folder: &RunFolder, interrupt: &Interrupt, seconds: u32) {
    folder.start_draining();
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    if interrupt.urgency() < Urgency::Now {
        tracing::warn!("turns that have not ended within {seconds} seconds are dropped");
        interrupt.raise();
    }
}
