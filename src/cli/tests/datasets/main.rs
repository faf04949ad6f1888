//! Datasets by the whole program: shown, verified, decontaminated, published.

mod decontaminate;
mod publish;
mod show;
#[path = "../support/mod.rs"]
mod support;
mod verify;
mod verify_recorded;
