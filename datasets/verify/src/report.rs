//! The report of a verification: as text, as Markdown for the card, and as JSON.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

use pybench_datasets::card;
use pybench_datasets::split_check::SplitLeaks;
use pybench_run::{RunError, write_atomically};
use pybench_types::id::Digest;
use serde::Serialize;

use super::DatasetScan;
use super::replay::{DiffReason, ReplayDiff};

/// Maximum number of rows listed individually.
const MAX_LISTED: usize = 20;

/// Report of a verification. Written to proof.json.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Number of rows in the dataset. All were checked against their hashes.
    pub rows: usize,
    /// Digest of all rows.
    pub digest: String,
    /// Digest of all rows as stated in the card; `None` without a card.
    pub card: Option<String>,
    /// Share of the rows selected for re-execution.
    pub sample: f64,
    /// Number of examined rows: re-executed, or not re-executed for a stated reason.
    pub examined: usize,
    /// Examined rows that are identical in every cell, file and check.
    pub identical: usize,
    /// Identical rows that needed normalization.
    pub normalized: usize,
    /// Identical rows that were made with another version of Python or its packages.
    pub elsewhere: usize,
    /// Examined rows that cannot be verified: they state that secrets were removed from them.
    pub unverifiable: usize,
    /// Number of rows that are not identical, by reason.
    pub reasons: BTreeMap<DiffReason, usize>,
    /// Rows that could not be executed, with the error.
    pub failed: BTreeMap<String, String>,
    /// Included files whose contents do not match their names.
    pub changed_files: Vec<String>,
    /// What rows of different splits have in common.
    pub leaks: SplitLeaks,
    /// Differences by row.
    pub differing: BTreeMap<String, ReplayDiff>,
}

impl Report {
    pub(super) fn new(
        sample: f64,
        scan: &DatasetScan,
        results: HashMap<Digest, Result<ReplayDiff, String>>,
        card: Option<String>,
    ) -> Self {
        let mut report = Self {
            rows: scan.rows,
            digest: scan.digest.to_string(),
            card,
            sample,
            examined: 0,
            identical: 0,
            normalized: 0,
            elsewhere: 0,
            unverifiable: 0,
            reasons: BTreeMap::new(),
            failed: BTreeMap::new(),
            changed_files: scan.changed_files.clone(),
            leaks: scan.leaks.clone(),
            differing: BTreeMap::new(),
        };
        for (row, problems) in &scan.inconsistent {
            let diff = ReplayDiff {
                reason: Some(DiffReason::Changed),
                evidence: problems.clone(),
                ..ReplayDiff::default()
            };
            report.add(row, diff);
        }
        for (row, result) in results {
            match result {
                Ok(diff) if !scan.inconsistent.contains_key(&row) => report.add(&row, diff),
                Ok(_) => {}
                Err(why) => {
                    report.failed.insert(row.to_string(), why);
                }
            }
        }
        report
    }

    fn add(&mut self, row: &Digest, diff: ReplayDiff) {
        self.examined += 1;
        match diff.reason {
            None => {
                self.identical += 1;
                self.normalized += usize::from(diff.normalized);
                self.elsewhere += usize::from(diff.elsewhere);
            }
            Some(reason) => {
                self.unverifiable += usize::from(reason == DiffReason::Scrubbed);
                *self.reasons.entry(reason).or_default() += 1;
                self.differing.insert(row.to_string(), diff);
            }
        }
    }

    /// The result in one sentence, as in the card.
    pub fn summary(&self) -> String {
        let differing = self.examined - self.identical - self.unverifiable;
        let mut text = format!(
            "{} of rows re-executed identically, {} differ for a stated reason",
            percent(self.identical, self.examined),
            percent(differing, self.examined),
        );
        if self.unverifiable > 0 {
            let share = percent(self.unverifiable, self.examined);
            text += &format!(", {share} are not verifiable");
        }
        text
    }

    /// Whether the card states another digest than that of the rows.
    fn card_digest_differs(&self) -> bool {
        self.card.as_ref().is_some_and(|card| *card != self.digest)
    }

    /// Write the result to the card and to `proof.json`. A folder without a card is not changed.
    pub(super) fn stamp(&self, folder: &Path) -> Result<(), RunError> {
        let path = folder.join("README.md");
        let Some(text) = super::read_card(folder) else {
            return Ok(());
        };
        let Some(stamped) = card::stamped(&text, &self.markdown()) else {
            let path = path.display();
            tracing::warn!("{path} was not changed: it has no markers for the verification result");
            return Ok(());
        };
        if stamped != text {
            write_atomically(&path, stamped.as_bytes())?;
        }
        let json = serde_json::to_string_pretty(self)? + "\n";
        write_atomically(&folder.join("proof.json"), json.as_bytes())
    }

    fn markdown(&self) -> String {
        let mut text = format!(
            "**{}** ({} of {} rows; `proof.json` lists the differences).\n",
            self.summary(),
            self.examined,
            self.rows
        );
        if self.normalized > 0 {
            text += &format!(
                "{} of the identical rows needed normalization of addresses, times and paths.\n",
                self.normalized
            );
        }
        if self.elsewhere > 0 {
            text += &format!(
                "{} of the identical rows were made with another version of Python or its packages.\n",
                self.elsewhere
            );
        }
        if !self.failed.is_empty() {
            text += &format!("{} rows could not be executed.\n", self.failed.len());
        }
        if self.card_digest_differs() {
            text += "The rows are **not the rows that this card describes**: the digest of all rows is different.\n";
        }
        if !self.changed_files.is_empty() {
            let count = self.changed_files.len();
            text += &format!(
                "{count} included files have **contents that do not match their names**.\n"
            );
        }
        for (leaks, what) in self.leak_kinds() {
            text += &format!("{} {what}.\n", leaks.len());
        }
        if !self.reasons.is_empty() {
            text += "\n| reason | rows |\n| --- | ---: |\n";
            for (reason, count) in &self.reasons {
                text += &format!("| {} | {count} |\n", reason.description());
            }
        }
        text
    }

    /// What splits have in common, with a description; only what there is.
    fn leak_kinds(&self) -> impl Iterator<Item = (&Vec<String>, &'static str)> {
        let kinds = [
            (
                &self.leaks.files,
                "digests or origins of input files are in more than one split",
            ),
            (
                &self.leaks.pictures,
                "pictures are in more than one split, in other files",
            ),
            (
                &self.leaks.near_duplicates,
                "clusters of near duplicates (by query and code) are in more than one split",
            ),
        ];
        kinds.into_iter().filter(|(leaks, _)| !leaks.is_empty())
    }

    /// An error if the dataset was changed or could not be verified completely.
    pub(super) fn result(&self) -> Result<(), RunError> {
        let changed = self.reasons.get(&DiffReason::Changed).copied().unwrap_or(0);
        if self.card_digest_differs() {
            return Err(RunError::Incomplete(
                "the card states another digest: rows were added, removed, moved or changed"
                    .to_owned(),
            ));
        }
        if let Some(first) = self.changed_files.first() {
            let count = self.changed_files.len();
            return Err(RunError::Incomplete(format!(
                "the contents of {count} included files do not match their names (first: {first})"
            )));
        }
        if let Some(first) = self.leaks.files.first() {
            let count = self.leaks.files.len();
            return Err(RunError::Incomplete(format!(
                "a split leaks into another: {count} digests or origins of input files are in both (first: {first})"
            )));
        }
        if changed > 0 {
            let text = format!("{changed} rows were changed after they were written");
            return Err(RunError::Incomplete(text));
        }
        match self.failed.values().next() {
            None => Ok(()),
            Some(why) => Err(RunError::Incomplete(format!(
                "{} rows could not be executed (first: {why}); run the same command again to retry them",
                self.failed.len()
            ))),
        }
    }
}

fn percent(part: usize, whole: usize) -> String {
    let share = 100.0 * part as f64 / whole.max(1) as f64;
    // Round down: 99.96 % must not become 100 %.
    let cut = (share * 10.0).floor() / 10.0;
    match part == whole || part == 0 {
        true => format!("{share:.0} %"),
        false => format!("{:.1} %", cut.max(0.1)),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.summary())?;
        let (examined, rows) = (self.examined, self.rows);
        writeln!(
            f,
            "examined {examined} of {rows} rows; checked the hashes of all {rows}"
        )?;
        writeln!(f, "digest of all rows: {}", self.digest)?;
        if self.card_digest_differs() {
            let card = self.card.as_deref().unwrap_or_default();
            writeln!(f, "the card states another digest: {card}")?;
        }
        if self.normalized > 0 {
            let count = self.normalized;
            writeln!(f, "{count} identical after normalization")?;
        }
        if self.elsewhere > 0 {
            let count = self.elsewhere;
            writeln!(
                f,
                "{count} identical, although made with another version of Python or its packages"
            )?;
        }
        for name in self.changed_files.iter().take(MAX_LISTED) {
            writeln!(f, "files/{name}: contents do not match the name")?;
        }
        for (leaks, what) in self.leak_kinds() {
            writeln!(f, "{:>6}  {what}", leaks.len())?;
            for leak in leaks.iter().take(MAX_LISTED) {
                writeln!(f, "        {leak}")?;
            }
        }
        if self.leaks.is_empty() {
            writeln!(
                f,
                "the splits have no file, picture or near duplicate in common"
            )?;
        }
        for (reason, count) in &self.reasons {
            writeln!(f, "{count:>6}  {}", reason.description())?;
        }
        for (row, diff) in self.differing.iter().take(MAX_LISTED) {
            let evidence = diff.evidence.join("; ");
            writeln!(f, "{}  {evidence}", &row[..12])?;
        }
        if self.differing.len() > MAX_LISTED {
            writeln!(f, "and {} more", self.differing.len() - MAX_LISTED)?;
        }
        for (row, why) in self.failed.iter().take(MAX_LISTED) {
            writeln!(f, "{}  could not be executed: {why}", &row[..12])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn percentages_are_never_rounded_to_0_or_100() {
        assert_eq!(percent(200, 200), "100 %");
        assert_eq!(percent(1999, 2000), "99.9 %");
        assert_eq!(percent(1, 100_000), "0.1 %");
        assert_eq!(percent(0, 5), "0 %");
        assert_eq!(percent(0, 0), "0 %");
    }
}
