//! Core of pybench: what several stages need.
//!
//! `task` and `trajectory` hold the data that flows; `interpreter` runs model-written Python in a
//! sandbox; `llm` talks to teachers; `agent` is the ReAct loop between the two; `grade` decides;
//! `run` keeps all of it in a folder that survives a `kill -9`.

pub mod agent;
pub mod grade;
pub mod id;
pub mod interpreter;
pub mod llm;
pub mod run;
pub mod task;
pub mod text;
pub mod trajectory;

// What unit tests share with the integration tests, which know this crate by its name.
#[cfg(test)]
extern crate self as pybench;
#[cfg(test)]
#[path = "../tests/support/task.rs"]
mod test_task;
