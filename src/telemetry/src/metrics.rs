//! Metrics: what a process has done since it began, and the state of the stages that it works on.

use std::collections::BTreeMap;
use std::time::SystemTime;

use pybench_run::observer::{ObservedStage, ObservedStep, ObservedUnit, StepKind};

use crate::spans::{nanos, outcome};
use crate::wire::{Attribute, Message, Value, attribute};

/// Cumulative sums.
const CUMULATIVE: u64 = 2;

/// Counters and gauges.
#[derive(Debug)]
pub(crate) struct Metrics {
    since: SystemTime,
    /// By stage and outcome.
    units: BTreeMap<(String, &'static str), u64>,
    input_tokens: u64,
    output_tokens: u64,
    /// By stage: units without a result, and units in work.
    stages: BTreeMap<String, (u64, u64)>,
    micro_usd: u64,
}

impl Metrics {
    pub(crate) fn new(since: SystemTime) -> Self {
        Self {
            since,
            units: BTreeMap::new(),
            input_tokens: 0,
            output_tokens: 0,
            stages: BTreeMap::new(),
            micro_usd: 0,
        }
    }

    pub(crate) fn step(&mut self, step: &ObservedStep<'_>) {
        if let StepKind::Reply(usage) = step.kind {
            self.input_tokens = self.input_tokens.saturating_add(usage.prompt_tokens);
            self.output_tokens = self.output_tokens.saturating_add(usage.completion_tokens);
        }
    }

    pub(crate) fn unit(&mut self, unit: &ObservedUnit<'_>) {
        let key = (unit.stage.to_owned(), outcome(unit));
        *self.units.entry(key).or_default() += 1;
    }

    pub(crate) fn stage(&mut self, stage: &ObservedStage<'_>) {
        let state = (stage.pending, stage.in_work);
        self.stages.insert(stage.stage.to_owned(), state);
        self.micro_usd = stage.micro_usd;
    }

    /// The messages `Metric` at this moment.
    pub(crate) fn messages(&self, now: SystemTime) -> Vec<Message> {
        let count =
            |value: u64, attributes: &[Attribute]| self.point(now, attributes).fixed(6, value);
        let units = self.units.iter().map(|((stage, outcome), units)| {
            let stage = ("pybench.stage", Value::from(stage.as_str()));
            count(*units, &[stage, ("pybench.outcome", Value::from(*outcome))])
        });
        let tokens = [("input", self.input_tokens), ("output", self.output_tokens)];
        let tokens =
            tokens.map(|(kind, tokens)| count(tokens, &[("gen_ai.token.type", Value::from(kind))]));
        let of_stage = |state: fn(&(u64, u64)) -> u64| {
            let points = self.stages.iter().map(|(stage, both)| {
                let stage = ("pybench.stage", Value::from(stage.as_str()));
                count(state(both), &[stage])
            });
            points.collect::<Vec<_>>()
        };
        let cost = self.point(now, &[]).double(4, self.micro_usd as f64 / 1e6);
        vec![
            sum("pybench.units", "{unit}", units.collect()),
            sum("pybench.tokens", "{token}", Vec::from(tokens)),
            gauge("pybench.queue.depth", "{unit}", of_stage(|state| state.0)),
            gauge("pybench.units.in_work", "{unit}", of_stage(|state| state.1)),
            gauge("pybench.run.cost", "USD", vec![cost]),
        ]
    }

    /// A point without its value.
    fn point(&self, now: SystemTime, attributes: &[Attribute]) -> Message {
        Message::default()
            .fixed(2, nanos(self.since))
            .fixed(3, nanos(now))
            .messages(7, attributes.iter().map(attribute))
    }
}

fn metric(name: &str, unit: &str) -> Message {
    Message::default().text(1, name).text(3, unit)
}

fn sum(name: &str, unit: &str, points: Vec<Message>) -> Message {
    let sum = Message::default().messages(1, points);
    let sum = sum.number(2, CUMULATIVE).number(3, 1);
    metric(name, unit).message(7, sum)
}

fn gauge(name: &str, unit: &str, points: Vec<Message>) -> Message {
    metric(name, unit).message(5, Message::default().messages(1, points))
}
