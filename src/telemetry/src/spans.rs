//! Traces: one per trajectory, whose id begins with that of the trajectory, so that attempts and verdicts of all processes meet
//! in one trace.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

use pybench_run::FailureKind;
use pybench_run::observer::{ObservedStep, ObservedUnit, StepKind, UnitOutcome};
use pybench_types::id::Digest;

use crate::wire::{Attribute, Message, Value, attribute};

/// Trajectories in work whose steps are kept, and steps of one.
const MAX_TRAJECTORIES: usize = 10_000;
const MAX_STEPS: usize = 1_000;

/// Kinds of spans.
const INTERNAL: u64 = 1;
const CLIENT: u64 = 3;

/// The status of a span that failed.
const ERROR: u64 = 2;

/// The steps of trajectories in work, until their attempts end.
#[derive(Debug, Default)]
pub(crate) struct OpenTraces {
    steps: HashMap<String, Vec<(StepKind, SystemTime)>>,
}

impl OpenTraces {
    pub(crate) fn add(&mut self, step: &ObservedStep<'_>) {
        let is_new = !self.steps.contains_key(step.trajectory);
        if is_new && self.steps.len() >= MAX_TRAJECTORIES {
            return;
        }
        let steps = self.steps.entry(step.trajectory.to_owned()).or_default();
        if steps.len() < MAX_STEPS {
            steps.push((step.kind, step.ended));
        }
    }

    /// The spans of an attempt that has ended; none if its unit is no trajectory.
    pub(crate) fn end(&mut self, unit: &ObservedUnit<'_>) -> Vec<Message> {
        let mut steps = self.steps.remove(unit.item).unwrap_or_default();
        // Others are of an attempt that was dropped, such as one that has lost its lease.
        steps.retain(|(_, ended)| *ended >= unit.started);
        let Some(trace) = trace_id(unit.item) else {
            return Vec::new();
        };
        let root = Span::of_unit(unit);
        let parent = root.id(unit.item);
        let mut spans = vec![root.message(&trace, parent, None)];
        let mut started = unit.started;
        for (kind, ended) in steps {
            let span = Span::of_step(unit, kind, (started, ended));
            spans.push(span.message(&trace, span.id(unit.item), Some(parent)));
            started = ended;
        }
        spans
    }
}

/// The id of the trace of an item that is a digest: its first 16 bytes.
fn trace_id(item: &str) -> Option<[u8; 16]> {
    let digest = Digest::try_from(item.to_owned()).ok()?;
    let mut id = [0; 16];
    for (byte, digits) in id.iter_mut().zip(digest.as_str().as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(id)
}

struct Span {
    name: String,
    kind: u64,
    started: SystemTime,
    ended: SystemTime,
    has_failed: bool,
    attributes: Vec<Attribute>,
}

impl Span {
    fn of_unit(unit: &ObservedUnit<'_>) -> Self {
        let mut attributes = vec![
            ("pybench.stage", Value::from(unit.stage)),
            ("pybench.item", Value::from(unit.item)),
        ];
        // What is deferred goes on later.
        let has_failed =
            matches!(unit.end, UnitOutcome::Failed(kind) if kind != FailureKind::Deferred);
        if let UnitOutcome::Done {
            accepted: Some(accepted),
            ..
        } = unit.end
        {
            attributes.push(("pybench.accepted", Value::Flag(accepted)));
        } else if has_failed {
            attributes.push(("error.type", Value::from(outcome(unit))));
        }
        Self {
            name: unit.stage.to_owned(),
            kind: INTERNAL,
            started: unit.started,
            ended: unit.ended,
            has_failed,
            attributes,
        }
    }

    /// A step, with the attributes that OpenTelemetry has for generative models.
    fn of_step(
        unit: &ObservedUnit<'_>,
        kind: StepKind,
        (started, ended): (SystemTime, SystemTime),
    ) -> Self {
        let (name, span_kind, attributes) = match kind {
            StepKind::Reply(usage) => {
                let mut attributes = vec![
                    ("gen_ai.operation.name", Value::from("chat")),
                    (
                        "gen_ai.usage.input_tokens",
                        Value::Number(usage.prompt_tokens),
                    ),
                    (
                        "gen_ai.usage.output_tokens",
                        Value::Number(usage.completion_tokens),
                    ),
                ];
                let (provider, model) = model_of(unit);
                attributes.extend(provider.map(|name| ("gen_ai.provider.name", Value::from(name))));
                attributes.extend(model.map(|name| ("gen_ai.request.model", Value::from(name))));
                let name = model.map_or("chat".to_owned(), |model| format!("chat {model}"));
                (name, CLIENT, attributes)
            }
            StepKind::Cell => {
                let attributes = vec![
                    ("gen_ai.operation.name", Value::from("execute_tool")),
                    ("gen_ai.tool.name", Value::from("python")),
                ];
                ("execute_tool python".to_owned(), INTERNAL, attributes)
            }
            StepKind::Feedback => ("feedback".to_owned(), INTERNAL, Vec::new()),
        };
        Self {
            name,
            kind: span_kind,
            started,
            ended,
            has_failed: false,
            attributes,
        }
    }

    /// An id that no other span of the trace has.
    fn id(&self, item: &str) -> [u8; 8] {
        let mut hasher = DefaultHasher::new();
        (item, &self.name, nanos(self.started), nanos(self.ended)).hash(&mut hasher);
        // Zero is no id.
        hasher.finish().max(1).to_be_bytes()
    }

    fn message(&self, trace: &[u8; 16], id: [u8; 8], parent: Option<[u8; 8]>) -> Message {
        let mut span = Message::default().bytes(1, trace).bytes(2, &id);
        if let Some(parent) = parent {
            span = span.bytes(4, &parent);
        }
        let span = span
            .text(5, &self.name)
            .number(6, self.kind)
            .fixed(7, nanos(self.started))
            .fixed(8, nanos(self.ended))
            .messages(9, self.attributes.iter().map(attribute));
        match self.has_failed {
            true => span.message(15, Message::default().number(3, ERROR)),
            false => span,
        }
    }
}

/// Provider and model of a trajectory, such as `openai` and `gpt-4o`.
fn model_of<'a>(unit: &ObservedUnit<'a>) -> (Option<&'a str>, Option<&'a str>) {
    match unit.end {
        UnitOutcome::Done {
            model: Some(name), ..
        } => match name.split_once(':') {
            Some((provider, model)) => (Some(provider), Some(model)),
            None => (None, Some(name)),
        },
        _ => (None, None),
    }
}

/// `done`, or the kind of the failure.
pub(crate) fn outcome(unit: &ObservedUnit<'_>) -> &'static str {
    use pybench_run::FailureKind::*;
    match unit.end {
        UnitOutcome::Done { .. } => "done",
        UnitOutcome::Failed(Item) => "item",
        UnitOutcome::Failed(Interpreter) => "interpreter",
        UnitOutcome::Failed(Endpoint) => "endpoint",
        UnitOutcome::Failed(Store) => "store",
        UnitOutcome::Failed(Budget) => "budget",
        UnitOutcome::Failed(Replay) => "replay",
        UnitOutcome::Failed(Internal) => "internal",
        UnitOutcome::Failed(Deferred) => "deferred",
    }
}

/// Nanoseconds since 1970.
pub(crate) fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_attempt_has_no_steps_of_the_one_before_it() {
        let item = Digest::of_bytes(b"trajectory").to_string();
        let time = |second| UNIX_EPOCH + Duration::from_secs(second);
        let mut traces = OpenTraces::default();
        // The attempt of the first step was dropped without an end.
        for second in [1, 3] {
            traces.add(&ObservedStep {
                trajectory: &item,
                kind: StepKind::Cell,
                ended: time(second),
            });
        }
        let unit = ObservedUnit {
            stage: "rollout",
            item: &item,
            started: time(2),
            ended: time(4),
            end: UnitOutcome::Failed(FailureKind::Interpreter),
        };
        assert_eq!(traces.end(&unit).len(), 2);
        assert_eq!(traces.end(&unit).len(), 1);
    }
}
