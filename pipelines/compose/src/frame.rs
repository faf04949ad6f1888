//! What is between two operations: a table with the classes of its columns, or another content.

use std::collections::BTreeSet;
use std::sync::Arc;

use polars::prelude::{Column, DataFrame, DataType, IntoLazy, LazyFrame, PolarsResult};

use crate::content::{Content, Medium};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Number,
    Text,
    Boolean,
    /// Texts that are days or times in ISO 8601.
    Date,
}

/// A table with its column classes.
#[derive(Clone, Debug)]
pub struct Frame {
    pub data: DataFrame,
    /// Columns of texts that are dates.
    pub(crate) dates: BTreeSet<String>,
    /// Whether the order of the rows is known to the reader of the query: that of the file, or of a sort.
    pub(crate) ordered: bool,
    /// The other files of the task that no step has used yet.
    pub(crate) others: Vec<OtherTable>,
    /// A text, a picture or a sound that no step has read into the table yet.
    pub(crate) content: Content,
}

/// The table of another file of a task.
#[derive(Clone, Debug)]
pub struct OtherTable {
    /// Path of the file, such as `./data/plants.csv`.
    pub path: String,
    pub frame: Arc<Frame>,
}

impl Frame {
    /// A table as a file has it.
    pub fn new(data: DataFrame) -> Self {
        let is_date = |column: &&Column| {
            let Ok(texts) = column.str() else {
                return false;
            };
            let mut texts = texts.iter().flatten().peekable();
            texts.peek().is_some() && texts.all(is_day)
        };
        let dates = data.columns().iter().filter(is_date);
        Self {
            dates: dates.map(|column| column.name().to_string()).collect(),
            data,
            ordered: true,
            others: Vec::new(),
            content: Content::Table,
        }
    }

    /// Another content than a table.
    pub fn of_content(content: Content) -> Self {
        Self {
            content,
            ..Self::new(DataFrame::empty())
        }
    }

    /// What a step can work on.
    pub fn medium(&self) -> Medium {
        self.content.medium()
    }

    /// The table with the other files of its task.
    #[must_use]
    pub fn with_others(mut self, others: Vec<OtherTable>) -> Self {
        self.others = others;
        self
    }

    /// The table of another file by its path.
    pub fn other(&self, path: &str) -> Option<&Frame> {
        let found = self.others.iter().find(|other| other.path == path);
        found.map(|other| other.frame.as_ref())
    }

    pub fn class(&self, column: &str) -> Option<Class> {
        let dtype = self.data.column(column).ok()?.dtype().clone();
        match dtype {
            DataType::Int64 | DataType::Float64 => Some(Class::Number),
            DataType::Boolean => Some(Class::Boolean),
            DataType::String if self.dates.contains(column) => Some(Class::Date),
            DataType::String => Some(Class::Text),
            _ => None,
        }
    }

    /// The columns of a class, in order.
    pub fn of_class(&self, class: Class) -> Vec<String> {
        let names = self.data.get_column_names_owned().into_iter();
        let names = names.map(|name| name.to_string());
        names
            .filter(|name| self.class(name) == Some(class))
            .collect()
    }

    pub fn lazy(&self) -> LazyFrame {
        self.data.clone().lazy()
    }

    pub fn height(&self) -> usize {
        self.data.height()
    }

    /// Whether all numbers are finite, also those of the other tables.
    pub(crate) fn is_finite(&self) -> bool {
        self.data.columns().iter().all(is_finite)
            && self.others.iter().all(|other| other.frame.is_finite())
    }

    /// A result with all numbers as 64 bits; `None` if a number is not finite.
    pub(crate) fn result(&self, data: DataFrame, ordered: bool) -> PolarsResult<Option<Self>> {
        let mut columns = Vec::with_capacity(data.width());
        for column in data.columns() {
            let column = match column.dtype() {
                dtype if dtype.is_integer() => column.cast(&DataType::Int64)?,
                DataType::Float32 => column.cast(&DataType::Float64)?,
                _ => column.clone(),
            };
            if !is_finite(&column) {
                return Ok(None);
            }
            columns.push(column);
        }
        let mut data = DataFrame::new(data.height(), columns)?;
        // Sums are made part by part, and into how many parts a step divides its result depends on the threads.
        data.rechunk_mut();
        let still = |name: &&String| {
            let dtype = data.column(name.as_str()).map(|c| c.dtype().clone());
            dtype.is_ok_and(|dtype| dtype == DataType::String)
        };
        Ok(Some(Self {
            dates: self.dates.iter().filter(still).cloned().collect(),
            data,
            ordered,
            others: self.others.clone(),
            content: Content::Table,
        }))
    }
}

/// Whether a column has no infinite number and no NaN.
fn is_finite(column: &Column) -> bool {
    let numbers = column.f64().ok();
    numbers.is_none_or(|numbers| numbers.iter().flatten().all(f64::is_finite))
}

/// Whether a text is a day, such as `2024-05-31`. Times are left out: their zones and fractions are read differently.
fn is_day(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes[at].is_ascii_digit();
    let shape = bytes.len() == 10
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && [0, 1, 2, 3, 5, 6, 8, 9].into_iter().all(digit);
    let part = |from: usize, to: usize| text[from..to].parse::<u32>().unwrap_or(0);
    shape && exists(part(0, 4), part(5, 7), part(8, 10))
}

/// Whether there is such a day. pandas keeps times in nanoseconds, which reach from 1677 to 2262.
fn exists(year: u32, month: u32, day: u32) -> bool {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => 0,
    };
    (1700..2200).contains(&year) && (1..=days).contains(&day)
}

/// The rows of a result as JSON values, each with its columns in order.
pub(crate) fn records(data: &DataFrame) -> Vec<serde_json::Map<String, serde_json::Value>> {
    let mut records = vec![serde_json::Map::new(); data.height()];
    for column in data.columns() {
        for (at, record) in records.iter_mut().enumerate() {
            let value = column
                .get(at)
                .map_or(serde_json::Value::Null, |value| json(&value));
            record.insert(column.name().to_string(), value);
        }
    }
    records
}

/// The records of a result as a task keeps them: the last digits of a float depend on the order in which polars adds, and
/// so on the machine; the task has the same bytes everywhere.
pub(crate) fn expected_records(
    data: &DataFrame,
) -> Vec<serde_json::Map<String, serde_json::Value>> {
    let mut records = records(data);
    for value in records.iter_mut().flat_map(serde_json::Map::values_mut) {
        if let Some(number) = value.as_f64().filter(|_| value.is_f64()) {
            *value = same_everywhere(number).into();
        }
    }
    records
}

/// A float with 12 significant digits; checks compare nine. Whole numbers stay.
pub(crate) fn same_everywhere(number: f64) -> f64 {
    if number.fract() == 0.0 {
        return number;
    }
    format!("{number:.11e}").parse().unwrap_or(number)
}

fn json(value: &polars::prelude::AnyValue<'_>) -> serde_json::Value {
    use polars::prelude::AnyValue;
    match value {
        AnyValue::Int64(number) => (*number).into(),
        AnyValue::Float64(number) => (*number).into(),
        AnyValue::Boolean(truth) => (*truth).into(),
        AnyValue::Null => serde_json::Value::Null,
        text => text.get_str().map_or(serde_json::Value::Null, Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_digits_of_a_float_are_not_kept() {
        assert_eq!(
            same_everywhere(5393.010995586512),
            same_everywhere(5393.010995586513)
        );
        assert_eq!(same_everywhere(0.1 + 0.2), 0.3);
        assert_eq!(same_everywhere(-1.5e-7), -1.5e-7);
        assert_eq!(
            same_everywhere(9_007_199_254_740_991.0),
            9_007_199_254_740_991.0
        );
    }
}
