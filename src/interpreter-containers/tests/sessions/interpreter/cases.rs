//! The interpreter as its users see it: real sessions in the real sandbox and environment.

use pybench_interpreter::SessionSpec;
use pybench_interpreter::Tier;
use pybench_testing::sessions::*;

#[path = "cells.rs"]
mod cells;
#[path = "files.rs"]
mod files;
#[path = "network.rs"]
mod network;
#[path = "packages.rs"]
mod packages;
#[path = "state.rs"]
mod state;
#[path = "time.rs"]
mod time;

fn tier() -> Tier {
    tier_of(module_path!())
}

async fn start() -> Option<Live> {
    start_with(SessionSpec::default()).await
}

async fn start_with(spec: SessionSpec) -> Option<Live> {
    start_in(tier(), spec).await
}
