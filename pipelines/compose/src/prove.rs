//! Proves that each step of a graph counts: without it, or with another argument in it, the result is another one.

use polars::prelude::{DataFrame, DataType};
use pybench_types::id::Digest;
use pybench_types::task::Task;
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::alike::{Alike, SMALLEST, TOLERANCE};
use crate::argument::Argument;
use crate::content::{Content, Medium};
use crate::draw::Draw;
use crate::frame::{Class, Frame};
use crate::graph::{Graph, Step};
use crate::inputs;
use crate::operation::{MODELS, Operation, PREDICTORS, Role};
use crate::operations;
use crate::plan::{Plan, PlanError};

/// As [`TOLERANCE`], for the data of a chart, which are read from a picture.
const CHART_TOLERANCE: f64 = 1e-2;

/// As [`TOLERANCE`], for an answer that is no whole number: it is stated with four digits or more.
const ANSWER_TOLERANCE: f64 = 1e-3;

/// A graph with one step changed.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// What was changed, such as `filter_above: without it`.
    pub what: String,
    pub graph: Graph,
    /// Number of the first step that differs, from 0.
    first: usize,
}

/// The graphs that differ from this one in one step.
pub fn mutations(graph: &Graph, start: &Frame, rng: &mut ChaCha8Rng) -> Vec<Mutation> {
    mutations_of(graph, &frames(graph, start), rng)
}

/// What is before each step of a graph, and after the last one; fewer if a step fails.
fn frames(graph: &Graph, start: &Frame) -> Vec<Frame> {
    let mut frames = vec![start.clone()];
    for step in &graph.0 {
        match frames.last().map(|frame| step.apply(frame)) {
            Some(Ok(next)) => frames.push(next),
            _ => break,
        }
    }
    frames
}

/// As [`mutations`], with the frames of the graph.
fn mutations_of(graph: &Graph, frames: &[Frame], rng: &mut ChaCha8Rng) -> Vec<Mutation> {
    let mut all = Vec::new();
    for (at, (step, frame)) in graph.0.iter().zip(frames).enumerate() {
        let mut changed = |what: &str, new: Option<Step>| {
            let mut steps = graph.0.clone();
            match new {
                Some(step) => steps[at] = step,
                None => drop(steps.remove(at)),
            }
            let what = format!("{}: {what}", step.operation);
            all.push(Mutation {
                what,
                graph: Graph(steps),
                first: at,
            });
        };
        let is_ending = at + 1 == graph.0.len();
        if !is_ending {
            changed("without it", None);
        }
        if let Some(other) = sibling(&step.operation) {
            let operation = other.to_owned();
            changed(
                other,
                Some(Step {
                    operation,
                    arguments: step.arguments.clone(),
                }),
            );
        }
        for (name, argument) in &step.arguments.0 {
            let others = match (name.as_str(), argument) {
                (PREDICTORS, Argument::Columns(names)) => other_predictors(names, step, frame),
                _ => altered(argument, Draw::new(frame, rng)),
            };
            for other in others {
                let mut step = step.clone();
                step.arguments.0.insert(name.clone(), other);
                changed(&format!("another {name}"), Some(step));
            }
        }
    }
    all
}

/// The graphs that differ from a task's in one step; empty if one of its files cannot be read. `bytes` are those of the
/// files, in their order.
///
/// # Errors
/// The task was not composed.
pub fn mistakes(task: &Task, bytes: &[Vec<u8>]) -> Result<Vec<Mutation>, PlanError> {
    let graph = Plan::of(task)?.graph;
    let Some(start) = inputs::start(&task.files, bytes) else {
        return Ok(Vec::new());
    };
    let mut rng = ChaCha8Rng::seed_from_u64(Digest::of_json(&(&task.id, "mistakes")).seed());
    Ok(mutations(&graph, &start, &mut rng))
}

/// The operation that is mistaken for this one most easily, with the same arguments.
fn sibling(operation: &str) -> Option<&'static str> {
    let [with_intercept, origin] = MODELS;
    for (one, other) in [(with_intercept, origin), (origin, with_intercept)] {
        if let Some(format) = operation.strip_prefix(one) {
            let found = operations::named(&format!("{other}{format}"));
            return found.map(|found| found.name.as_str());
        }
    }
    let (kind, statistic) = operation.rsplit_once('_')?;
    let other = match statistic {
        "mean" => "median",
        "sum" => "mean",
        "median" => "mean",
        "min" => "max",
        "max" => "min",
        "largest" => "smallest",
        "smallest" => "largest",
        "ascending" => "descending",
        "descending" => "ascending",
        "above" => "below",
        "below" => "above",
        "inner" => "left",
        "left" => "inner",
        "semi" => "anti",
        "anti" => "semi",
        "horizontally" => "vertically",
        "vertically" => "horizontally",
        "clockwise" => "counterclockwise",
        "counterclockwise" => "clockwise",
        "red" => "green",
        "green" => "blue",
        "blue" => "red",
        "in" => "out",
        "out" => "in",
        "right" => "left",
        "body" => "text",
        "before" => "after",
        "after" => "before",
        "head" => "tail",
        "tail" => "head",
        "either" => "both",
        "both" => "either",
        _ => return None,
    };
    let name = format!("{kind}_{other}");
    operations::named(&name).map(|found| found.name.as_str())
}

/// Other columns that are tried in place of one.
const OTHER_COLUMNS: usize = 3;

/// Other arguments of the same kind: a smaller and a larger number, some other columns, one other value.
fn altered(argument: &Argument, draw: Draw<'_>) -> Vec<Argument> {
    match argument {
        Argument::Number(number) => around(*number).map(Argument::Number).into(),
        Argument::Column(name) => {
            let class = draw.frame.class(name);
            let all = class.map_or_else(Vec::new, |class| draw.frame.of_class(class));
            let others = all.into_iter().filter(|other| other != name);
            others.take(OTHER_COLUMNS).map(Argument::Column).collect()
        }
        _ => other(argument, draw).into_iter().collect(),
    }
}

/// The predictors of a model with another column in place of each of them, and without the last one.
fn other_predictors(names: &[String], step: &Step, frame: &Frame) -> Vec<Argument> {
    let is_free = |name: &String| !names.contains(name) && name != step.arguments.name("column");
    let free = frame.of_class(Class::Number).into_iter().find(is_free);
    let replaced = free.into_iter().flat_map(|free| {
        (0..names.len()).map(move |at| {
            let mut names = names.to_vec();
            names[at].clone_from(&free);
            names
        })
    });
    let fewer = match names {
        [start @ .., _] if !start.is_empty() => Some(start.to_vec()),
        _ => None,
    };
    replaced.chain(fewer).map(Argument::Columns).collect()
}

/// A smaller and a larger number; whole ones of a whole number.
fn around(number: f64) -> [f64; 2] {
    let apart = match number.fract() == 0.0 {
        true => (number.abs() * 0.3).round().max(1.0),
        false => number.abs() * 0.3,
    };
    [number - apart, number + apart]
}

/// Another argument of the same kind.
fn other(argument: &Argument, draw: Draw<'_>) -> Option<Argument> {
    Some(match argument {
        Argument::Count(count) => Argument::Count(count + 1),
        Argument::Text(text) => Argument::Text(other_value(&draw, text)?),
        Argument::Color(color) => Argument::Color(color.iter().map(|v| v ^ 0x60).collect()),
        Argument::Texts(texts) => Argument::Texts(texts.split_last()?.1.to_vec()),
        Argument::File(path) => {
            let others = draw.frame.others.iter().map(|other| &other.path);
            let others: Vec<&String> = others.filter(|other| *other != path).collect();
            Argument::File((*others.choose(draw.rng)?).clone())
        }
        // Names of new columns and of those that stay show in a table; the check compares them.
        Argument::Column(_) | Argument::Columns(_) | Argument::New(_) | Argument::Number(_) => {
            return None;
        }
    })
}

/// Another value of the column that holds this one, or another word of the text.
fn other_value(draw: &Draw<'_>, text: &str) -> Option<String> {
    if let Content::Text(whole) = &draw.frame.content {
        let words = whole.split(|c: char| !c.is_ascii_alphabetic());
        let words: Vec<&str> = words
            .filter(|word| word.len() > 3 && *word != text)
            .collect();
        return words
            .choose(&mut rand_chacha_of(text))
            .map(|word| (*word).to_owned());
    }
    if let Content::Document(document) = &draw.frame.content {
        let titles = document
            .sections()
            .into_iter()
            .map(|section| section.heading.text.as_str());
        let titles: Vec<&str> = titles.filter(|title| *title != text).collect();
        return titles
            .choose(&mut rand_chacha_of(text))
            .map(|title| (*title).to_owned());
    }
    let names = draw.frame.data.get_column_names_owned();
    let values = names.iter().map(|name| draw.values(name));
    let mut others = values.filter(|values| values.iter().any(|value| value == text));
    let others: Vec<String> = others
        .next()?
        .into_iter()
        .filter(|value| value != text)
        .collect();
    others.choose(&mut rand_chacha_of(text)).cloned()
}

/// A choice that depends on a text only.
fn rand_chacha_of(text: &str) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(Digest::of_bytes(text.as_bytes()).seed())
}

/// The first mutation that gives the same result as the graph; `None` if all differ.
pub fn survivor(graph: &Graph, start: &Frame, rng: &mut ChaCha8Rng) -> Option<Mutation> {
    let frames = frames(graph, start);
    let expected = frames.get(graph.0.len())?;
    let ending = graph.ending().and_then(|step| step.operation().ok())?;
    let mut all = mutations_of(graph, &frames, rng).into_iter();
    all.find(|mutation| {
        // The steps before the changed one give what they gave.
        let before = &frames[mutation.first];
        let result = mutation.graph.evaluate_from(mutation.first, before);
        // A mutant that cannot run is noticed.
        result.is_ok_and(|result| is_accepted(ending, expected, &result))
    })
}

/// Whether the checks could accept a result in place of the expected one.
fn is_accepted(ending: &Operation, expected: &Frame, result: &Frame) -> bool {
    if expected.medium() != Medium::Table {
        return expected.content.resembles(&result.content);
    }
    if ending.is_chart() {
        return is_same_chart(ending, &expected.data, &result.data);
    }
    let is_answer = ending.role == Role::Answer;
    let answer = expected.data.column("answer").map(|answer| answer.dtype());
    let is_float = answer.is_ok_and(|kind| kind == &DataType::Float64);
    let tolerance = match is_answer && is_float {
        true => ANSWER_TOLERANCE,
        false => TOLERANCE,
    };
    let alike = Alike {
        ordered: is_answer || (expected.ordered && expected.height() == result.height()),
        tolerance,
        absolute: tolerance * SMALLEST,
        // The check of an answer ignores it.
        ignore_case: is_answer,
    };
    if is_answer && expected.height() == 1 {
        // A solution takes the first or the last of several that tie.
        let ends = [result.data.head(Some(1)), result.data.tail(Some(1))];
        return ends.iter().any(|end| alike.same(&expected.data, end));
    }
    alike.same(&expected.data, &result.data)
}

/// Whether two charts show the same. They show values, not the names of the columns, and the order of rows only if the
/// operation says so.
fn is_same_chart(ending: &Operation, expected: &DataFrame, result: &DataFrame) -> bool {
    let alike = Alike {
        ordered: ending.needs_order,
        tolerance: CHART_TOLERANCE,
        absolute: CHART_TOLERANCE * SMALLEST,
        ignore_case: false,
    };
    let columns = |data: &DataFrame| {
        let numbered = data.columns().iter().enumerate();
        let numbered = numbered.map(|(at, column)| column.clone().with_name(at.to_string().into()));
        DataFrame::new(data.height(), numbered.collect()).ok()
    };
    let charts = columns(expected).zip(columns(result));
    charts.is_some_and(|(expected, result)| alike.same(&expected, &result))
}

#[cfg(test)]
mod tests {
    use polars::prelude::Column;

    use super::*;
    use crate::alike::same;
    use crate::argument::Arguments;

    #[test]
    fn a_changed_graph_gives_the_same_from_its_changed_step_on() {
        let columns = vec![
            Column::new("a".into(), vec![4.0, 1.0, 3.5, 2.0, 6.0, 5.0, 7.5]),
            Column::new("b".into(), vec![1.0, 7.0, 2.0, 6.5, 3.0, 5.0, 4.0]),
        ];
        let start = Frame::new(DataFrame::new(7, columns).unwrap());
        let step = |operation: &str, name: &str, argument: Argument| Step {
            operation: operation.to_owned(),
            arguments: Arguments::new([(name, argument)]),
        };
        let column = || Argument::Column("a".to_owned());
        let graph = Graph(vec![
            step("sort_ascending", "column", column()),
            step("filter_head", "count", Argument::Count(5)),
            step("answer_mean", "column", column()),
        ]);
        let frames = frames(&graph, &start);
        assert_eq!(frames.len(), 4);
        let changed = mutations(&graph, &start, &mut ChaCha8Rng::seed_from_u64(1));
        for at in 0..3 {
            assert!(changed.iter().any(|mutation| mutation.first == at), "{at}");
        }
        for Mutation {
            what,
            graph: other,
            first,
        } in changed
        {
            assert_eq!(other.0[..first], graph.0[..first], "{what}");
            let whole = other.evaluate(&start).unwrap();
            let rest = other.evaluate_from(first, &frames[first]).unwrap();
            assert!(same(&whole.data, &rest.data, true), "{what}");
        }
    }
}
