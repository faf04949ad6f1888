//! A stage that shows which process has done a unit.

use std::time::Duration;

use async_trait::async_trait;
use pybench_run::{Failure, Stage};
use serde_json::{Value, json};

/// The stage `s`, whose outputs are the name of the process that made them.
pub struct NamedStage {
    /// The process.
    pub process: &'static str,
    /// How long a unit takes, so that several processes get some.
    pub unit_time: Duration,
}

impl NamedStage {
    /// The stage of this process, with units of some milliseconds.
    pub fn new(process: &'static str, milliseconds: u64) -> Self {
        Self {
            process,
            unit_time: Duration::from_millis(milliseconds),
        }
    }
}

#[async_trait]
impl Stage for NamedStage {
    fn name(&self) -> &'static str {
        "s"
    }

    fn version(&self) -> String {
        "environment".to_owned()
    }

    async fn run(&self, _item: &str) -> Result<Value, Failure> {
        tokio::time::sleep(self.unit_time).await;
        Ok(json!(self.process))
    }
}
