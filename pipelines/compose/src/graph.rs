//! A task as a chain of operations on a table, and what it evaluates to.

use polars::prelude::PolarsError;
use serde::{Deserialize, Serialize};

use crate::argument::Arguments;
use crate::frame::Frame;
use crate::operation::{Meaning, OTHER, Operation, Order, Role};
use crate::operations;

/// One operation with its arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The name of an [`Operation`].
    pub operation: String,
    #[serde(default)]
    pub arguments: Arguments,
}

/// The steps of a task in order. The last one is an answer or an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Graph(pub Vec<Step>);

/// Why a graph has no result.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    #[error("there is no operation `{0}`")]
    Unknown(String),
    #[error("`{operation}` does not fit the table: {reason}")]
    Unfit {
        operation: String,
        reason: PolarsError,
    },
    #[error("the task has no other file `{0}`, or a step has used it")]
    NoFile(String),
    #[error("`{0}` gives a number that is not finite")]
    NotFinite(String),
    #[error("`{0}` works on something else than what the steps before it give")]
    WrongMedium(String),
    #[error("`{0}` cannot be done with this text, picture or sound")]
    Impossible(String),
}

impl Step {
    /// # Errors
    /// [`GraphError::Unknown`].
    pub fn operation(&self) -> Result<&'static Operation, GraphError> {
        operations::named(&self.operation)
            .ok_or_else(|| GraphError::Unknown(self.operation.clone()))
    }

    /// The table after this step.
    ///
    /// # Errors
    /// [`GraphError`].
    pub fn apply(&self, frame: &Frame) -> Result<Frame, GraphError> {
        let operation = self.operation()?;
        let unfit = |reason| GraphError::Unfit {
            operation: self.operation.clone(),
            reason,
        };
        if operation.input != frame.medium() {
            return Err(GraphError::WrongMedium(self.operation.clone()));
        }
        let impossible = || GraphError::Impossible(self.operation.clone());
        let path = self.arguments.file(OTHER);
        let data = match &operation.meaning {
            Meaning::OneTable(meaning) => meaning(&self.arguments, frame.lazy()),
            Meaning::TwoTables(meaning) => {
                let other = frame.other(path);
                let other = other.ok_or_else(|| GraphError::NoFile(path.to_owned()))?;
                meaning(&self.arguments, frame.lazy(), other.lazy())
            }
            Meaning::Edit(meaning) => {
                let content = meaning(&self.arguments, &frame.content);
                return content.map(Frame::of_content).ok_or_else(impossible);
            }
            Meaning::Read(meaning) => {
                let data = meaning(&self.arguments, &frame.content).ok_or_else(impossible)?;
                return Ok(Frame {
                    ordered: operation.order != Order::Loses,
                    ..Frame::new(data)
                });
            }
        };
        let data = data.collect().map_err(unfit)?;
        let ordered = match operation.order {
            Order::Keeps => frame.ordered,
            Order::Loses => false,
            Order::Sets => true,
        };
        let result = frame.result(data, ordered).map_err(unfit)?;
        let mut result = result.ok_or_else(|| GraphError::NotFinite(self.operation.clone()))?;
        result.others.retain(|other| other.path != path);
        Ok(result)
    }
}

impl Graph {
    /// The table after all steps.
    ///
    /// # Errors
    /// [`GraphError`] of the first step that fails.
    pub fn evaluate(&self, frame: &Frame) -> Result<Frame, GraphError> {
        self.evaluate_from(0, frame)
    }

    /// The table after all steps, of which the first ones have led to `frame`.
    ///
    /// # Errors
    /// [`GraphError`] of the first step that fails.
    pub(crate) fn evaluate_from(&self, first: usize, frame: &Frame) -> Result<Frame, GraphError> {
        let mut frame = frame.clone();
        for step in self.0.iter().skip(first) {
            frame = step.apply(&frame)?;
        }
        Ok(frame)
    }

    /// The operations by name, joined by `>`: what the task asks for, without its columns and values.
    pub fn skeleton(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|step| step.operation.as_str()).collect();
        names.join(">")
    }

    /// Pairs of operations that follow each other.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        pairs.map(|(a, b)| (a.operation.as_str(), b.operation.as_str()))
    }

    /// The last step.
    pub fn ending(&self) -> Option<&Step> {
        self.0.last()
    }

    /// The keyword of the dictionary under which the task is counted: that of its last step that is no filter and no
    /// ending, or else of its first step. Of a task on another content than a table, steps on tables do not count.
    ///
    /// # Errors
    /// [`GraphError::Unknown`].
    pub fn keyword(&self) -> Result<&'static str, GraphError> {
        let mut keyword = None;
        let mut medium = None;
        for step in &self.0 {
            let operation = step.operation()?;
            if *medium.get_or_insert(operation.input) != operation.input {
                break;
            }
            match operation.role {
                Role::Derive | Role::Shape | Role::Combine | Role::Edit | Role::Read => {
                    keyword = Some(operation.keyword());
                }
                _ => keyword = keyword.or(Some(operation.keyword())),
            }
        }
        Ok(keyword.unwrap_or("filter"))
    }
}
