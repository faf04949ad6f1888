//! What a reader must be told of a table, beyond encoding, separator and the name of its only sheet.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a table departs from what pandas assumes. Profiles, code that reads the file, and the checker's reference use
/// the same options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReadOptions {
    /// Columns whose numbers are written with a decimal comma.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decimal_comma: Vec<String>,
    /// The sign between groups of three digits in these columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thousands: Option<char>,
    /// Columns of numbers that are read as text first, with their notation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, NumberNotation>,
    /// Columns of dates that are written day first, with their `strftime` format. They are read as ISO 8601.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub dates: BTreeMap<String, String>,
    /// Columns of dates of which some are written in ISO 8601 and the others day first, with points (`31.12.2024`). They
    /// are read as ISO 8601.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mixed_dates: Vec<String>,
    /// The worksheet, if it is not the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sheet: Option<String>,
    /// Rows above the header.
    #[serde(skip_serializing_if = "is_zero")]
    pub skip_rows: u32,
    /// The names of the columns if the header has two rows: the upper and the lower name, joined by a space.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Whether `names` are the two rows joined after the upper one is filled from the left; code has to list other names.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub joined_header: bool,
    /// Columns with cells that are merged over several rows. Their value counts for each of these rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filled: Vec<String>,
}

/// How a column of texts writes its numbers: `€ 1.018,64`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NumberNotation {
    /// The currency sign or the unit before or after each number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// Characters that mean nothing: between thousands, and spaces.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ignored: String,
    /// Whether the decimal sign is a comma.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub decimal_comma: bool,
    /// A value of the column.
    pub example: String,
}

impl NumberNotation {
    /// The number in a text as programs write it.
    pub fn plain(&self, text: &str) -> String {
        let text = match &self.currency {
            Some(sign) => text.replace(sign.as_str(), ""),
            None => text.to_owned(),
        };
        let kept = text.chars().filter(|c| !self.ignored.contains(*c));
        let point = |c| match c {
            ',' if self.decimal_comma => '.',
            c => c,
        };
        kept.map(point).collect()
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl ReadOptions {
    /// Whether pandas' defaults read the table.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
