//! Decides whether a file fits an input of a template, and whether a column fits a slot.

use std::collections::HashMap;

use pybench_types::task::{
    AudioProfile, ColumnKind, ColumnProfile, DocumentProfile, FileKind, ImageProfile, Profile,
    SourceFile, TableProfile,
};

use super::template::{Input, Nulls, Slot, Template};

/// Root mean square above which audio is not silent.
const AUDIBLE_RMS: f64 = 0.01;
/// Longest column name, in characters, that reads well in a sentence.
const MAX_COLUMN_NAME: usize = 40;

/// Whether a file can be input `index` of a template.
pub(crate) fn file_fits(file: &SourceFile, template: &Template, index: usize) -> bool {
    let Some(input) = template.inputs.get(index) else {
        return false;
    };
    let size_fits = input.max_bytes.is_none_or(|most| file.size <= most);
    if !input.kinds.contains(&file.kind) || !name_is_plain(&file.name) || !size_fits {
        return false;
    }
    match &file.profile {
        Profile::Broken { .. } => false,
        Profile::Table(table) => {
            !input.has_conditions_of_other_families(Family::Table) && input.table_fits(table)
        }
        Profile::Document(document) => {
            !reads_table(template, index)
                && !input.has_conditions_of_other_families(Family::Document)
                && input.document_fits(document)
        }
        Profile::Image(image) => {
            !input.has_conditions_of_other_families(Family::Image) && input.image_fits(image)
        }
        Profile::Audio(audio) => {
            !input.has_conditions_of_other_families(Family::Audio) && input.audio_fits(audio)
        }
    }
}

/// Whether the template reads this input as a table, so that json of another shape does not fit.
fn reads_table(template: &Template, index: usize) -> bool {
    use FileKind::*;
    let by_slot = template.slots.values().any(|slot| {
        let slot = slot.get_ref();
        slot.column.is_some() && slot.input == index
    });
    let tabular = [Csv, Tsv, Xlsx, Jsonl, Parquet, Sqlite];
    let by_kind = |input: &Input| input.kinds.iter().any(|kind| tabular.contains(kind));
    by_slot || template.inputs.get(index).is_some_and(by_kind)
}

/// Whether a name needs no escaping in a shell, a sentence or a Python string.
fn name_is_plain(name: &str) -> bool {
    let odd = |c: char| c.is_control() || "'\"`\\{}%$,".contains(c);
    !name.is_empty() && !name.contains(odd)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Table,
    Document,
    Image,
    Audio,
}

fn within<T: PartialOrd>(value: T, min: Option<T>, max: Option<T>) -> bool {
    min.is_none_or(|min| value >= min) && max.is_none_or(|max| value <= max)
}

impl Input {
    /// Whether there is a condition of a family other than this one.
    fn has_conditions_of_other_families(&self, own: Family) -> bool {
        let table = self.min_rows.is_some()
            || self.max_rows.is_some()
            || self.min_columns.is_some()
            || self.max_columns.is_some()
            || self.duplicates.is_some()
            || self.single_table.is_some()
            || self.split.is_some();
        let document = self.min_words.is_some()
            || self.max_words.is_some()
            || self.min_lines.is_some()
            || self.min_pages.is_some()
            || self.max_pages.is_some()
            || self.min_headings.is_some()
            || self.min_tables.is_some()
            || self.min_code_cells.is_some()
            || !self.languages.is_empty();
        let image = self.min_width.is_some()
            || self.min_height.is_some()
            || self.max_pixels.is_some()
            || self.asymmetric.is_some()
            || self.varied.is_some()
            || self.min_frames.is_some()
            || self.max_frames.is_some()
            || !self.modes.is_empty();
        let audio = self.min_seconds.is_some()
            || self.max_seconds.is_some()
            || self.min_channels.is_some()
            || self.max_channels.is_some()
            || self.audible.is_some();
        [
            (Family::Table, table),
            (Family::Document, document),
            (Family::Image, image),
            (Family::Audio, audio),
        ]
        .iter()
        .any(|(family, used)| *used && *family != own)
    }

    fn table_fits(&self, table: &TableProfile) -> bool {
        let single = table.tables.len() <= 1;
        within(table.rows, self.min_rows, self.max_rows)
            && within(table.columns.len(), self.min_columns, self.max_columns)
            && self
                .duplicates
                .is_none_or(|wanted| wanted == (table.duplicate_rows > 0))
            && self.single_table.is_none_or(|wanted| wanted == single)
            // The checker gives the withheld rows to a model as pandas reads them by default.
            && (self.split.is_none() || table.read.is_default())
    }

    fn document_fits(&self, document: &DocumentProfile) -> bool {
        let language = document.language.as_ref();
        let paged = self.min_pages.is_none() && self.max_pages.is_none();
        let pages_fit = match document.pages {
            Some(pages) => within(pages, self.min_pages, self.max_pages),
            None => paged,
        };
        // The experts open text as UTF-8.
        let encoding = document.encoding.as_deref();
        encoding.is_none_or(|encoding| matches!(encoding, "utf-8" | "utf8" | "ascii"))
            && pages_fit
            && within(document.words, self.min_words, self.max_words)
            && within(document.lines, self.min_lines, None)
            && within(document.headings.len(), self.min_headings, None)
            && within(document.tables, self.min_tables, None)
            && within(document.code_cells, self.min_code_cells, None)
            && (self.languages.is_empty() || language.is_some_and(|l| self.languages.contains(l)))
    }

    fn image_fits(&self, image: &ImageProfile) -> bool {
        let pixels = u64::from(image.width) * u64::from(image.height);
        (self.modes.is_empty() || self.modes.contains(&image.mode))
            && within(image.width, self.min_width, None)
            && within(image.height, self.min_height, None)
            && within(pixels, None, self.max_pixels)
            && within(image.frames, self.min_frames, self.max_frames)
            && self
                .asymmetric
                .is_none_or(|wanted| wanted != image.symmetric)
            && self.varied.is_none_or(|wanted| wanted != image.uniform)
    }

    fn audio_fits(&self, audio: &AudioProfile) -> bool {
        let loud = audio.rms > AUDIBLE_RMS;
        within(audio.duration, self.min_seconds, self.max_seconds)
            && within(audio.channels, self.min_channels, self.max_channels)
            && self.audible.is_none_or(|wanted| wanted == loud)
    }
}

/// The columns that a task can name, in file order. Their names are unique, not empty, readable in a sentence and
/// in code, and returned as text by every reader. Columns with infinite numbers are excluded, because they
/// have no mean and readers handle them differently.
pub(crate) fn usable_columns(table: &TableProfile) -> Vec<&ColumnProfile> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for column in &table.columns {
        *counts.entry(column.name.to_lowercase()).or_default() += 1;
    }
    let unique = |c: &&ColumnProfile| counts.get(&c.name.to_lowercase()) == Some(&1);
    table
        .columns
        .iter()
        .filter(unique)
        .filter(|c| column_name_is_plain(&c.name) && is_finite(c))
        .collect()
}

fn is_finite(column: &ColumnProfile) -> bool {
    let bounds = [&column.min, &column.max];
    let mut numbers = bounds.into_iter().flatten().filter_map(|n| n.parse().ok());
    column.kind != ColumnKind::Float || numbers.all(f64::is_finite)
}

fn column_name_is_plain(name: &str) -> bool {
    let odd = |c: char| c.is_control() || "'\"`\\{}".contains(c);
    // pandas does not read a number or a boolean in the header of a workbook as text.
    let literal =
        name.parse::<f64>().is_ok() || matches!(name, "True" | "False" | "TRUE" | "FALSE");
    // pandas' name for a column without a name.
    let unnamed = name.starts_with("Unnamed:");
    !name.is_empty()
        && name.trim() == name
        && name.chars().count() <= MAX_COLUMN_NAME
        && !name.contains(odd)
        && !literal
        && !unnamed
}

pub(crate) fn column_fits(table: &TableProfile, column: &ColumnProfile, slot: &Slot) -> bool {
    let kind_fits = slot
        .column
        .as_ref()
        .is_none_or(|kinds| kinds.contains(&column.kind));
    let nulls_fit = match slot.nulls {
        Nulls::None => column.nulls == 0,
        Nulls::Some => column.nulls > 0,
        Nulls::Any => true,
    };
    let least = column.min.as_ref().and_then(|min| min.parse::<f64>().ok());
    let positive = least.is_some_and(|least| least > 0.0);
    let own_name = column.name.to_lowercase();
    let named = |names: &[String]| names.iter().any(|name| name.to_lowercase() == own_name);
    kind_fits
        && nulls_fit
        && !named(&slot.avoid)
        && (slot.only.is_empty() || named(&slot.only))
        && within(column.distinct, slot.min_distinct, slot.max_distinct)
        && (!slot.mostly_distinct
            || 10 * column.distinct >= 9 * table.rows.saturating_sub(column.nulls))
        && slot.positive.is_none_or(|wanted| wanted == positive)
        && slot
            .several_days
            .is_none_or(|wanted| wanted == several_days(column))
}

/// Whether the first and the last value of a column of ISO dates are of different days.
fn several_days(column: &ColumnProfile) -> bool {
    let day = |bound: &Option<String>| bound.as_ref().map(|text| text.chars().take(10).collect());
    let days: [Option<String>; 2] = [&column.min, &column.max].map(day);
    column.kind == ColumnKind::Date && days[0] != days[1]
}

/// The table profile of a file; `None` if it is not a table.
pub(crate) fn table(file: &SourceFile) -> Option<&TableProfile> {
    match &file.profile {
        Profile::Table(table) => Some(table),
        _ => None,
    }
}
