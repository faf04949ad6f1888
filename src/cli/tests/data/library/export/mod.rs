//! Tasks handed to others' trainers, through the real programs: folders for Harbor, a package for
//! verifiers, scores over HTTP.

mod containers;
mod expert_model;
mod fixture;
mod harbor;
mod rewards;
mod trl;
mod verifiers;
