//! The filters that need nothing but the trajectory, one function each. None stops at the first
//! failure: a verdict carries every reason.

use pybench::agent::{Format, Parsed};
use pybench::task::Task;
use pybench::trajectory::{End, Finding, Outcome, Role, Trajectory};

use super::consistent;

/// Findings named in one detail.
const NAMED: usize = 5;

/// One trajectory to look at.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// What was asked.
    pub task: &'a Task,
    /// The try.
    pub trajectory: &'a Trajectory,
    /// The message format it was made in.
    pub format: &'a dyn Format,
}

/// `format`: every reply follows the message format, and its cell is the one that was run.
pub(super) fn format(case: &Case<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, turn) in case.trajectory.turns.iter().enumerate() {
        let asked = case.format.parse(&turn.reply).asked();
        let why = match asked.iter().find_map(|cell| cell.as_ref().err()) {
            Some(why) => why,
            None if asked.iter().flatten().eq(turn.cells()) => continue,
            None => "the cells that were run are not the reply's",
        };
        findings.push(failed("format", format!("reply {}", index + 1), why));
    }
    or_passed(findings, "format", "replies")
}

/// `finished`: the model said that it is finished.
pub(super) fn finished(case: &Case<'_>) -> Vec<Finding> {
    let why = match case.trajectory.end {
        End::Finished => return vec![passed("finished", "end")],
        End::NoAnswer => "the last reply has neither code nor the words that end a run",
        End::MaxTurns => "the limit of turns was reached",
    };
    vec![failed("finished", "end", why)]
}

/// `consistent`: numbers and paths that the answer states were seen; see [`consistent`](mod@consistent).
/// Without an answer there is nothing to look at, and `finished` has said so.
pub(super) fn consistent(case: &Case<'_>) -> Vec<Finding> {
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
    let mut named = unsupported[..unsupported.len().min(NAMED)].join(", ");
    if unsupported.len() > NAMED {
        named += &format!(" and {} more", unsupported.len() - NAMED);
    }
    let why = format!("stated but seen nowhere: {named}");
    vec![failed("consistent", "answer", &why)]
}

/// What a path in an answer may name: inputs, files asked for, files written.
fn paths(case: &Case<'_>) -> Vec<String> {
    let inputs = case.task.files.iter().map(|f| format!("data/{}", f.name));
    let written = case.trajectory.outputs.iter().map(|o| o.path.clone());
    let asked = case.task.outputs.iter().cloned();
    inputs.chain(asked).chain(written).collect()
}

/// A finding that holds.
pub(super) fn passed(filter: &str, subject: impl Into<String>) -> Finding {
    Finding {
        filter: filter.to_owned(),
        subject: subject.into(),
        outcome: Outcome::Pass,
        detail: String::new(),
    }
}

/// A finding that does not hold.
pub(super) fn failed(filter: &str, subject: impl Into<String>, why: &str) -> Finding {
    Finding {
        filter: filter.to_owned(),
        subject: subject.into(),
        outcome: Outcome::Fail,
        detail: why.to_owned(),
    }
}

fn or_passed(findings: Vec<Finding>, filter: &str, subject: &str) -> Vec<Finding> {
    if findings.is_empty() {
        vec![passed(filter, subject)]
    } else {
        findings
    }
}
