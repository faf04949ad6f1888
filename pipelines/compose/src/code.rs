//! Writes a graph as the cells of a notebook, in one of several idioms and styles.

use std::collections::BTreeSet;

use pybench_types::task::{ColumnFormat, ColumnKind, TaskFile};
use rand::RngExt;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;

use crate::argument::{Arguments, Notation, fill, python_string};
use crate::content::Medium;
use crate::extraction::{self, READERS};
use crate::graph::{Graph, GraphError, Step};
use crate::inputs;
use crate::operation::{OTHER, Operation, Role};
use crate::reading::{self, TableFile};

/// Columns of numbers that plain Python names one by one.
const MAX_PLAIN_NUMBERS: usize = 8;

/// Share of the varied solutions that check their result.
const VERIFIES: f64 = 0.2;

/// A way to work on a table in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idiom {
    Pandas,
    /// Lists of dicts and the standard library.
    Plain,
    /// SQLite in memory.
    Sqlite,
}

impl Idiom {
    /// All idioms.
    pub const ALL: [Self; 3] = [Self::Pandas, Self::Plain, Self::Sqlite];
}

/// How solutions look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variety {
    /// Each sample otherwise.
    Varied,
    /// All alike, one step per cell.
    Uniform,
    /// All alike and short: all steps in one cell, few words, and no more output than the next cell needs.
    Brief,
}

/// Which styles an expert may use.
#[derive(Clone, Copy, Debug)]
pub struct StyleChoice<'a> {
    /// Idioms, the preferred one first.
    pub idioms: &'a [Idiom],
    pub variety: Variety,
}

impl<'a> StyleChoice<'a> {
    /// Varied styles in these idioms.
    pub fn varied(idioms: &'a [Idiom]) -> Self {
        Self {
            idioms,
            variety: Variety::Varied,
        }
    }
}

/// How the code looks.
#[derive(Clone, Debug)]
pub struct Style {
    pub idiom: Idiom,
    /// Name of the table.
    pub table: &'static str,
    /// Name of the text, the document, the picture or the sound.
    pub source: &'static str,
    /// Names of the tables of the other files, in their order.
    pub others: [&'static str; 2],
    /// Steps in one cell.
    pub steps_per_cell: usize,
    /// Whether each step is preceded by a comment.
    pub comments: bool,
    /// Whether each cell shows how many rows are left.
    pub looks: bool,
    /// Which of several packages reads a document.
    pub reader: usize,
    /// Whether each operation is written in its first way.
    pub is_uniform: bool,
    /// Whether it shows no more than the next cell needs.
    pub is_brief: bool,
    /// Whether it shows rows behind an answer, and asserts that a saved file has content.
    pub verifies: bool,
}

impl Style {
    /// A style for a graph over a file, from those of the allowed idioms in which all of its steps can be written; with
    /// pandas if there are none.
    ///
    /// # Errors
    /// [`GraphError::Unknown`].
    pub fn draw(
        job: &Job<'_>,
        choice: StyleChoice<'_>,
        rng: &mut ChaCha8Rng,
    ) -> Result<Self, GraphError> {
        let mut idioms = possible_idioms(job)?;
        if choice.variety != Variety::Varied {
            let mut preferred = choice.idioms.iter().copied();
            let idiom = preferred.find(|idiom| idioms.contains(idiom));
            let idiom = idiom.unwrap_or(Idiom::Pandas);
            let is_brief = choice.variety == Variety::Brief;
            return Ok(Self::uniform(job, idiom, is_brief));
        }
        idioms.retain(|idiom| choice.idioms.contains(idiom));
        idioms.shuffle(rng);
        let others = [
            ["other", "third"],
            ["df2", "df3"],
            ["second", "third"],
            ["extra", "more"],
            ["right", "last"],
        ];
        Ok(Self {
            source: sources(job.medium())
                .choose(rng)
                .copied()
                .unwrap_or("source"),
            idiom: idioms.first().copied().unwrap_or(Idiom::Pandas),
            table: ["df", "df", "data", "table", "frame"]
                .choose(rng)
                .copied()
                .unwrap_or("df"),
            others: others.choose(rng).copied().unwrap_or(others[0]),
            steps_per_cell: *[1, 2, 3, 8, 8].choose(rng).unwrap_or(&8),
            comments: rng.random_bool(0.4),
            looks: rng.random_bool(0.6),
            reader: match job.medium() {
                Medium::Document => rng.random_range(0..READERS),
                _ => 0,
            },
            is_uniform: false,
            is_brief: false,
            verifies: rng.random_bool(VERIFIES),
        })
    }

    /// The style whose solutions look alike: the same names, no comments, one step per cell or, in brief, all in one.
    fn uniform(job: &Job<'_>, idiom: Idiom, is_brief: bool) -> Self {
        Self {
            idiom,
            table: "df",
            source: sources(job.medium())[0],
            others: ["df2", "df3"],
            steps_per_cell: if is_brief { usize::MAX } else { 1 },
            comments: false,
            looks: !is_brief,
            reader: 0,
            is_uniform: true,
            is_brief,
            verifies: false,
        }
    }
}

/// Names of a variable that holds a file of a medium.
fn sources(medium: Medium) -> [&'static str; 3] {
    match medium {
        Medium::Picture => ["image", "img", "picture"],
        Medium::Sound => ["samples", "sound", "audio"],
        Medium::Document => ["document", "doc", "parts"],
        Medium::Text | Medium::Table => ["text", "content", "document"],
    }
}

/// The idioms in which all steps can be written, each as often as its weight in a draw says.
fn possible_idioms(job: &Job<'_>) -> Result<Vec<Idiom>, GraphError> {
    let mut idioms = vec![Idiom::Pandas, Idiom::Pandas, Idiom::Pandas];
    let mut operations = Vec::new();
    for step in &job.graph.0 {
        operations.push(step.operation()?);
    }
    let all = |written: fn(&&Operation) -> bool| operations.iter().all(written);
    if plain_reads(job) && all(|o| o.python.is_some()) && !job.is_program() {
        idioms.push(Idiom::Plain);
    }
    if all(|o| o.sql.is_some()) && !job.is_program() {
        idioms.extend([Idiom::Sqlite, Idiom::Sqlite]);
    }
    Ok(idioms)
}

/// The cells of a solution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// Shows which files there are, where the task misspells the name of one.
    pub folder: Option<String>,
    /// Shows files as they are written, before they are read.
    pub raw: Option<String>,
    /// Loads the files and shows what is in them.
    pub look: String,
    /// The steps.
    pub work: Vec<String>,
    /// The first step of each cell of `work`.
    pub bounds: Vec<usize>,
    /// Reads back what was saved; none for an answer.
    pub check: Option<String>,
}

impl Solution {
    /// The place of the cell that loads the files.
    pub fn loads_at(&self) -> usize {
        self.raw_at() + usize::from(self.raw.is_some())
    }

    /// The place of the cell that shows files as they are written, if there is one.
    pub(crate) fn raw_at(&self) -> usize {
        usize::from(self.folder.is_some())
    }
}

/// What a solution needs to know of its task.
pub struct Job<'a> {
    pub graph: &'a Graph,
    /// The file of the table, then the others.
    pub files: &'a [TaskFile],
    /// Columns of the files that hold numbers.
    pub numbers: &'a [String],
    /// Path of the file that is asked for, relative to the workspace.
    pub output: Option<&'a str>,
    /// Title of a chart.
    pub title: &'a str,
    /// Decimals that the query asks for.
    pub decimals: Option<u8>,
}

impl Job<'_> {
    /// Whether a program is asked for instead of its result.
    pub(crate) fn is_program(&self) -> bool {
        self.output.is_some_and(|path| path.ends_with(".py"))
    }

    /// What the first file is.
    pub(crate) fn medium(&self) -> Medium {
        let kind = self.files.first().map(|file| file.kind);
        kind.map_or(Medium::Table, Medium::of)
    }

    /// The place of another file among the others, by its path.
    fn other(&self, path: &str) -> Option<usize> {
        let mut others = self.files.iter().skip(1);
        others.position(|file| inputs::path(file) == path)
    }
}

/// Writes the cells.
///
/// # Errors
/// [`GraphError::Unknown`].
pub fn solution(
    job: &Job<'_>,
    style: &Style,
    rng: &mut ChaCha8Rng,
) -> Result<Solution, GraphError> {
    let look = look(job, style);
    if job.is_program() {
        return Ok(Solution {
            folder: None,
            raw: None,
            look,
            work: vec![program(job, style, rng)?],
            bounds: vec![0],
            check: Some(trial(job, style)),
        });
    }
    let (work, bounds) = match style.idiom {
        Idiom::Pandas | Idiom::Plain => statements(job, style, rng)?,
        Idiom::Sqlite => (vec![queries(job, style)?], vec![0]),
    };
    let table = job.medium() == Medium::Table;
    let may = style.idiom != Idiom::Plain || !table;
    let needs_numpy = |cell: &str| may && cell.contains("np.");
    // The cell that loads the files looks alike in uniform solutions, whatever the steps need.
    let complete = |cell: String| match needs_numpy(&cell) {
        true => with_numpy(&cell),
        false => cell,
    };
    let (look, work): (String, Vec<String>) = match style.is_uniform {
        true => (look, work.into_iter().map(complete).collect()),
        false if work.iter().any(|cell| needs_numpy(cell)) => (with_numpy(&look), work),
        false => (look, work),
    };
    let work: Vec<String> = work.into_iter().map(hoist_imports).collect();
    let ending = job.graph.ending().map(Step::operation).transpose()?;
    let check = job.output.filter(|_| !style.is_brief).map(|path| {
        let check = match ending {
            Some(ending) if ending.is_model() => check_model(path),
            _ => check(path, style.idiom, job.medium()),
        };
        match style.verifies {
            true => with_asserts(&check, path),
            false => check,
        }
    });
    Ok(Solution {
        folder: None,
        raw: None,
        look,
        work,
        bounds,
        check,
    })
}

fn with_numpy(cell: &str) -> String {
    format!("import numpy as np\n{cell}")
}

/// Writes a program that does the steps on a table from standard input.
fn program(job: &Job<'_>, style: &Style, rng: &mut ChaCha8Rng) -> Result<String, GraphError> {
    let mut lines = vec![
        "import sys\nimport pandas as pd".to_owned(),
        format!("{} = pd.read_csv(sys.stdin.buffer)", style.table),
    ];
    for step in &job.graph.0 {
        let operation = step.operation()?;
        if style.comments {
            lines.push(comment(operation, step));
        }
        lines.push(statement(operation, step, job, style, rng));
    }
    let is_several = job
        .graph
        .ending()
        .map(Step::operation)
        .transpose()?
        .is_some_and(Operation::is_several_numbers);
    lines.push(prints(job.decimals, is_several));
    if lines.iter().any(|line| line.contains("np.")) {
        lines.insert(0, "import numpy as np".to_owned());
    }
    let text = hoist_imports(lines.join("\n")) + "\n";
    let path = python_string(&format!("./{}", job.output.unwrap_or_default()));
    Ok(format!(
        "program = {}\nwith open({path}, \"w\", encoding=\"utf-8\") as file:\n    file.write(program)",
        raw_string(&text)
    ))
}

/// The last line of a program: prints one number or several, rounded or whole.
fn prints(decimals: Option<u8>, is_several: bool) -> String {
    let written = |name: &str| match decimals {
        Some(decimals) => with_decimals(name, decimals),
        None => format!("str(int({name}))"),
    };
    match is_several {
        true => format!(
            "print(\", \".join({} for number in answer))",
            written("number")
        ),
        false => format!("print({})", written("answer")),
    }
}

/// The Python expression of a number as text with so many decimals.
fn with_decimals(name: &str, decimals: u8) -> String {
    format!("f\"{{{name}:.{decimals}f}}\"")
}

/// Runs the program on the table.
fn trial(job: &Job<'_>, style: &Style) -> String {
    let path = python_string(&format!("./{}", job.output.unwrap_or_default()));
    format!(
        "import subprocess\nimport sys\n\n\
         run = subprocess.run([sys.executable, {path}], input={}.to_csv(index=False), capture_output=True, text=True, encoding=\"utf-8\")\n\
         print(run.stdout or run.stderr[-500:])",
        style.table
    )
}

/// A Python literal over several lines in which a backslash stands for itself.
fn raw_string(text: &str) -> String {
    match text.contains("'''") {
        true => python_string(text),
        false => format!("r'''{text}'''"),
    }
}

/// The pandas expression that reads a file.
pub fn read_expression(file: &TaskFile) -> String {
    let path = python_string(&inputs::path(file));
    let format = file.format.clone().unwrap_or_default();
    let table = TableFile {
        path: &path,
        kind: file.kind,
        encoding: format.encoding.as_deref(),
        delimiter: format.delimiter,
        sheet: format.read.sheet.as_deref(),
        read: &format.read,
    };
    reading::expression(&table, python_string)
}

fn delimiter(file: &TaskFile) -> Option<char> {
    file.format.as_ref()?.delimiter
}

/// The encoding, where it is not what pandas assumes.
fn encoding(file: &TaskFile) -> Option<&str> {
    let encoding = file.format.as_ref()?.encoding.as_deref()?;
    (!reading::is_usual(encoding)).then_some(encoding)
}

/// Loads the files and shows what is in them: column names as code quotes them, and rows that are not wrapped.
fn look(job: &Job<'_>, style: &Style) -> String {
    if let Some(file) = job.files.first().filter(|_| job.medium() != Medium::Table) {
        return look_at(file, job.medium(), style);
    }
    if style.idiom == Idiom::Plain {
        return plain_reader(job, style);
    }
    let names = std::iter::once(style.table).chain(style.others);
    let mut cell = match style.idiom {
        Idiom::Sqlite => "import sqlite3\nimport pandas as pd\n".to_owned(),
        _ => "import pandas as pd\n".to_owned(),
    };
    for (file, t) in job.files.iter().zip(names.clone()) {
        cell += &format!("\n{t} = {}\n{}", read_expression(file), columns(t, style));
    }
    if style.idiom == Idiom::Sqlite {
        cell += "\ndb = sqlite3.connect(\":memory:\")";
        for (at, (_, t)) in job.files.iter().zip(names).enumerate() {
            cell += &format!("\n{t}.to_sql(\"{}\", db, index=False)", source(at));
        }
    }
    cell
}

/// Shows the columns of a data frame, and some of its rows.
fn columns(t: &str, style: &Style) -> String {
    match style.is_brief {
        true => format!(
            "print({t}.dtypes.astype(str).to_dict())\nprint({t}.head(1).to_string(index=False, max_colwidth=40))"
        ),
        false => format!(
            "print({t}.shape)\n\
             print({{column: str(kind) for column, kind in {t}.dtypes.items()}})\n\
             print({t}.head(2).to_string(index=False, max_colwidth=40))"
        ),
    }
}

/// Loads a file that is no table, and shows what is in it.
fn look_at(file: &TaskFile, medium: Medium, style: &Style) -> String {
    let (path, source) = (python_string(&inputs::path(file)), style.source);
    match medium {
        Medium::Document => extraction::look(file.kind, &path, source, style.reader),
        Medium::Picture => format!(
            "from PIL import Image\n\n{source} = Image.open({path})\nprint({source}.format, {source}.size, {source}.mode)"
        ),
        Medium::Sound => format!(
            "import soundfile as sf\n\n{source}, rate = sf.read({path}, dtype=\"int16\", always_2d=True)\nprint(rate, \"samples per second\", {source}.shape)"
        ),
        Medium::Text | Medium::Table => format!(
            "with open({path}, encoding=\"utf-8\") as file:\n    {source} = file.read()\n\n\
             print(len({source}), \"characters,\", {source}.count(\"\\n\"), \"line ends\")\nprint({source}[:400])"
        ),
    }
}

/// Name of the table in SQLite that holds a file.
fn source(at: usize) -> String {
    match at {
        0 => SOURCE.to_owned(),
        at => format!("{SOURCE}{}", at + 1),
    }
}

/// Name of the table in SQLite that holds the first file.
pub(crate) const SOURCE: &str = "source";

/// Whether plain Python can read the files in a few lines: text, in which columns are numbers or texts. A column that two
/// files have is of one type in both.
fn plain_reads(job: &Job<'_>) -> bool {
    if job.medium() != Medium::Table {
        return true;
    }
    let simple = |column: &ColumnFormat| {
        matches!(
            column.kind,
            ColumnKind::Integer | ColumnKind::Float | ColumnKind::Text | ColumnKind::Date
        )
    };
    let reads = |file: &TaskFile| {
        let format = file.format.as_ref();
        let plain = format.filter(|format| format.read.is_default());
        let columns = plain.and_then(|format| format.columns.as_ref());
        columns.is_some_and(|columns| columns.iter().all(simple))
    };
    job.files.iter().all(reads) && job.numbers.len() <= MAX_PLAIN_NUMBERS
}

/// Reads text tables into lists of dicts, with numbers where a column has them and `None` for missing values.
fn plain_reader(job: &Job<'_>, style: &Style) -> String {
    let names: Vec<String> = job.numbers.iter().map(|name| python_string(name)).collect();
    let mut cell = format!(
        "import csv\n\n\
         NUMBERS = [{}]\n\
         MISSING = {{\"\", \"NA\", \"N/A\", \"NaN\", \"nan\", \"NULL\", \"null\", \"None\"}}\n\n\
         def number(text):\n    return int(text) if text.lstrip(\"+-\").isdigit() else float(text)\n",
        names.join(", ")
    );
    let tables = std::iter::once(style.table).chain(style.others);
    for (file, t) in job.files.iter().zip(tables) {
        let load = plain_load(file, t);
        cell +=
            &format!("\n{load}\nprint(len({t}), \"rows\")\nfor row in {t}[:2]:\n    print(row)");
    }
    cell
}

/// Loads one file, after the definitions of [`plain_reader`].
fn plain_load(file: &TaskFile, t: &str) -> String {
    let path = python_string(&inputs::path(file));
    let encoding = python_string(encoding(file).unwrap_or("utf-8-sig"));
    let delimiter = match delimiter(file).filter(|delimiter| *delimiter != ',') {
        Some(delimiter) => format!(", delimiter={}", python_string(&delimiter.to_string())),
        None => String::new(),
    };
    format!(
        "with open({path}, newline=\"\", encoding={encoding}) as file:\n    \
         {t} = list(csv.DictReader(file{delimiter}))\n\
         for row in {t}:\n    for name, text in row.items():\n        \
         row[name] = None if text in MISSING else number(text) if name in NUMBERS else text"
    )
}

/// Loads a file with a table again into it.
pub(crate) fn load(file: &TaskFile, idiom: Idiom, t: &str) -> String {
    match idiom {
        Idiom::Plain => plain_load(file, t),
        _ => format!("{t} = {}", read_expression(file)),
    }
}

/// The steps in pandas or plain Python, some to a cell, and the first step of each cell.
fn statements(
    job: &Job<'_>,
    style: &Style,
    rng: &mut ChaCha8Rng,
) -> Result<(Vec<String>, Vec<usize>), GraphError> {
    let mut cells: Vec<Vec<String>> = vec![Vec::new()];
    let mut bounds = vec![0];
    let mut in_cell = 0;
    for (at, step) in job.graph.0.iter().enumerate() {
        let operation = step.operation()?;
        let is_ending = matches!(operation.role, Role::Answer | Role::Output);
        if in_cell >= style.steps_per_cell && !is_ending {
            cells.push(Vec::new());
            bounds.push(at);
            in_cell = 0;
        }
        in_cell += 1;
        if let Some(cell) = cells.last_mut() {
            if style.comments {
                cell.push(comment(operation, step));
            }
            cell.push(statement(operation, step, job, style, rng));
            if !is_ending && in_cell >= style.steps_per_cell && style.looks {
                cell.push(match operation.role {
                    Role::Edit => seen(operation.input, style.source),
                    _ => shown(style),
                });
            }
        }
    }
    if let (Some(cell), Some(ending)) = (cells.last_mut(), job.graph.ending()) {
        cell.push(last_lines(ending.operation()?, job, style));
    }
    let cells = cells.into_iter().map(|lines| lines.join("\n"));
    Ok((cells.collect(), bounds))
}

fn statement(
    operation: &Operation,
    step: &Step,
    job: &Job<'_>,
    style: &Style,
    rng: &mut ChaCha8Rng,
) -> String {
    let code = match style.idiom {
        Idiom::Plain => operation.python.as_deref(),
        _ if style.is_uniform => operation.pandas.first().map(String::as_str),
        _ => operation.pandas.choose(rng).map(String::as_str),
    };
    python(code.unwrap_or_default(), &step.arguments, job, style)
}

fn python(code: &str, arguments: &Arguments, job: &Job<'_>, style: &Style) -> String {
    let path = python_string(&format!("./{}", job.output.unwrap_or_default()));
    let title = python_string(job.title);
    let other = job.other(arguments.file(OTHER));
    let other = other.and_then(|at| style.others.get(at));
    let input = job.files.first().map(inputs::path).unwrap_or_default();
    let input = python_string(&input);
    let extra = [
        ("t", style.table),
        ("source", style.source),
        ("input", input.as_str()),
        ("path", path.as_str()),
        ("title", title.as_str()),
        (OTHER, other.copied().unwrap_or_default()),
    ];
    fill(code, arguments, Notation::Python, &extra)
}

/// Says what a step does, without what its wording adds in parentheses or after a colon. Names may have these signs.
fn comment(operation: &Operation, step: &Step) -> String {
    let wording = operation.en.first().map_or("", String::as_str);
    let clause = wording.split(['(', ':', ';']).next().unwrap_or_default();
    let text = fill(
        clause.trim(),
        &step.arguments,
        Notation::English,
        &[("title", "as asked")],
    );
    format!("# {}", text.replace('\n', " "))
}

fn shown(style: &Style) -> String {
    match style.idiom {
        Idiom::Plain => format!("print(len({}), \"rows\")", style.table),
        _ => format!("print({}.shape)", style.table),
    }
}

/// Shows the size of a text, a picture or a sound.
fn seen(medium: Medium, source: &str) -> String {
    match medium {
        Medium::Picture => format!("print({source}.size, {source}.mode)"),
        Medium::Sound => format!("print({source}.shape, rate)"),
        Medium::Text | Medium::Document | Medium::Table => {
            format!("print(len({source}), \"characters\")")
        }
    }
}

/// Shows the answer, or the table that was saved.
fn last_lines(operation: &Operation, job: &Job<'_>, style: &Style) -> String {
    let t = style.table;
    match (operation.role, style.idiom) {
        (Role::Answer, _) if style.verifies && operation.input == Medium::Table => format!(
            "{}\n{}",
            rows_behind(style),
            print_answer(operation, job.decimals)
        ),
        (Role::Answer, _) => print_answer(operation, job.decimals),
        _ if operation.input != Medium::Table => seen(operation.input, style.source),
        _ if operation.is_model() => "print(model)".to_owned(),
        (_, Idiom::Plain) => format!("print(len({t}), \"rows saved\")"),
        _ if style.is_brief => shown(style),
        _ if job.output.is_some_and(|path| path.ends_with(".png")) => "print(bars)".to_owned(),
        _ => format!("print({t}.to_string(max_rows=8))"),
    }
}

/// Shows some of the rows that an answer was computed from.
fn rows_behind(style: &Style) -> String {
    let t = style.table;
    match style.idiom {
        Idiom::Plain => format!("for row in {t}[:3]:\n    print(row)"),
        _ => format!("print({t}.head(3).to_string(index=False, max_colwidth=40))"),
    }
}

/// Shows an answer as it is to be stated, so that the final reply copies it.
fn print_answer(operation: &Operation, decimals: Option<u8>) -> String {
    let stated = match decimals {
        _ if operation.is_list() => "\", \".join(answer)".to_owned(),
        Some(decimals) if operation.is_several_numbers() => format!(
            "\", \".join({} for number in answer)",
            with_decimals("number", decimals)
        ),
        None if operation.is_several_numbers() => {
            "\", \".join(str(number) for number in answer)".to_owned()
        }
        Some(decimals) => with_decimals("answer", decimals),
        None => "answer".to_owned(),
    };
    format!("print(\"answer:\", {stated})")
}

/// The steps as one query.
fn queries(job: &Job<'_>, style: &Style) -> Result<String, GraphError> {
    let mut tables = Vec::new();
    let mut before = SOURCE.to_owned();
    let Some((ending, steps)) = job.graph.0.split_last() else {
        return Ok(String::new());
    };
    for (at, step) in steps.iter().enumerate() {
        let query = step.operation()?.sql.as_deref().unwrap_or_default();
        let other = job.other(step.arguments.file(OTHER));
        let other = other.map_or_else(String::new, |at| source(at + 1));
        let extra = [("t", before.as_str()), (OTHER, other.as_str())];
        let query = fill(query, &step.arguments, Notation::Sql, &extra);
        before = format!("step{}", at + 1);
        tables.push(format!("{before} AS (\n    {query}\n)"));
    }
    let ending_operation = ending.operation()?;
    let query = ending_operation.sql.as_deref().unwrap_or_default();
    let query = fill(query, &ending.arguments, Notation::Sql, &[("t", &before)]);
    let row = match ending_operation.is_several_numbers() {
        true => "fetchone()",
        false => "fetchone()[0]",
    };
    let print = print_answer(ending_operation, job.decimals);
    let with = match tables.is_empty() {
        true => String::new(),
        false => format!("WITH {}\n", tables.join(",\n")),
    };
    let counted = match tables.is_empty() || !style.looks {
        true => String::new(),
        false => format!(
            "print(db.execute({}).fetchone()[0], \"rows\")\n",
            triple(&format!("{with}SELECT COUNT(*) FROM {before}"))
        ),
    };
    Ok(format!(
        "{counted}query = {}\nanswer = db.execute(query).{row}\n{print}",
        triple(&format!("{with}{query}"))
    ))
}

/// A Python literal over several lines.
fn triple(text: &str) -> String {
    match text.contains("\"\"\"") || text.contains('\\') || text.ends_with('"') {
        true => python_string(text),
        false => format!("\"\"\"{text}\"\"\""),
    }
}

/// Reads a model back.
fn check_model(path: &str) -> String {
    let quoted = python_string(&format!("./{path}"));
    let load = match path.rsplit_once('.') {
        Some((_, "json")) => {
            return format!(
                "with open({quoted}, encoding=\"utf-8\") as file:\n    print(json.load(file))"
            );
        }
        Some((_, "joblib")) => format!("saved = joblib.load({quoted})"),
        _ => format!("with open({quoted}, \"rb\") as file:\n    saved = pickle.load(file)"),
    };
    format!("{load}\nprint(type(saved).__name__, \"with\", saved.n_features_in_, \"predictors\")")
}

fn check(path: &str, idiom: Idiom, medium: Medium) -> String {
    let quoted = python_string(&format!("./{path}"));
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let read = match extension {
        "xlsx" => "read_excel",
        "json" | "jsonl" => "read_json",
        "sqlite" => {
            return format!(
                "import sqlite3\nimport pandas as pd\nwith sqlite3.connect({quoted}) as saved:\n    \
                 print(pd.read_sql(\"SELECT * FROM result LIMIT 3\", saved))"
            );
        }
        "parquet" => "read_parquet",
        "png" | "bmp" if medium == Medium::Picture => {
            return format!(
                "saved = Image.open({quoted})\nprint(saved.format, saved.size, saved.mode)"
            );
        }
        "wav" => return format!("print(sf.info({quoted}))"),
        "txt" => {
            return format!(
                "with open({quoted}, encoding=\"utf-8\") as file:\n    print(file.read()[:400])"
            );
        }
        "png" => {
            return format!("import os\nprint(os.path.getsize({quoted}), \"bytes\")");
        }
        _ => "read_csv",
    };
    let options = match extension {
        "tsv" => ", sep=\"\\t\"",
        "jsonl" => ", lines=True",
        _ => "",
    };
    let import = if idiom == Idiom::Plain || medium != Medium::Table {
        "import pandas as pd\n"
    } else {
        ""
    };
    format!(
        "{import}saved = pd.{read}({quoted}{options})\nprint(saved.shape)\nprint(list(saved.columns))"
    )
}

/// Loads the files and does all steps in one cell.
pub(crate) fn in_one_cell(solution: &Solution) -> String {
    // The blank line after its imports stands after those of the whole cell.
    let look = solution.look.replacen("\n\n", "\n", 1);
    hoist_imports(format!("{look}\n{}", solution.work.join("\n")))
}

/// The cell that reads a file back, with assertions that follow from every task: the file has content, and a table has rows.
fn with_asserts(check: &str, path: &str) -> String {
    let quoted = python_string(&format!("./{path}"));
    let mut cell = format!("import os\n{check}\nassert os.path.getsize({quoted}) > 0");
    if check.contains("saved = pd.") {
        cell += "\nassert len(saved) > 0";
    }
    hoist_imports(cell)
}

/// Moves the imports of a cell to its start, each once.
fn hoist_imports(cell: String) -> String {
    let is_import = |line: &&str| line.starts_with("import ") || line.starts_with("from ");
    let imports: BTreeSet<&str> = cell.lines().filter(is_import).collect();
    if imports.is_empty() {
        return cell;
    }
    let others: Vec<&str> = cell.lines().filter(|line| !is_import(line)).collect();
    let imports: Vec<&str> = imports.into_iter().collect();
    format!("{}\n\n{}", imports.join("\n"), others.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argument::Argument;

    #[test]
    fn a_comment_has_whole_names() {
        let step = Step {
            operation: "filter_equal".into(),
            arguments: Arguments::new([
                ("column", Argument::Column("amount (cost)".into())),
                ("value", Argument::Text("a: b; c".into())),
            ]),
        };
        let comment = comment(step.operation().unwrap(), &step);
        assert_eq!(
            comment,
            "# keep only the rows whose \"amount (cost)\" is \"a: b; c\""
        );
    }
}
