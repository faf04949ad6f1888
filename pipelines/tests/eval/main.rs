//! Evaluations end to end: real sandbox, real tests, a small benchmark of our own making; and the true one
//! where it is (`PYBENCH_DATA` or `../shared/pybench`, upstream's tests by `PYBENCH_UPSTREAM`).

mod flags;
mod gguf;
mod hostile;
mod place;
#[path = "../../../tests/support/program.rs"]
mod program;
mod served;
mod strict;
#[path = "../support/mod.rs"]
mod support;
mod upstream;
