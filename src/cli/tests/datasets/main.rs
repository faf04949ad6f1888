//! Datasets by the whole program: shown, verified, converted, decontaminated, published.

mod decontaminate;
mod publish;
mod show;
mod studio;
#[path = "../support/mod.rs"]
mod support;
mod tools;
mod train_elsewhere;
mod verify;
mod verify_recorded;
