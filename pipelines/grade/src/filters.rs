//! Filters that need only the trajectory, one function each. They report every failure, not only the first.

use pybench_agent::{Format, Parsed};
use pybench_types::task::Task;
use pybench_types::trajectory::{End, Finding, Outcome, Role, Trajectory};

use super::consistent;

/// Maximum statements listed in one finding.
const MAX_LISTED: usize = 5;

/// A trajectory with its task and message format.
#[derive(Clone, Copy)]
pub struct GradeCase<'a> {
    pub task: &'a Task,
    pub trajectory: &'a Trajectory,
    /// The message format of the trajectory.
    pub format: &'a dyn Format,
}

/// `format`: every reply follows the message format, and the cells of the reply are those that were run. Turns that a
/// correction keeps as context are not held to it.
pub(super) fn format(case: &GradeCase<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let context = case.trajectory.corrects.as_ref();
    let context = context.map_or(0, |corrects| corrects.turns as usize);
    for (index, turn) in case.trajectory.turns.iter().enumerate().skip(context) {
        let cells = case.format.parse(&turn.reply).cells();
        let why = match cells.iter().find_map(|cell| cell.as_ref().err()) {
            Some(why) => why,
            None if cells.iter().flatten().eq(turn.cells()) => continue,
            None => "the cells that were run are not the reply's",
        };
        findings.push(failed("format", format!("reply {}", index + 1), why));
    }
    or_passed(findings, "format", "replies")
}

/// `finished`: the model ended the trajectory with an answer.
pub(super) fn finished(case: &GradeCase<'_>) -> Vec<Finding> {
    let why = match case.trajectory.end {
        End::Finished => return vec![passed("finished", "end")],
        End::NoAnswer => "the last reply has neither code nor the words that end a run",
        End::MaxTurns => "the limit of turns was reached",
        End::Repetition => "the model repeated itself",
        End::NoCode => "the last reply began neither code nor an answer within its limit",
    };
    vec![failed("finished", "end", why)]
}

/// `consistent`: the numbers and paths in the answer occurred earlier; see [`consistent`](mod@consistent).
/// Without an answer there is no finding, because `finished` already reports that.
pub(super) fn consistent(case: &GradeCase<'_>) -> Vec<Finding> {
    let Some(last) = case.trajectory.turns.last() else {
        return Vec::new();
    };
    let (Parsed::Answer(answer) | Parsed::Unfinished(answer)) = case.format.parse(&last.reply)
    else {
        return Vec::new();
    };
    let messages = case.trajectory.messages.iter();
    let seen: Vec<&str> = messages
        .filter(|message| matches!(message.role, Role::User | Role::Tool))
        .map(|message| message.content.as_str())
        .collect();
    let unsupported = consistent::unsupported(answer, &seen, &paths(case));
    if unsupported.is_empty() {
        return vec![passed("consistent", "answer")];
    }
    let mut named = unsupported[..unsupported.len().min(MAX_LISTED)].join(", ");
    if unsupported.len() > MAX_LISTED {
        named += &format!(" and {} more", unsupported.len() - MAX_LISTED);
    }
    let why = format!("stated but seen nowhere: {named}");
    vec![failed("consistent", "answer", &why)]
}

/// Paths that an answer may mention: inputs, requested outputs and written files.
fn paths(case: &GradeCase<'_>) -> Vec<String> {
    let inputs = case.task.files.iter().map(|f| format!("data/{}", f.name));
    let written = case.trajectory.outputs.iter().map(|o| o.path.clone());
    let requested = case.task.outputs.iter().cloned();
    inputs.chain(requested).chain(written).collect()
}

/// A finding with outcome `Pass`.
pub(super) fn passed(filter: &str, subject: impl Into<String>) -> Finding {
    Finding {
        filter: filter.to_owned(),
        subject: subject.into(),
        outcome: Outcome::Pass,
        detail: String::new(),
        mismatch: None,
    }
}

/// A finding with outcome `Fail`.
pub(super) fn failed(filter: &str, subject: impl Into<String>, why: &str) -> Finding {
    Finding {
        filter: filter.to_owned(),
        subject: subject.into(),
        outcome: Outcome::Fail,
        detail: why.to_owned(),
        mismatch: None,
    }
}

fn or_passed(findings: Vec<Finding>, filter: &str, subject: &str) -> Vec<Finding> {
    if findings.is_empty() {
        vec![passed(filter, subject)]
    } else {
        findings
    }
}
