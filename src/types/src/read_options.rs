//! What a reader must be told of a table, beyond encoding, separator and the name of its only sheet.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::task::Language;

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
    /// Columns of dates that are written day first, with their `strftime` format. They are read as ISO 8601.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub dates: BTreeMap<String, String>,
    /// The worksheet, if it is not the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sheet: Option<String>,
    /// Rows above the header.
    #[serde(skip_serializing_if = "is_zero")]
    pub skip_rows: u32,
    /// The names of the columns if the header has two rows: the upper and the lower name, joined by a space.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Columns with cells that are merged over several rows. Their value counts for each of these rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filled: Vec<String>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl ReadOptions {
    /// Whether pandas' defaults read the table.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What a query must say of the file, so that its result is well defined; `None` if the defaults read it.
    pub fn note(&self, path: &str, language: Language) -> Option<String> {
        let facts = match language {
            Language::En => self.facts_en(),
            Language::Zh => self.facts_zh(),
        };
        (!facts.is_empty()).then(|| match language {
            Language::En => format!("About {path}: {}.", facts.join("; ")),
            Language::Zh => format!("关于 {path}：{}。", facts.join("；")),
        })
    }

    fn facts_en(&self) -> Vec<String> {
        let mut facts = Vec::new();
        if let Some(sheet) = &self.sheet {
            facts.push(format!("the table is in the worksheet \"{sheet}\""));
        }
        if self.skip_rows > 0 {
            facts.push(format!("the header begins in row {}", self.skip_rows + 1));
        }
        if !self.names.is_empty() {
            facts.push(
                "the header has two rows, and a column is called by its upper and its lower name, joined by a space"
                    .into(),
            );
        }
        if !self.filled.is_empty() {
            facts.push("the value of merged cells counts for each of their rows".into());
        }
        if let Some((written, plain)) = self.number_example() {
            facts.push(format!(
                "numbers are written with a decimal comma ({written} is {plain}); write them with a decimal point"
            ));
        }
        if let Some(example) = self.date_example() {
            facts.push(format!(
                "dates are written day first ({example}); write them as 2024-12-31"
            ));
        }
        facts
    }

    fn facts_zh(&self) -> Vec<String> {
        let mut facts = Vec::new();
        if let Some(sheet) = &self.sheet {
            facts.push(format!("表格在工作表“{sheet}”中"));
        }
        if self.skip_rows > 0 {
            facts.push(format!("表头从第 {} 行开始", self.skip_rows + 1));
        }
        if !self.names.is_empty() {
            facts.push("表头有两行，列名由上、下两级名称以一个空格连接而成".into());
        }
        if !self.filled.is_empty() {
            facts.push("合并单元格的值适用于其中每一行".into());
        }
        if let Some((written, plain)) = self.number_example() {
            facts.push(format!(
                "数字以逗号为小数点（{written} 即 {plain}），结果中请用小数点"
            ));
        }
        if let Some(example) = self.date_example() {
            facts.push(format!(
                "日期为日在前（{example}），结果中请写成 2024-12-31"
            ));
        }
        facts
    }

    /// A number as the file writes it, and the same number with a decimal point.
    fn number_example(&self) -> Option<(String, &'static str)> {
        let plain = "1018.64";
        let thousands = self.thousands.map(String::from).unwrap_or_default();
        (!self.decimal_comma.is_empty()).then(|| (format!("1{thousands}018,64"), plain))
    }

    /// The last day of 2024 as the file writes dates.
    fn date_example(&self) -> Option<String> {
        let format = self.dates.values().next()?;
        Some(
            format
                .replace("%d", "31")
                .replace("%m", "12")
                .replace("%Y", "2024"),
        )
    }
}
