//! Draws a graph over a table: steps that are well defined on it, and whose result proves each of them.

use pybench_types::held_out::HeldOutRule;
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::argument::{Argument, Arguments};
use crate::content::{Content, Medium};
use crate::draw::Draw;
use crate::frame::{Class, Frame};
use crate::graph::{Graph, Step};
use crate::guess::{self, GUESSED};
use crate::operation::{Operation, Role};
use crate::operations;
use crate::prove::survivor;
use crate::rounding;

/// Operations that are tried for one place of a graph.
const TRIES: usize = 16;
/// Steps before the ending, each length as often as it stands here.
const LENGTHS: [usize; 12] = [1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5, 6];
/// Roles of steps before the ending, each as often as it stands here.
const ROLES: [Role; 9] = [
    Role::Filter,
    Role::Filter,
    Role::Filter,
    Role::Filter,
    Role::Derive,
    Role::Derive,
    Role::Derive,
    Role::Shape,
    Role::Shape,
];
/// Share of the tasks on several files in which another step comes before the first that brings in a file.
const EARLIER: f64 = 0.3;
/// Share of the tasks on texts that read the text into a table.
const READS_TEXT: f64 = 0.75;
/// As `READS_TEXT`, of those on pictures and sounds.
const READS: f64 = 0.3;
/// As `READS_TEXT`, of those on documents; of the others, a text is taken from the document first.
const READS_DOCUMENT: f64 = 0.4;
/// Share of the tasks that read a text which change it before.
const EDITS_TEXT: f64 = 0.4;
/// Rows of a table that is read from a text, a picture or a sound.
const READ_ROWS: std::ops::RangeInclusive<usize> = 5..=20_000;
/// Characters of a text that is worked on.
const CHARACTERS: std::ops::RangeInclusive<usize> = 40..=200_000;
/// Pixels on each side of a picture that is worked on.
const SIDE: std::ops::RangeInclusive<usize> = 12..=2_000;
/// Samples of a sound that is worked on.
const SAMPLES: std::ops::RangeInclusive<usize> = 800..=2_000_000;
/// Share of the tasks that end with a file.
const OUTPUTS: f64 = 0.4;
/// A filter leaves between these shares of the rows.
const KEPT: std::ops::RangeInclusive<f64> = 0.02..=0.98;
/// Rows that a filter leaves at least, so that what follows has something to work on.
const MIN_ROWS: usize = 6;

/// Smallest answer other than zero, in size: smaller ones have no digits to compare.
const MIN_ANSWER: f64 = 1e-3;
/// How much the numbers of one answer differ at least, relative.
const MIN_DIFFERENCE: f64 = 5e-3;

/// A graph, with what it gives.
#[derive(Clone, Debug)]
pub struct Composed {
    pub graph: Graph,
    /// The table after the last step.
    pub result: Frame,
    /// Whether a statistic or a comparison met missing values, so that the query must say what becomes of them.
    pub missing: bool,
}

/// Draws a graph over a table and proves it; `None` if this draw has no proven graph. It has no operation and no pair of
/// operations that `avoided` holds out.
pub fn compose(start: &Frame, avoided: &HeldOutRule, rng: &mut ChaCha8Rng) -> Option<Composed> {
    compose_of(start, avoided, &|_| true, rng)
}

/// As [`compose`], of the operations that `suits` allows.
pub(crate) fn compose_of(
    start: &Frame,
    avoided: &HeldOutRule,
    suits: &dyn Fn(&Operation) -> bool,
    rng: &mut ChaCha8Rng,
) -> Option<Composed> {
    // Steps refuse infinite numbers, so a chain without the step that removes them could not be told apart.
    if !start.is_finite() {
        return None;
    }
    let length = *LENGTHS.choose(rng)?;
    let mut chain = Chain::new(start, avoided, suits);
    let roles = match start.medium() {
        Medium::Table => roles(length, start.others.len(), rng),
        medium => roles_on(medium, read_share(start), length, rng),
    };
    for role in roles {
        chain.extend(role, rng);
    }
    if !chain.frame.others.is_empty() {
        // The query would name a file that is not needed.
        return None;
    }
    let role = if rng.random_bool(OUTPUTS) {
        Role::Output
    } else {
        Role::Answer
    };
    let before = chain.frame.clone();
    if chain.steps.is_empty() || !chain.extend(role, rng) {
        return None;
    }
    let (graph, result, missing) = (Graph(chain.steps), chain.frame, chain.missing);
    let is_guessable = |ending: &Step| guess::is_guessable(ending, start, &before, &result);
    let told = clear(&graph, &result)
        && !graph.ending().is_some_and(is_guessable)
        && !rounding::decides(&graph, start, &result)
        && survivor(&graph, start, rng).is_none();
    told.then_some(Composed {
        graph,
        result,
        missing,
    })
}

/// The roles of the steps before the ending: as many as `length`, `others` of which bring in a file. Most of these come
/// first, since what follows can then use what they bring.
fn roles(length: usize, others: usize, rng: &mut ChaCha8Rng) -> Vec<Role> {
    let steps = length.max(others + usize::from(others > 0));
    let mut roles = vec![Role::Combine; others];
    let single = (others..steps).filter_map(|_| ROLES.choose(rng).copied());
    roles.extend(single);
    if others > 0 && steps > others && rng.random_bool(EARLIER) {
        roles.swap(0, others);
    }
    roles
}

/// Share of the tasks on a content that read it into a table.
fn read_share(start: &Frame) -> f64 {
    match &start.content {
        Content::Text(_) => READS_TEXT,
        Content::Document(document) if document.has_text() => READS_DOCUMENT,
        // It has tables only.
        Content::Document(_) => 1.0,
        _ => READS,
    }
}

/// The roles of the steps before the ending of a task on a text, a document, a picture or a sound: it is changed, and, in
/// this share of the tasks, read into a table, on which the others work.
fn roles_on(medium: Medium, share: f64, length: usize, rng: &mut ChaCha8Rng) -> Vec<Role> {
    let reads = rng.random_bool(share);
    match (medium, reads) {
        (Medium::Document, false) => {
            let mut roles = vec![Role::Edit];
            roles.extend(roles_on(Medium::Text, READS_TEXT, length.max(2) - 1, rng));
            return roles;
        }
        (_, false) => return vec![Role::Edit; length],
        (_, true) => {}
    }
    let edits = match medium {
        Medium::Document => 0,
        Medium::Text => usize::from(length > 2 && rng.random_bool(EDITS_TEXT)),
        _ => rng.random_range(1..=2.min(length)),
    };
    let mut roles = vec![Role::Edit; edits];
    roles.push(Role::Read);
    let rest = (roles.len()..length.max(2)).filter_map(|_| ROLES.choose(rng).copied());
    roles.extend(rest);
    roles
}

/// The steps so far, and the table after them.
struct Chain<'a> {
    avoided: &'a HeldOutRule,
    suits: &'a dyn Fn(&Operation) -> bool,
    steps: Vec<Step>,
    frame: Frame,
    /// Columns that a step made and none has used.
    unused: Vec<String>,
    missing: bool,
}

impl<'a> Chain<'a> {
    fn new(start: &Frame, avoided: &'a HeldOutRule, suits: &'a dyn Fn(&Operation) -> bool) -> Self {
        Self {
            avoided,
            suits,
            steps: Vec::new(),
            frame: start.clone(),
            unused: Vec::new(),
            missing: false,
        }
    }

    /// Adds a step of a role. Returns whether one was found.
    fn extend(&mut self, role: Role, rng: &mut ChaCha8Rng) -> bool {
        let medium = self.frame.medium();
        let candidates = operations::all().filter(|o| o.role == role && o.input == medium);
        let candidates: Vec<&Operation> = candidates.filter(|o| (self.suits)(o)).collect();
        for _ in 0..TRIES {
            let Some(operation) = candidates.choose(rng) else {
                return false;
            };
            let repeated = self
                .steps
                .iter()
                .any(|step| step.operation == operation.name);
            // Each use of these is of another file.
            let repeated = repeated && role != Role::Combine;
            if repeated
                || self.avoids(&operation.name)
                || (operation.needs_order && !self.frame.ordered)
            {
                continue;
            }
            let draw = Draw::new(&self.frame, rng).preferring(&self.unused);
            if let Some(arguments) = operation.arguments(draw)
                && self.take(operation, arguments)
            {
                return true;
            }
        }
        false
    }

    /// Whether an operation, or its pair with the last one, is held out.
    fn avoids(&self, operation: &str) -> bool {
        let last = self.steps.last();
        let pair = last.is_some_and(|step| self.avoided.pair(&step.operation, operation));
        pair || self.avoided.operation(operation)
    }

    /// Adds a step if its result is good to go on with.
    fn take(&mut self, operation: &Operation, arguments: Arguments) -> bool {
        let step = Step {
            operation: operation.name.clone(),
            arguments,
        };
        let Ok(next) = step.apply(&self.frame) else {
            return false;
        };
        if !useful(operation.role, &self.frame, &next) {
            return false;
        }
        self.missing |= self.meets_missing(operation, &step.arguments);
        self.unused.retain(|name| !uses(&step.arguments, name));
        for argument in step.arguments.0.values() {
            if let Argument::New(name) = argument {
                self.unused.push(name.clone());
            }
        }
        if operation.role == Role::Combine {
            let joined = next.data.get_column_names_owned().into_iter();
            let joined = joined.map(|name| name.to_string());
            let is_new =
                |name: &String| self.frame.class(name).is_none() && !self.unused.contains(name);
            let joined: Vec<String> = joined.filter(is_new).collect();
            self.unused.extend(joined);
        }
        self.frame = next;
        self.steps.push(step);
        true
    }

    fn meets_missing(&self, operation: &Operation, arguments: &Arguments) -> bool {
        let about = [
            "filter_present",
            "filter_missing",
            "answer_missing",
            "derive_is_missing",
        ];
        let column = |argument: &Argument| match argument {
            Argument::Column(name) => {
                let column = self.frame.data.column(name);
                self.frame.class(name) == Some(Class::Number)
                    && column.is_ok_and(|column| column.null_count() > 0)
            }
            _ => false,
        };
        !about.contains(&operation.name.as_str())
            && !operation.name.starts_with("fill_")
            && arguments.0.values().any(column)
    }
}

fn uses(arguments: &Arguments, column: &str) -> bool {
    arguments.0.values().any(|argument| match argument {
        Argument::Column(name) => name == column,
        Argument::Columns(names) => names.iter().any(|name| name == column),
        _ => false,
    })
}

/// Whether a step changed the table in a way that is worth asking for.
fn useful(role: Role, before: &Frame, after: &Frame) -> bool {
    match role {
        Role::Filter => {
            let kept = after.height() as f64 / before.height().max(1) as f64;
            after.height() >= MIN_ROWS && KEPT.contains(&kept)
        }
        Role::Combine => after.height() >= MIN_ROWS,
        Role::Read => READ_ROWS.contains(&after.height()),
        Role::Edit => after.content != before.content && workable(&after.content),
        Role::Output if after.medium() != Medium::Table => true,
        Role::Shape => after.height() >= 2,
        Role::Derive | Role::Answer | Role::Output => after.height() >= 1,
    }
}

/// Whether a content is neither too small nor too large.
fn workable(content: &Content) -> bool {
    match content {
        Content::Table | Content::Document(_) => true,
        Content::Text(text) => CHARACTERS.contains(&text.chars().count()),
        Content::Picture(picture) => {
            SIDE.contains(&picture.width) && SIDE.contains(&picture.height)
        }
        Content::Sound(sound) => SAMPLES.contains(&sound.samples.len()),
    }
}

/// Whether a result is one that a person can state: one number or several different ones, one name without a tie, or a short
/// list.
fn clear(graph: &Graph, result: &Frame) -> bool {
    let Some(ending) = graph.ending() else {
        return false;
    };
    let Ok(operation) = ending.operation() else {
        return false;
    };
    if operation.role != Role::Answer {
        return true;
    }
    let Ok(column) = result.data.column("answer") else {
        return false;
    };
    if operation.is_several_numbers() {
        return column.null_count() == 0 && are_told_apart(&Draw::numbers_of(column));
    }
    if column.null_count() > 0 || (column.len() != 1 && !operation.is_list()) {
        return false;
    }
    match result.class("answer") {
        // Round numbers are guessed too easily.
        Some(Class::Number) => Draw::numbers_of(column)
            .iter()
            .all(|x| x.abs() > MIN_ANSWER && !GUESSED.contains(x)),
        Some(Class::Text | Class::Date) => true,
        Some(Class::Boolean) | None => false,
    }
}

/// Whether the numbers of an answer, ascending, differ, have digits to compare, and are not all guessed.
fn are_told_apart(numbers: &[f64]) -> bool {
    let size = |x: f64| x.abs().max(MIN_ANSWER);
    let mut pairs = numbers.iter().zip(numbers.iter().skip(1));
    numbers.len() > 1
        && pairs.all(|(a, b)| b - a > MIN_DIFFERENCE * size(*a).max(size(*b)))
        && numbers.iter().all(|x| *x == 0.0 || x.abs() > MIN_ANSWER)
        && numbers.iter().any(|x| !GUESSED.contains(x))
}
