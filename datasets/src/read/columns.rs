//! Converts Arrow columns to rows. Every value is checked; errors name the column and the row.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, ListArray, RecordBatch, StringViewArray,
    StructArray, UInt32Array, UInt64Array,
};
use arrow_buffer::ArrowNativeType;
use arrow_schema::{DataType, Fields, Schema};
use pybench_types::id::Digest;
use pybench_types::task::{Category, Language};
use pybench_types::trajectory::{Message, Role, Sampling};
use serde::de::DeserializeOwned;

use crate::row::{
    Attempts, CheckOutcome, Counted, Row, RowFile, RowInterpreter, RowOutput, RowTokens,
    category_name, file_kind, language_code,
};
use crate::row_hashes::RowHashes;

type Read<T> = Result<T, String>;

const NULL: &str = "a null, but a value is required";
const OTHER_LIST: &str = "a list with another element type";
/// Columns that older shards do not have.
const LATER_COLUMNS: [&str; 6] = [
    "operations",
    "pairs",
    "wordings",
    "difficulty",
    "renamed",
    "unseen",
];

/// Check that every column exists and has the expected type. Additional columns are ignored.
pub(super) fn check(actual: &Schema) -> Read<()> {
    check_fields(crate::schema().fields(), actual.fields(), "")
}

fn check_fields(expected: &Fields, actual: &Fields, prefix: &str) -> Read<()> {
    for field in expected {
        let name = format!("{prefix}{}", field.name());
        // Python's `datasets` writes an all-null column with the type null; older shards lack all but the first.
        let optional = [
            "tools",
            "files.derived_from",
            "messages.weight",
            "student",
            "provenance",
            "task_license",
            "task_source",
        ];
        if optional.contains(&name.as_str()) {
            continue;
        }
        let found = actual.find(field.name());
        if found.is_none() && LATER_COLUMNS.contains(&name.as_str()) {
            continue;
        }
        let Some((_, other)) = found else {
            let there: Vec<_> = actual.iter().map(|field| field.name().as_str()).collect();
            let there = there.join(", ");
            return Err(format!("column {name} is missing; the file has {there}"));
        };
        check_type(field.data_type(), other.data_type(), &name)?;
    }
    Ok(())
}

fn check_type(expected: &DataType, actual: &DataType, name: &str) -> Read<()> {
    match (expected, actual) {
        (DataType::List(expected), DataType::List(actual)) => {
            check_type(expected.data_type(), actual.data_type(), name)
        }
        (DataType::Struct(expected), DataType::Struct(actual)) => {
            check_fields(expected, actual, &format!("{name}."))
        }
        (expected, actual) if expected == actual => Ok(()),
        (expected, actual) => Err(format!(
            "column {name}: expected {expected}, found {actual}"
        )),
    }
}

/// Convert a batch to rows. `first` is the number of its first row, from 1.
pub(super) fn rows(batch: &RecordBatch, first: usize) -> Read<Vec<Row>> {
    let whole = StructArray::from(batch.clone());
    let columns = Columns {
        whole: &whole,
        parent: None,
        index: RowIndex::Rows { first },
    };
    (0..batch.num_rows()).map(|at| row(&columns, at)).collect()
}

/// The columns of a struct, with the context for error messages.
struct Columns<'a> {
    whole: &'a StructArray,
    /// The enclosing struct or list, and the name of this one in it.
    parent: Option<(&'a Columns<'a>, &'static str)>,
    index: RowIndex,
}

/// Maps an index in the columns to a row number.
#[derive(Clone, Copy)]
enum RowIndex {
    /// The columns contain rows. `first` is the number of the first one, from 1.
    Rows { first: usize },
    /// The columns contain the list items of all rows. The items of `row` begin at `start`.
    Items { row: usize, start: usize },
}

impl Columns<'_> {
    /// The full name of a column, such as `files.name`.
    fn path(&self, name: &str) -> String {
        match self.parent {
            None => name.to_owned(),
            Some((parent, own)) => format!("{}.{name}", parent.path(own)),
        }
    }

    fn wrong(&self, name: &str, at: usize, what: &str) -> String {
        let path = self.path(name);
        match self.index {
            RowIndex::Rows { first } => format!("column {path}, row {}: {what}", first + at),
            RowIndex::Items { row, start } => {
                format!("column {path}, row {row}, item {}: {what}", at - start)
            }
        }
    }

    fn column(&self, name: &str) -> Read<&ArrayRef> {
        let found = self.whole.column_by_name(name);
        found.ok_or_else(|| format!("column {} is missing", self.path(name)))
    }

    /// The column, or an error if the value is null.
    fn value(&self, name: &str, at: usize) -> Read<&ArrayRef> {
        let column = self.column(name)?;
        match column.is_null(at) {
            true => Err(self.wrong(name, at, NULL)),
            false => Ok(column),
        }
    }

    fn typed<A: 'static>(&self, name: &str, at: usize) -> Read<&A> {
        let column = self.value(name, at)?;
        let wrong = || self.wrong(name, at, "a value of another type");
        column.as_any().downcast_ref::<A>().ok_or_else(wrong)
    }

    fn text(&self, name: &str, at: usize) -> Read<&str> {
        Ok(self.typed::<StringViewArray>(name, at)?.value(at))
    }

    /// A text that may be null, in a column that may be missing.
    fn optional_text(&self, name: &str, at: usize) -> Option<String> {
        let texts = self.whole.column_by_name(name)?.as_string_view_opt()?;
        texts.is_valid(at).then(|| texts.value(at).to_owned())
    }

    /// An integer that may be null, in a column that may be missing. Other tools choose other widths.
    fn optional_integer(&self, name: &str, at: usize) -> Read<Option<i64>> {
        let Some(column) = self.whole.column_by_name(name) else {
            return Ok(None);
        };
        if column.is_null(at) || column.data_type() == &DataType::Null {
            return Ok(None);
        }
        let value = column.slice(at, 1);
        let whole = value
            .as_primitive_opt::<UInt32Type>()
            .map(|numbers| i64::from(numbers.value(0)));
        let whole = whole.or_else(|| Some(value.as_primitive_opt::<Int64Type>()?.value(0)));
        let wrong = || self.wrong(name, at, "a value that is not a whole number");
        whole.map(Some).ok_or_else(wrong)
    }

    fn digest(&self, name: &str, at: usize) -> Read<Digest> {
        let text = self.text(name, at)?.to_owned();
        Digest::try_from(text).map_err(|error| self.wrong(name, at, &error.to_string()))
    }

    fn json<T: DeserializeOwned>(&self, name: &str, at: usize) -> Read<T> {
        let text = self.text(name, at)?;
        serde_json::from_str(text).map_err(|error| self.wrong(name, at, &error.to_string()))
    }

    /// A value that must be one of a fixed set of names.
    fn known<T: Copy>(
        &self,
        name: &str,
        at: usize,
        all: &[T],
        of: fn(T) -> &'static str,
    ) -> Read<T> {
        let text = self.text(name, at)?;
        let found = all.iter().copied().find(|one| of(*one) == text);
        found.ok_or_else(|| {
            let known: Vec<_> = all.iter().map(|one| of(*one)).collect();
            let shown: String = text.chars().take(40).collect();
            let known = known.join(", ");
            self.wrong(name, at, &format!("{shown:?} is not one of {known}"))
        })
    }

    fn number(&self, name: &str, at: usize) -> Read<u64> {
        let column = self.value(name, at)?;
        if let Some(numbers) = column.as_any().downcast_ref::<UInt64Array>() {
            return Ok(numbers.value(at));
        }
        Ok(self.small(name, at)?.into())
    }

    fn small(&self, name: &str, at: usize) -> Read<u32> {
        Ok(self.typed::<UInt32Array>(name, at)?.value(at))
    }

    fn float(&self, name: &str, at: usize) -> Read<f64> {
        Ok(self.typed::<Float64Array>(name, at)?.value(at))
    }

    fn inner(&self, name: &'static str, at: usize) -> Read<Columns<'_>> {
        Ok(Columns {
            whole: self.typed(name, at)?,
            parent: Some((self, name)),
            index: self.index,
        })
    }

    /// The list items of all rows, and the range of this row's items.
    fn list(&self, name: &str, at: usize) -> Read<(&ArrayRef, Range<usize>)> {
        let lists = self.typed::<ListArray>(name, at)?;
        let offsets = lists.value_offsets();
        let own = offsets[at].as_usize()..offsets[at + 1].as_usize();
        Ok((lists.values(), own))
    }

    /// The structs in the list of a row.
    fn items<T>(
        &self,
        name: &'static str,
        at: usize,
        of: impl Fn(&Columns<'_>, usize) -> Read<T>,
    ) -> Read<Vec<T>> {
        let (values, own) = self.list(name, at)?;
        let whole = values.as_struct_opt();
        let whole = whole.ok_or_else(|| self.wrong(name, at, OTHER_LIST))?;
        let row = match self.index {
            RowIndex::Rows { first } => first + at,
            RowIndex::Items { row, .. } => row,
        };
        let inner = Columns {
            whole,
            parent: Some((self, name)),
            index: RowIndex::Items {
                row,
                start: own.start,
            },
        };
        let item = |index: usize| match whole.is_null(index) {
            true => Err(self.wrong(name, at, NULL)),
            false => of(&inner, index),
        };
        own.map(item).collect()
    }

    fn texts(&self, name: &str, at: usize) -> Read<Vec<String>> {
        let (values, own) = self.list(name, at)?;
        let texts = values.as_string_view_opt();
        let texts = texts.ok_or_else(|| self.wrong(name, at, OTHER_LIST))?;
        let text = |index: usize| match texts.is_null(index) {
            true => Err(self.wrong(name, at, NULL)),
            false => Ok(texts.value(index).to_owned()),
        };
        own.map(text).collect()
    }

    /// Texts in a column that may be missing.
    fn later_texts(&self, name: &str, at: usize) -> Read<Vec<String>> {
        match self.whole.column_by_name(name) {
            Some(_) => self.texts(name, at),
            None => Ok(Vec::new()),
        }
    }

    /// A number in a column that may be missing.
    fn later_number(&self, name: &str, at: usize) -> Read<u32> {
        match self.whole.column_by_name(name) {
            Some(_) => self.small(name, at),
            None => Ok(0),
        }
    }

    /// A yes or no in a column that may be missing.
    fn later_flag(&self, name: &str, at: usize) -> Read<bool> {
        match self.whole.column_by_name(name) {
            Some(_) => Ok(self.typed::<BooleanArray>(name, at)?.value(at)),
            None => Ok(false),
        }
    }

    fn digests(&self, name: &str, at: usize) -> Read<Vec<Digest>> {
        let texts = self.texts(name, at)?.into_iter();
        let digests: Result<_, _> = texts.map(Digest::try_from).collect();
        digests.map_err(|error| self.wrong(name, at, &error.to_string()))
    }
}

fn row(columns: &Columns<'_>, at: usize) -> Read<Row> {
    const CATEGORIES: [Category; 5] = [
        Category::Chart,
        Category::Text,
        Category::ImageAudio,
        Category::Math,
        Category::Software,
    ];
    const LANGUAGES: [Language; 2] = [Language::En, Language::Zh];
    let hash_columns = columns.inner("proof", at)?;
    let sampling = columns.inner("sampling", at)?;
    let attempts = columns.inner("attempts", at)?;
    Ok(Row {
        messages: columns.items("messages", at, message)?,
        tools: columns.optional_text("tools", at),
        tool_choices: columns.text("tool_choices", at)?.to_owned(),
        task_id: columns.digest("task_id", at)?,
        trajectory_id: columns.digest("trajectory_id", at)?,
        category: columns.known("category", at, &CATEGORIES, category_name)?,
        subcategory: columns.text("subcategory", at)?.to_owned(),
        keyword: columns.text("keyword", at)?.to_owned(),
        template: columns.text("template", at)?.to_owned(),
        held_out_template: columns
            .typed::<BooleanArray>("held_out_template", at)?
            .value(at),
        operations: columns.later_texts("operations", at)?,
        pairs: columns.later_texts("pairs", at)?,
        wordings: columns.later_texts("wordings", at)?,
        difficulty: columns.later_number("difficulty", at)?,
        renamed: columns.later_flag("renamed", at)?,
        unseen: columns.optional_text("unseen", at).unwrap_or_default(),
        language: columns.known("language", at, &LANGUAGES, language_code)?,
        query: columns.text("query", at)?.to_owned(),
        task_license: columns.optional_text("task_license", at),
        task_source: columns.optional_text("task_source", at),
        files: columns.items("files", at, file)?,
        teacher: columns.text("teacher", at)?.to_owned(),
        student: columns.optional_text("student", at),
        provenance: columns.optional_text("provenance", at),
        sampling: Sampling {
            temperature: sampling.float("temperature", at)?,
            top_p: sampling.float("top_p", at)?,
            max_tokens: sampling.small("max_tokens", at)?,
        },
        sample: sampling.small("sample", at)?,
        seed: columns.number("seed", at)?,
        environment: columns.text("environment", at)?.to_owned(),
        interpreter: interpreter(columns, at)?,
        format: columns.text("format", at)?.to_owned(),
        attempts: Attempts {
            tried: attempts.small("tried", at)?,
            solved: attempts.small("solved", at)?,
        },
        turns: columns.small("turns", at)?,
        tokens: tokens(&columns.inner("tokens", at)?, at)?,
        outputs: columns.items("outputs", at, output)?,
        checks: columns.items("checks", at, outcome)?,
        checker: columns.text("checker", at)?.to_owned(),
        grading: columns.json("grading", at)?,
        cells: hash_columns.digests("cells", at)?,
        observed: hash_columns.digests("observations", at)?,
        scrubbed: hash_columns.small("scrubbed", at)?,
        stored: Some(hashes(&hash_columns, at)?),
    })
}

/// The limits of the sessions. A reader that re-executes the row applies them, so they must be in their ranges.
fn interpreter(columns: &Columns<'_>, at: usize) -> Read<RowInterpreter> {
    let found: RowInterpreter = columns.json("interpreter", at)?;
    let checked = found.limits.validate();
    checked.map_err(|reason| columns.wrong("interpreter", at, &reason))?;
    Ok(found)
}

fn message(columns: &Columns<'_>, at: usize) -> Read<Message> {
    const ROLES: [Role; 4] = [Role::System, Role::User, Role::Assistant, Role::Tool];
    let role = columns.known("role", at, &ROLES, Role::name)?;
    let message = Message::new(role, columns.text("content", at)?);
    match (columns.optional_integer("weight", at)?, role) {
        (None, _) => Ok(message),
        (Some(1), Role::Assistant) => Ok(message),
        (Some(0), Role::Assistant) => Ok(message.as_context()),
        (Some(other), Role::Assistant) => {
            let what = format!("{other} is neither 0 nor 1");
            Err(columns.wrong("weight", at, &what))
        }
        (Some(_), other) => {
            let what = format!(
                "only replies have a weight, not a message of the {}",
                other.name()
            );
            Err(columns.wrong("weight", at, &what))
        }
    }
}

fn file(columns: &Columns<'_>, at: usize) -> Read<RowFile> {
    let kind = columns.text("kind", at)?;
    let kind = file_kind(kind).ok_or_else(|| columns.wrong("kind", at, "unknown file type"))?;
    let derived_from = columns.optional_text("derived_from", at);
    let derived_from = derived_from.map(Digest::try_from).transpose();
    Ok(RowFile {
        name: columns.text("name", at)?.to_owned(),
        blake3: columns.digest("blake3", at)?,
        license: columns.optional_text("license", at),
        origin: columns.text("origin", at)?.to_owned(),
        kind: kind.name(),
        derived_from: derived_from
            .map_err(|error| columns.wrong("derived_from", at, &error.to_string()))?,
    })
}

fn output(columns: &Columns<'_>, at: usize) -> Read<RowOutput> {
    Ok(RowOutput {
        path: columns.text("path", at)?.to_owned(),
        blake3: columns.digest("blake3", at)?,
        content: columns.digest("content", at)?,
        size: columns.number("size", at)?,
    })
}

fn outcome(columns: &Columns<'_>, at: usize) -> Read<CheckOutcome> {
    const OUTCOMES: [&str; 3] = ["pass", "fail", "unproven"];
    Ok(CheckOutcome {
        subject: columns.text("subject", at)?.to_owned(),
        outcome: columns.known("outcome", at, &OUTCOMES, |name| name)?,
    })
}

fn tokens(columns: &Columns<'_>, at: usize) -> Read<RowTokens> {
    const COUNTED: [Counted; 3] = [Counted::Endpoint, Counted::Cl100k, Counted::QuarterOfBytes];
    Ok(RowTokens {
        prompt: columns.number("prompt", at)?,
        completion: columns.number("completion", at)?,
        counted_by: columns.known("counted_by", at, &COUNTED, Counted::name)?,
    })
}

fn hashes(columns: &Columns<'_>, at: usize) -> Read<RowHashes> {
    let text = |name: &str| columns.text(name, at).map(str::to_owned);
    Ok(RowHashes {
        query: text("query")?,
        prompts: text("prompts")?,
        teacher: text("teacher")?,
        sampling: text("sampling")?,
        environment: text("environment")?,
        files: text("files")?,
        outputs: text("outputs")?,
        grading: text("grading")?,
        checks: text("checks")?,
        cells: columns.texts("cells", at)?,
        observations: columns.texts("observations", at)?,
        scrubbed: columns.small("scrubbed", at)?,
        row: text("row")?,
    })
}
