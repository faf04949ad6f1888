//! Wrong ways to read a messy table, as people do who do not look: what an audit tries beside wrong steps.

use pybench_types::read_options::ReadOptions;
use pybench_types::task::{FileFormat, FileKind, Task, TaskFile};

use crate::argument::python_string;
use crate::code::read_expression;
use crate::reading::second_form;

/// A file of a task that is read wrongly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misreading {
    /// What is wrong, such as `decimal comma read as thousands`.
    pub what: &'static str,
    /// The expression that reads the file as it is written.
    pub right: String,
    pub wrong: String,
}

/// Changes the options of a reader; `false` if the file gives no occasion for the mistake.
type Change = fn(&mut FileFormat) -> bool;

const CHANGES: [(&str, Change); 8] = [
    ("decimal comma read as thousands", |format| {
        let is_used = uses_comma(&format.read);
        format.read.decimal_comma.clear();
        format.read.thousands = Some(',');
        for notation in format.read.numbers.values_mut() {
            if std::mem::take(&mut notation.decimal_comma) {
                notation.ignored = ",".to_owned();
            }
        }
        is_used
    }),
    ("decimal commas ignored", |format| {
        let is_used = uses_comma(&format.read);
        format.read.decimal_comma.clear();
        format.read.thousands = None;
        is_used
    }),
    ("units not removed", |format| {
        let is_used = !format.read.numbers.is_empty();
        format.read.numbers.clear();
        is_used
    }),
    ("days left as they are written", |format| {
        let is_used = !(format.read.dates.is_empty() && format.read.mixed_dates.is_empty());
        format.read.dates.clear();
        format.read.mixed_dates.clear();
        is_used
    }),
    ("merged cells not filled", |format| {
        let is_used = !format.read.filled.is_empty();
        format.read.filled.clear();
        is_used
    }),
    ("title taken as header", |format| {
        std::mem::take(&mut format.read.skip_rows) > 0
    }),
    ("wrong encoding", |format| {
        let Some(encoding) = &mut format.encoding else {
            return false;
        };
        let wrong = match encoding.as_str() {
            "ascii" => return false,
            "utf-8" | "utf8" | "utf-16" | "utf-16-le" => "latin-1",
            _ => "mac_roman",
        };
        wrong.clone_into(encoding);
        true
    }),
    ("separator not given", |format| {
        format.delimiter.take().is_some_and(|sign| sign != ',')
    }),
];

fn uses_comma(read: &ReadOptions) -> bool {
    let mut notations = read.numbers.values();
    !read.decimal_comma.is_empty() || notations.any(|notation| notation.decimal_comma)
}

/// The wrong ways to read the files of a task that are not read with pandas' defaults.
pub fn misreadings(task: &Task) -> Vec<Misreading> {
    task.files.iter().flat_map(of_file).collect()
}

fn of_file(file: &TaskFile) -> Vec<Misreading> {
    let right = read_expression(file);
    let tables = [FileKind::Csv, FileKind::Tsv, FileKind::Xlsx];
    let Some(format) = file.format.as_ref().filter(|_| tables.contains(&file.kind)) else {
        return Vec::new();
    };
    let changed = CHANGES.iter().filter_map(|(what, change)| {
        let mut format = format.clone();
        let wrong = TaskFile {
            format: change(&mut format).then_some(Some(format))?,
            ..file.clone()
        };
        Some((*what, read_expression(&wrong)))
    });
    let rewritten = [
        ("day and month swapped", swapped_days(&format.read, &right)),
        (
            "days in a second form lost",
            lost_days(&format.read, &right),
        ),
        (
            "second header row taken as data",
            lower_header(&format.read, &right),
        ),
    ];
    let rewritten = rewritten
        .into_iter()
        .filter_map(|(what, wrong)| Some((what, wrong?)));
    let all = changed.chain(rewritten);
    all.filter(|(_, wrong)| *wrong != right)
        .map(|(what, wrong)| Misreading {
            what,
            right: right.clone(),
            wrong,
        })
        .collect()
}

/// Days as a parser reads them that takes the month first wherever it can.
fn swapped_days(read: &ReadOptions, right: &str) -> Option<String> {
    let mut wrong = right.to_owned();
    for format in read.dates.values() {
        let stated = format!(", format='{format}')");
        let guessed = ".map(__import__('dateutil.parser').parser.parse, na_action='ignore'))";
        wrong = wrong.replace(&stated, guessed);
    }
    (wrong != right).then_some(wrong)
}

/// Days that are not in ISO 8601 become missing values.
fn lost_days(read: &ReadOptions, right: &str) -> Option<String> {
    let mut wrong = right.to_owned();
    for name in &read.mixed_dates {
        wrong = wrong.replace(&second_form(&python_string(name)), "");
    }
    (wrong != right).then_some(wrong)
}

/// The names of the columns are right, but the table begins with the lower row of the header.
fn lower_header(read: &ReadOptions, right: &str) -> Option<String> {
    let rows = |count: u32| format!("skiprows={count}");
    let skipped = read.skip_rows + 2;
    (!read.names.is_empty()).then(|| right.replace(&rows(skipped), &rows(skipped - 1)))
}
