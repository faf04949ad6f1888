//! Sessions on every tier: what cells can do, what they cannot, and what attacks gain.

#![allow(clippy::duplicate_mod)] // the same cases, once per tier

mod attack;
mod containers;
mod gvisor;
mod interpreter;
mod parity;
