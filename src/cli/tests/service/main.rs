//! The program itself, its exit codes, `pybench chat`, and the code execution service.

mod chat;
mod cli;
mod http;
#[path = "../support/mod.rs"]
mod support;
