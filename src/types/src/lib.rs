//! Data types of the pipeline: source files, tasks, check specifications, observations, trajectories and
//! verdicts. No I/O, but for the clock and the free memory of the machine.

pub mod address;
pub mod check;
pub mod clock;
pub mod difficulty;
pub mod exit_code;
pub mod figure;
pub mod held_out;
pub mod human_edit;
pub mod id;
pub mod json;
pub mod license;
pub mod memory;
pub mod observation;
pub mod range;
pub mod read_options;
pub mod task;
pub mod text;
pub mod trajectory;
