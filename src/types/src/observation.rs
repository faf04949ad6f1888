//! Observations: the results of executed cells.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::figure::Figure;

/// The result of one cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// Outputs in order of appearance; adjacent pieces of one stream are joined.
    pub outputs: Vec<Output>,
    /// The exception, if the cell raised one.
    pub error: Option<CellError>,
    /// Why the cell did not run to completion.
    #[serde(default)]
    pub stopped: Option<Stopped>,
}

/// One output of a cell, modeled on Jupyter's output types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "output", rename_all = "snake_case", deny_unknown_fields)]
pub enum Output {
    /// Text written to a stream.
    Stream {
        /// `stdout` or `stderr`.
        name: String,
        /// The text; truncated text has a notice in the middle.
        text: String,
    },
    /// The value of the last expression: MIME type → content (base64 for binary types).
    Result {
        /// MIME bundle.
        data: BTreeMap<String, String>,
    },
    /// A displayed object: MIME type → content (base64 for binary types).
    Display {
        /// MIME bundle.
        data: BTreeMap<String, String>,
    },
    /// The data of a figure, recorded by the sandboxed process when it saved or displayed the figure. Untrusted.
    Chart {
        /// The file it was saved to, relative to the workspace; `None` if it was displayed.
        path: Option<String>,
        /// The recorded data; see `charts.py`.
        #[schemars(with = "serde_json::Value")]
        figure: Figure,
    },
}

/// An exception raised by a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellError {
    /// Class name.
    pub ename: String,
    /// Message.
    pub evalue: String,
    /// Traceback as IPython prints it, without colors.
    pub traceback: String,
}

/// Why a cell did not run to completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// It exceeded its time limit and was interrupted; the session keeps its variables.
    Interrupted,
    /// It exceeded its time limit and ignored the interrupt; the session was restarted without variables.
    Restarted,
    /// The process died (out of memory, `os._exit`, crash); the session was restarted without variables.
    Died,
}
