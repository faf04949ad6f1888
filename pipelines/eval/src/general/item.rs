//! A question of a set.

use super::program::Program;

/// A question and its expected answer.
#[derive(Clone, Debug)]
pub struct Item {
    /// Identifier in the file.
    pub id: String,
    /// Name of the set, or the subject.
    pub category: String,
    /// Text of the question.
    pub(super) text: String,
    /// Expected answer.
    pub expected: Expected,
}

/// Expected answer.
#[derive(Clone, Debug)]
pub enum Expected {
    /// A program that returns the same values as the reference solution.
    Program(Program),
    Number(String),
    /// A letter from A to D.
    Letter(String),
}
