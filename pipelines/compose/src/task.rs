//! Makes tasks: chooses a file, composes a graph over it, and writes query, checks and reference.

use std::collections::HashSet;

use pybench_types::check::{CheckSpec, Metric, Orientation, PlotKind, RowOrder};
use pybench_types::held_out::HeldOutRule;
use pybench_types::id::Digest;
use pybench_types::read_options::ReadOptions;
use pybench_types::task::{FileKind, Language, Profile, SourceFile, Task, TaskFile, TaskOrigin};
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::argument::python_string;
use crate::compose::{Composed, compose_of};
use crate::content::{Content, Medium};
use crate::frame::{Class, Frame, expected_records};
use crate::graph::{GraphError, Step};
use crate::inputs::{self, Inputs, Joined};
use crate::note::note;
use crate::operation::{Operation, Order, Role};
use crate::plan::Plan;
use crate::program;
use crate::rename::Naming;
use crate::wording::{self, Form, Request};
use crate::{media, messy, model, picture};

/// Rows of a table that tasks are composed over.
const ROWS: std::ops::RangeInclusive<u64> = 20..=20_000;
/// Largest text of the expected table in a reference, in bytes.
const MAX_REFERENCE: usize = 40_000;
/// Largest expected picture or sound, in bytes.
const MAX_HELD_OUT: usize = 4 << 20;
/// Tolerance for the numbers of a table, relative.
const TABLE_TOLERANCE: f64 = 1e-6;
/// Graphs that are drawn over a file before it is given up for a task.
const DRAWS: usize = 12;
/// Share of the tasks on one table, not a messy one, that ask for a program if one can be asked for.
const PROGRAMS: f64 = 0.08;

/// Names of files with a model, without their extension.
const MODEL_STEMS: [&str; 5] = ["model", "regression", "fit", "linear_model", "predictor"];

/// What determines a task, besides its file.
#[derive(Clone, Copy, Debug)]
pub struct TaskSeed<'a> {
    pub seed: u64,
    pub language: Language,
    /// What the file is worked on as, one of its media ([`media_of`]).
    pub medium: Medium,
    /// Whether names and values are invented.
    pub renamed: bool,
    /// Share of the invented names in other languages and scripts; absent: a twelfth of columns and files, a fifth of
    /// categories.
    pub foreign_names: Option<f64>,
    /// Whether the file of a table is written as people hand tables on.
    pub messy: bool,
    /// Operations, pairs of operations and wordings that the task does not have.
    pub avoided: &'a HeldOutRule,
}

impl TaskSeed<'_> {
    fn naming(&self) -> Naming {
        Naming {
            foreign: self.foreign_names,
        }
    }
}

/// A task and the new files that it reads.
#[derive(Clone, Debug)]
pub struct Made {
    pub task: Task,
    /// The files that are not the crawled one, to be put into the content store.
    pub files: Vec<Vec<u8>>,
}

/// What tasks over a file can work on; empty if none can be composed. A text is also given as a document.
pub fn media_of(file: &SourceFile) -> Vec<Medium> {
    use FileKind::*;
    let Profile::Table(table) = &file.profile else {
        return media::of(file);
    };
    let readable = matches!(file.kind, Csv | Tsv | Xlsx | Json | Jsonl | Parquet);
    let fits = readable
        && table.tables.len() <= 1
        && ROWS.contains(&table.rows)
        && (2..=40).contains(&table.columns.len());
    fits.then_some(Medium::Table).into_iter().collect()
}

/// Makes a task over a file; `None` if no draw gives a proven one. `subcategory` looks up a keyword.
///
/// # Errors
/// [`GraphError::Unknown`], which a test excludes.
pub fn make(
    file: &SourceFile,
    bytes: &[u8],
    seed: TaskSeed<'_>,
    subcategory: impl Fn(&str) -> String,
) -> Result<Option<Made>, GraphError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed.seed);
    let inputs = match seed.medium {
        Medium::Table => inputs::draw(
            file,
            bytes,
            (seed.renamed, seed.messy),
            seed.naming(),
            &mut rng,
        ),
        Medium::Document => {
            media::draw_document(file, bytes, (seed.renamed, seed.naming()), &mut rng)
        }
        Medium::Text | Medium::Picture | Medium::Sound => {
            media::draw(file, bytes, (seed.renamed, seed.naming()), &mut rng)
        }
    };
    match inputs {
        Some(inputs) => make_over(inputs, seed, subcategory, &mut rng),
        None => Ok(None),
    }
}

/// As [`make`], of a task that joins other crawled tables to the file, a table.
///
/// # Errors
/// [`GraphError::Unknown`], which a test excludes.
pub fn make_joined(
    file: &SourceFile,
    bytes: &[u8],
    joined: &[Joined<'_>],
    seed: TaskSeed<'_>,
    subcategory: impl Fn(&str) -> String,
) -> Result<Option<Made>, GraphError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed.seed);
    match inputs::draw_joined((file, bytes), joined, seed.renamed, seed.naming(), &mut rng) {
        Some(inputs) => make_over(inputs, seed, subcategory, &mut rng),
        None => Ok(None),
    }
}

/// Makes a task over files; `None` if no draw gives a proven one.
fn make_over(
    inputs: Inputs,
    seed: TaskSeed<'_>,
    subcategory: impl Fn(&str) -> String,
    rng: &mut ChaCha8Rng,
) -> Result<Option<Made>, GraphError> {
    let is_program = asks_for_program(&inputs, seed.seed);
    let suits = |operation: &Operation| !is_program || program::suits(operation);
    let drawn = (0..DRAWS).find_map(|_| compose_of(&inputs.frame, seed.avoided, &suits, rng));
    let Some(composed) = drawn else {
        return Ok(None);
    };
    let made = write(&composed, inputs, seed, subcategory, rng)?;
    // All wordings of an operation may be avoided.
    Ok(made.filter(|made| seed.avoided.of_task(&made.task).is_none()))
}

/// Writes the task; `None` if its result is too large to be checked.
fn write(
    composed: &Composed,
    inputs: Inputs,
    seed: TaskSeed<'_>,
    subcategory: impl Fn(&str) -> String,
    rng: &mut ChaCha8Rng,
) -> Result<Option<Made>, GraphError> {
    let (graph, language) = (&composed.graph, seed.language);
    let keyword = graph.keyword()?;
    let written = match graph.ending().map(|step| step.operation()).transpose()? {
        Some(ending) if ending.role == Role::Answer => {
            let answer = answer(composed, rng);
            Some(match asks_for_program(&inputs, seed.seed) {
                true => as_program(answer, composed, &inputs.frame, seed.seed),
                false => answer,
            })
        }
        Some(ending) if ending.is_model() => model(composed, ending, &inputs.frame, rng),
        Some(ending) => output(composed, ending, rng),
        None => None,
    };
    let Some(Written {
        ending: result,
        mut plan,
        check,
        expected,
    }) = written
    else {
        return Ok(None);
    };
    plan.numbers = numbers(&inputs.frame);
    let Some((reference, held_out)) = reference(expected, inputs.files.first()) else {
        return Ok(None);
    };
    let notes = notes(&inputs, composed, &result, language);
    let path = inputs.files.first().map(inputs::path).unwrap_or_default();
    let request = Request {
        graph,
        path: &path,
        result: &result,
        missing: composed.missing,
        language,
        avoided: seed.avoided,
    };
    let query = wording::query(&request, rng)?;
    let mut task = Task {
        id: Digest::of_bytes(b""),
        category: inputs.frame.medium().category(),
        subcategory: subcategory(keyword),
        keyword: keyword.to_owned(),
        language,
        query: query.text + &notes,
        files: inputs.files.clone(),
        held_out: held_out.iter().map(|(file, _)| file.clone()).collect(),
        outputs: match &result {
            wording::Ending::File { path, .. } | wording::Ending::Program { path, .. } => {
                vec![path.clone()]
            }
            wording::Ending::Line { .. } => Vec::new(),
        },
        reference,
        checks: vec![check],
        origin: TaskOrigin::Composed {
            skeleton: graph.skeleton(),
            plan: serde_json::to_value(plan).unwrap_or_default(),
            wordings: query.wordings,
            renamed: seed.renamed,
        },
    };
    task.id = task.compute_id();
    let mut files = inputs.written;
    files.extend(held_out.map(|(_, bytes)| bytes));
    let fits = task.query.chars().count() <= pybench_types::task::MAX_QUERY;
    Ok(fits.then_some(Made { task, files }))
}

/// What the query says of the files: how they are to be read, unless one has to find out.
fn notes(
    inputs: &Inputs,
    composed: &Composed,
    result: &wording::Ending,
    language: Language,
) -> String {
    let formats = inputs
        .files
        .iter()
        .filter_map(|file| Some((file, &file.format.as_ref()?.read)));
    if inputs.messy {
        let reads: Vec<&ReadOptions> = formats.map(|(_, read)| read).collect();
        let is_table = composed.result.medium() == Medium::Table
            && matches!(result, wording::Ending::File { path, .. } if !is_binary(path));
        let has_dates = !composed.result.of_class(Class::Date).is_empty();
        let note = messy::note(&reads, (is_table, has_dates), language);
        return note.map_or_else(String::new, |note| format!("\n{note}"));
    }
    let notes = formats.filter_map(|(file, read)| note(read, &inputs::path(file), language));
    notes.map(|note| format!("\n{note}")).collect()
}

/// Whether a file of this name is a picture or a pickle, in which numbers have no notation.
fn is_binary(path: &str) -> bool {
    [".png", ".pkl", ".joblib"]
        .iter()
        .any(|extension| path.ends_with(extension))
}

/// A file that only the checker sees, and its bytes.
type HeldOutFile = (TaskFile, Vec<u8>);

/// The code of the reference, and the file that only the checker sees; `None` if it is too large.
fn reference(
    expected: Expected,
    crawled: Option<&TaskFile>,
) -> Option<(String, Option<HeldOutFile>)> {
    let (kind, reader, bytes) = match expected {
        Expected::Json(text) => {
            let code = format!(
                "import json\n\nexpected = json.loads({})\n",
                python_string(&text)
            );
            return (text.len() <= MAX_REFERENCE).then_some((code, None));
        }
        Expected::Picture(bytes) => (FileKind::Png, Some("image"), bytes),
        Expected::Sound(bytes) => (FileKind::Wav, Some("audio"), bytes),
        Expected::Predictions(bytes) => (FileKind::Csv, None, bytes),
    };
    let mut file = crawled?.clone();
    file.name = format!("expected.{}", kind.name());
    let first = std::mem::replace(&mut file.id, Digest::of_bytes(&bytes));
    file.derived_from.get_or_insert(first);
    file.kind = kind;
    file.format = match kind {
        FileKind::Csv => pybench_profile::profile(kind, &bytes).format(),
        _ => None,
    };
    let code = match reader {
        Some(reader) => format!(
            "import ref\n\nexpected = ref.{reader}(\"./held_out/{}\")\n",
            file.name
        ),
        None => format!("least = {}\n", model::MIN_R2),
    };
    (bytes.len() <= MAX_HELD_OUT).then_some((code, Some((file, bytes))))
}

/// The columns of all files that hold numbers, each once.
fn numbers(frame: &Frame) -> Vec<String> {
    let mut numbers = frame.of_class(Class::Number);
    for other in &frame.others {
        numbers.extend(other.frame.of_class(Class::Number));
    }
    let mut seen = HashSet::new();
    numbers.retain(|name| seen.insert(name.clone()));
    numbers
}

/// How a task ends, and what is expected.
struct Written {
    ending: wording::Ending,
    plan: Plan,
    check: CheckSpec,
    expected: Expected,
}

/// What is expected.
enum Expected {
    /// A value as JSON text.
    Json(String),
    /// A png file.
    Picture(Vec<u8>),
    /// A wav file.
    Sound(Vec<u8>),
    /// A csv file with rows, and what a model predicts for them.
    Predictions(Vec<u8>),
}

/// An answer in the last line.
fn answer(composed: &Composed, rng: &mut ChaCha8Rng) -> Written {
    let markers: [&str; 5] = ["Answer", "Result", "Final answer", "Outcome", "Response"];
    let marker = markers
        .choose(rng)
        .map_or("Answer", |marker| *marker)
        .to_owned();
    let values: Vec<serde_json::Value> = expected_records(&composed.result.data)
        .into_iter()
        .filter_map(|record| record.into_values().next())
        .collect();
    let ending = composed
        .graph
        .ending()
        .and_then(|step| step.operation().ok());
    let is_list = ending.is_some_and(Operation::is_list);
    let is_several = ending.is_some_and(Operation::is_several_numbers);
    let number = composed.result.class("answer") == Some(Class::Number);
    let whole = values.iter().all(serde_json::Value::is_i64);
    let form = match (number, is_list) {
        (true, _) if is_several => Form::Numbers {
            count: values.len(),
            decimals: (!whole).then(|| finest(&values)),
        },
        (true, _) if whole => Form::Integer,
        (true, _) => Form::Decimals(decimals(values.first().and_then(|value| value.as_f64()))),
        (false, true) => Form::List,
        (false, false) => Form::Name,
    };
    let decimals = match form {
        Form::Decimals(decimals) => Some(decimals),
        Form::Numbers { decimals, .. } => decimals,
        _ => None,
    };
    let check = match form {
        Form::Integer | Form::Decimals(_) => CheckSpec::Number {
            marker: marker.clone(),
            expected: "expected".into(),
            rtol: 1e-9,
            atol: 0.0,
            digits: None,
            decimals,
        },
        Form::Numbers { .. } | Form::Name | Form::List => CheckSpec::Values {
            marker: marker.clone(),
            expected: "expected".into(),
            ordered: true,
            rtol: 1e-9,
            digits: None,
            decimals,
        },
    };
    let expected = match form {
        Form::Integer | Form::Decimals(_) => values
            .first()
            .map_or("null".into(), |value| value.to_string()),
        Form::Numbers { .. } | Form::Name | Form::List => {
            serde_json::Value::Array(values).to_string()
        }
    };
    let plan = Plan {
        graph: composed.graph.clone(),
        marker: Some(marker.clone()),
        decimals,
        numbers: Vec::new(),
        title: String::new(),
    };
    Written {
        ending: wording::Ending::Line { marker, form },
        plan,
        check,
        expected: Expected::Json(expected),
    }
}

/// Whether a task is to ask for a program. The choice does not touch those of other tasks.
fn asks_for_program(inputs: &Inputs, seed: u64) -> bool {
    let is_plain = inputs.files.len() == 1 && !inputs.messy;
    let drawn = Digest::of_json(&(seed, "asks for a program")).fraction();
    is_plain && inputs.frame.medium() == Medium::Table && drawn < PROGRAMS
}

/// The same steps as a task that asks for a program, if they suit other tables.
fn as_program(answer: Written, composed: &Composed, start: &Frame, seed: u64) -> Written {
    let wording::Ending::Line { form, .. } = answer.ending else {
        return answer;
    };
    let mut rng = ChaCha8Rng::seed_from_u64(Digest::of_json(&(seed, "program")).seed());
    let drawn = program::draw(&composed.graph, start, answer.plan.decimals, &mut rng);
    let Some(program) = drawn else {
        return answer;
    };
    Written {
        check: CheckSpec::Program {
            path: program.path.clone(),
            expected: "expected".into(),
            contains: false,
            standard_library: false,
        },
        ending: wording::Ending::Program {
            path: program.path,
            form,
        },
        expected: Expected::Json(program.runs),
        plan: Plan {
            marker: None,
            ..answer.plan
        },
    }
}

/// Decimals that show at least four digits of a number.
fn decimals(number: Option<f64>) -> u8 {
    let size = number.map_or(0.0, |x| x.abs().max(1e-6).log10().floor());
    (3.0 - size).clamp(2.0, 8.0) as u8
}

/// Decimals that show at least four digits of each number but zero.
fn finest(numbers: &[serde_json::Value]) -> u8 {
    let numbers = numbers.iter().filter_map(serde_json::Value::as_f64);
    let each = numbers.filter(|x| *x != 0.0).map(|x| decimals(Some(x)));
    each.max().unwrap_or(2)
}

/// A table, a chart or another content in a file; `None` if it cannot be written.
fn output(composed: &Composed, ending: &Operation, rng: &mut ChaCha8Rng) -> Option<Written> {
    let stems = [
        "result",
        "summary",
        "table",
        "prepared",
        "filtered",
        "report",
        "final",
        "selection",
    ];
    let stem = stems.choose(rng).copied().unwrap_or("result");
    let extension = match ending.is_chart() {
        true => "png",
        false => ending.name.rsplit('_').next().unwrap_or_default(),
    };
    let path = format!("output/{stem}.{extension}");
    let titles = [
        "Overview",
        "Comparison",
        "Summary by group",
        "Results",
        "At a glance",
    ];
    let title = titles.choose(rng).copied().unwrap_or_default().to_owned();
    let rows = expected_records(&composed.result.data);
    let (check, expected) = match &composed.result.content {
        Content::Table if ending.is_chart() => plot(&ending.name, &path, &title, &rows),
        Content::Table if extension == "txt" => text(&path, &lines(rows)),
        Content::Table => table(composed, &path, rows),
        Content::Text(whole) => text(&path, whole),
        // No operation ends a task with one.
        Content::Document(_) => return None,
        Content::Picture(picture) => (
            image(&path, extension),
            Expected::Picture(picture.encoded(FileKind::Png)?),
        ),
        Content::Sound(sound) => (audio(&path), Expected::Sound(sound.wav())),
    };
    let plan = Plan {
        graph: composed.graph.clone(),
        marker: None,
        decimals: None,
        numbers: Vec::new(),
        title: match ending.is_chart() {
            true => title.clone(),
            false => String::new(),
        },
    };
    Some(Written {
        ending: wording::Ending::File { path, title },
        plan,
        check,
        expected,
    })
}

/// A fitted model in a file; `None` if the check could take another one for it.
fn model(
    composed: &Composed,
    ending: &Operation,
    start: &Frame,
    rng: &mut ChaCha8Rng,
) -> Option<Written> {
    let stem = MODEL_STEMS.choose(rng).copied().unwrap_or("model");
    let extension = ending.name.rsplit('_').next().unwrap_or_default();
    let path = format!("output/{stem}.{extension}");
    let (check, expected) = match extension {
        "json" => {
            let check = CheckSpec::Json {
                path: path.clone(),
                expected: "expected".into(),
                rtol: TABLE_TOLERANCE,
                atol: 0.0,
            };
            let terms = model::terms(expected_records(&composed.result.data));
            (check, Expected::Json(terms.to_string()))
        }
        _ => {
            let held_out = model::held_out(&composed.graph, start, rng)?;
            let check = CheckSpec::Model {
                path: path.clone(),
                held_out: "expected.csv".into(),
                target: composed.graph.ending()?.arguments.name("column").to_owned(),
                metric: Metric::R2,
                least: "least".into(),
                any_use: extension == "joblib",
            };
            (check, Expected::Predictions(held_out))
        }
    };
    let plan = Plan {
        graph: composed.graph.clone(),
        marker: None,
        decimals: None,
        numbers: Vec::new(),
        title: String::new(),
    };
    let ending = wording::Ending::File {
        path,
        title: String::new(),
    };
    Some(Written {
        ending,
        plan,
        check,
        expected,
    })
}

/// The check of a table and its expected rows.
fn table(composed: &Composed, path: &str, rows: Vec<Row>) -> (CheckSpec, Expected) {
    let check = CheckSpec::Table {
        path: path.to_owned(),
        sheet: None,
        expected: "expected".into(),
        rows: match told_order(composed) {
            true => RowOrder::Exact,
            false => RowOrder::Any,
        },
        rtol: TABLE_TOLERANCE,
        atol: 1e-9,
        extra_columns: false,
        column_order: false,
        only_sheets: Vec::new(),
        primary_key: None,
    };
    let rows = rows.into_iter().map(serde_json::Value::Object).collect();
    let expected = serde_json::Value::Array(rows).to_string();
    (check, Expected::Json(expected))
}

/// The values of a table with one column, one per line.
fn lines(rows: Vec<Row>) -> String {
    let values = rows.into_iter().flat_map(serde_json::Map::into_values);
    let lines: Vec<String> = values
        .filter_map(|value| Some(value.as_str()?.to_owned()))
        .collect();
    lines.join("\n")
}

fn text(path: &str, expected: &str) -> (CheckSpec, Expected) {
    let check = CheckSpec::Text {
        path: path.to_owned(),
        expected: "expected".into(),
    };
    (
        check,
        Expected::Json(serde_json::Value::from(expected).to_string()),
    )
}

fn image(path: &str, extension: &str) -> CheckSpec {
    CheckSpec::Image {
        path: path.to_owned(),
        expected: "expected".into(),
        mean_difference: picture::TOLERANCE,
        mode: None,
        quality: None,
        format: Some(extension.to_uppercase()),
    }
}

fn audio(path: &str) -> CheckSpec {
    CheckSpec::Audio {
        path: path.to_owned(),
        expected: "expected".into(),
        duration: 0.002,
        level: 0.05,
        correlation: 0.9999,
        shift: 0.001,
        subtype: Some("PCM_16".into()),
    }
}

/// Whether the query says how the rows of the result are ordered.
fn told_order(composed: &Composed) -> bool {
    let sorts = |step: &Step| {
        step.operation()
            .is_ok_and(|operation| operation.order == Order::Sets)
    };
    composed.result.ordered && composed.graph.0.iter().any(sorts)
}

type Row = serde_json::Map<String, serde_json::Value>;

/// The check of a chart and its expected data, in JSON. The first column of the rows are labels or places, the second one
/// heights.
fn plot(chart: &str, path: &str, title: &str, rows: &[Row]) -> (CheckSpec, Expected) {
    let part = |at: usize| -> Vec<&serde_json::Value> {
        rows.iter().filter_map(|row| row.values().nth(at)).collect()
    };
    let series = serde_json::json!([{"name": null, "x": part(0), "y": part(1)}]);
    let (kind, orientation, expected) = match chart {
        "bar_chart_horizontal" => (PlotKind::Bar, Some(Orientation::Horizontal), series),
        "pie_chart" => {
            let shares = serde_json::json!({"labels": part(0), "values": part(1)});
            (PlotKind::Pie, None, shares)
        }
        "line_chart" => {
            let places: Vec<usize> = (1..=rows.len()).collect();
            let line = serde_json::json!([{"name": null, "x": places, "y": part(0)}]);
            (PlotKind::Line, None, line)
        }
        "scatter_plot" => (PlotKind::Scatter, None, series),
        _ => (PlotKind::Bar, Some(Orientation::Vertical), series),
    };
    let check = CheckSpec::Plot {
        path: path.to_owned(),
        kind,
        expected: "expected".into(),
        rtol: 1e-3,
        title: Some(title.to_owned()),
        x_label: None,
        y_label: None,
        ordered: kind == PlotKind::Bar,
        orientation,
    };
    (check, Expected::Json(expected.to_string()))
}
