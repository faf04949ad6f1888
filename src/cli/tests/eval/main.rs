//! End-to-end evaluations with the real sandbox, on a small benchmark made for these tests and, if available, on
//! PyBench itself (`PYBENCH_DATA`, what `eval fetch` downloaded, or `../shared/pybench`; `PYBENCH_UPSTREAM` provides upstream's
//! tests).

mod fixture;
mod flags;
mod gguf;
mod hostile;
mod served;
mod strict;
mod suites;
#[path = "../support/mod.rs"]
mod support;
mod teach_tables;
mod upstream;
