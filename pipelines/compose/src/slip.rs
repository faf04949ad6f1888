//! Mistakes that the expert makes first and then repairs: the cell with the mistake really runs, and what the
//! interpreter says of it is in the row.

use pybench_types::task::{FileKind, TaskFile};
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::argument::{Argument, python_string};
use crate::code::{self, Idiom, Job, Solution, Style};
use crate::content::Medium;
use crate::inputs;
use crate::operation::Operation;
use crate::raw_look;

/// A mistake in one cell, and its repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slip {
    /// What kind of mistake it is.
    pub kind: SlipKind,
    /// The place of the cell that it is made in.
    pub at: usize,
    /// That cell with the mistake.
    pub wrong: String,
    /// The cell that replaces it.
    pub repaired: String,
    /// What the expert says when it has seen what the mistake leads to.
    pub en: String,
    pub zh: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlipKind {
    /// A file name is misspelled.
    FileName,
    /// A file is read with the defaults, though its separator, encoding, layout or numbers need others.
    ReadOptions,
    /// A column name is misspelled.
    ColumnName,
    /// A text is used as if it were a date.
    ColumnType,
    /// An SQL query names the data frame instead of the table.
    TableName,
}

/// The mistakes that a solution lends itself to, from which one is drawn; `None` if there is none.
pub(crate) fn draw(
    job: &Job<'_>,
    style: &Style,
    solution: &Solution,
    rng: &mut ChaCha8Rng,
) -> Option<Slip> {
    // A mistake in a program shows only when it runs.
    if job.medium() != Medium::Table || job.is_program() {
        return file_name(job, solution, rng);
    }
    let candidates = [
        file_name(job, solution, rng),
        read_options(job, style, solution),
        column_name(job, style, solution, rng),
        column_type(job, style, solution),
        table_name(style, solution),
    ];
    let candidates: Vec<Slip> = candidates.into_iter().flatten().collect();
    candidates.choose(rng).cloned()
}

fn file_name(job: &Job<'_>, solution: &Solution, rng: &mut ChaCha8Rng) -> Option<Slip> {
    let file = job.files.choose(rng)?;
    let (stem, extension) = file.name.rsplit_once('.')?;
    let wrong = format!("{}.{extension}", misspelled(stem, rng)?);
    let misspelled_file = TaskFile {
        name: wrong.clone(),
        ..file.clone()
    };
    let (right, other) = (literal(file), literal(&misspelled_file));
    let taken = job.files.iter().any(|file| file.name == wrong);
    (!taken && solution.look.contains(&right)).then(|| Slip {
        kind: SlipKind::FileName,
        at: solution.loads_at(),
        wrong: solution.look.replace(&right, &other),
        repaired: solution.look.clone(),
        en: format!(
            "There is no such file: I misspelled its name. It is {}.",
            file.name
        ),
        zh: format!("没有这个文件：我把名字写错了，应为 {}。", file.name),
    })
}

fn literal(file: &TaskFile) -> String {
    python_string(&inputs::path(file))
}

fn read_options(job: &Job<'_>, style: &Style, solution: &Solution) -> Option<Slip> {
    let file = job.files.first().filter(|_| style.idiom != Idiom::Plain)?;
    let path = literal(file);
    let defaults = match file.kind {
        FileKind::Csv | FileKind::Tsv => format!("pd.read_csv({path})"),
        FileKind::Xlsx => format!("pd.read_excel({path})"),
        FileKind::Jsonl => format!("pd.read_json({path})"),
        _ => return None,
    };
    let right = code::read_expression(file);
    let wrong = solution.look.replace(&right, &defaults);
    let shown = solution.raw.clone().filter(|_| raw_look::is_needed(file));
    (right != defaults).then(|| match shown {
        // Who looks at the file as it is written does not make this mistake afterwards.
        Some(raw) => Slip {
            kind: SlipKind::ReadOptions,
            at: solution.raw_at(),
            wrong,
            repaired: raw,
            en: format!(
                "With the default options {} is not read as a proper table, so I look at how it is written.",
                file.name
            ),
            zh: format!("用默认参数读不好 {}，先看看它的原始写法。", file.name),
        },
        None => Slip {
            kind: SlipKind::ReadOptions,
            at: solution.loads_at(),
            wrong,
            repaired: solution.look.clone(),
            en: format!(
                "With the default options {} is not read as a proper table, so I read it as it is written.",
                file.name
            ),
            zh: format!("用默认参数读不好 {}，改用与其格式相符的参数重新读取。", file.name),
        },
    })
}

/// A column of the first step, which the file has, misspelled wherever its cell names it.
fn column_name(
    job: &Job<'_>,
    style: &Style,
    solution: &Solution,
    rng: &mut ChaCha8Rng,
) -> Option<Slip> {
    let step = job.graph.0.first()?;
    let operation = step.operation().ok()?;
    if style.idiom == Idiom::Sqlite || ignores_missing(operation) {
        return None;
    }
    let columns = step
        .arguments
        .0
        .values()
        .filter_map(|argument| match argument {
            Argument::Column(name) => Some(name.as_str()),
            _ => None,
        });
    let cell = solution.work.first()?;
    let named: Vec<&str> = columns
        .filter(|name| cell.contains(&python_string(name)))
        .collect();
    let name = named.choose(rng)?;
    let wrong = misspelled(name, rng)?;
    // Another column may have the misspelled name.
    if solution
        .work
        .iter()
        .any(|cell| cell.contains(&python_string(&wrong)))
    {
        return None;
    }
    Some(Slip {
        kind: SlipKind::ColumnName,
        at: solution.loads_at() + 1,
        wrong: cell.replace(&python_string(name), &python_string(&wrong)),
        repaired: reloaded(job, style, cell),
        en: format!(
            "The column is called \"{name}\", not \"{wrong}\". I load the table again and repeat the step."
        ),
        zh: format!("列名是“{name}”，不是“{wrong}”。重新读取表格，再做一遍。"),
    })
}

/// Whether pandas does nothing, instead of failing, where a column of the operation does not exist.
fn ignores_missing(operation: &Operation) -> bool {
    let names = ["rename_column", "select_columns", "drop_column"];
    names.contains(&operation.name.as_str()) || operation.name.starts_with("fill_")
}

/// Days are texts in these files; the accessor `dt` needs dates.
fn column_type(job: &Job<'_>, style: &Style, solution: &Solution) -> Option<Slip> {
    const CALL: &str = "pd.to_datetime(";
    let cell = solution.work.first()?;
    let at = cell.find(CALL)?;
    let length = cell[at + CALL.len()..].find(')')?;
    let argument = &cell[at + CALL.len()..at + CALL.len() + length];
    let after = &cell[at + CALL.len() + length + 1..];
    if argument.contains(['(', ',']) || !after.starts_with(".dt") {
        return None;
    }
    Some(Slip {
        kind: SlipKind::ColumnType,
        at: solution.loads_at() + 1,
        wrong: format!("{}{argument}{after}", &cell[..at]),
        repaired: reloaded(job, style, cell),
        en: "The days are still texts, which have no date parts, so I convert them first. I load the table again and repeat the step."
            .to_owned(),
        zh: "这些日期还是文本，没有日期属性，需要先转换。重新读取表格，再做一遍。".to_owned(),
    })
}

fn table_name(style: &Style, solution: &Solution) -> Option<Slip> {
    let cell = solution
        .work
        .first()
        .filter(|_| style.idiom == Idiom::Sqlite)?;
    let from = format!("FROM {}", code::SOURCE);
    let wrong = format!("FROM {}", style.table);
    cell.contains(&from).then(|| Slip {
        kind: SlipKind::TableName,
        at: solution.loads_at() + 1,
        wrong: cell.replacen(&from, &wrong, 1),
        repaired: cell.clone(),
        en: format!(
            "The table in the database is called {}; {} is the name of the data frame.",
            code::SOURCE,
            style.table
        ),
        zh: format!(
            "数据库中的表名是 {}，{} 是数据框的变量名。",
            code::SOURCE,
            style.table
        ),
    })
}

/// A cell after the table was read again: the failed cell may have changed it.
fn reloaded(job: &Job<'_>, style: &Style, cell: &str) -> String {
    let load = job
        .files
        .first()
        .map(|file| code::load(file, style.idiom, style.table));
    format!("{}\n{cell}", load.unwrap_or_default())
}

/// A name as one misspells it: a letter left out, doubled or swapped with the next one, or in the other case.
fn misspelled(name: &str, rng: &mut ChaCha8Rng) -> Option<String> {
    let letters: Vec<char> = name.chars().collect();
    let inner: Vec<usize> = (0..letters.len())
        .filter(|at| letters[*at].is_alphabetic())
        .collect();
    let at = *inner.choose(rng)?;
    let mut wrong = letters.clone();
    match rng.random_range(0..5) {
        0 if letters.len() > 3 => drop(wrong.remove(at)),
        1 => wrong.insert(at, letters[at]),
        2 if at + 1 < letters.len() => wrong.swap(at, at + 1),
        3 => wrong = swapped_separator(&letters),
        _ => wrong = other_case(&letters),
    }
    let wrong: String = wrong.into_iter().collect();
    (wrong != name && wrong.trim() == wrong).then_some(wrong)
}

fn swapped_separator(letters: &[char]) -> Vec<char> {
    let swapped = letters.iter().map(|c| match c {
        ' ' => '_',
        '_' => ' ',
        other => *other,
    });
    swapped.collect()
}

/// The first letter in the other case.
fn other_case(letters: &[char]) -> Vec<char> {
    let mut wrong = letters.to_vec();
    if let Some(first) = wrong.first_mut() {
        let other = match first.is_uppercase() {
            true => first.to_lowercase().next(),
            false => first.to_uppercase().next(),
        };
        *first = other.unwrap_or(*first);
    }
    wrong
}
