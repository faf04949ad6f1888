//! The program itself, its exit codes, and the code execution service.

mod cli;
mod http;
#[path = "../support/mod.rs"]
mod support;
