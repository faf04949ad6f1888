//! What a verification came to: for people, for the card, for programs.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

use pybench::id::Digest;
use pybench::run::RunError;
use pybench_datasets::card;
use serde::Serialize;

use super::Survey;
use super::again::{Findings, Reason};

/// Rows told one by one.
const SHOWN: usize = 20;

/// What came of a verification.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Rows of the dataset; every one was checked against its hashes.
    pub rows: usize,
    /// Digest of all of them.
    pub digest: String,
    /// The digest that the card names; `None` without a card.
    pub card: Option<String>,
    /// Share of the rows that was to be run again.
    pub sample: f64,
    /// Rows looked at one by one: run again, or not for a stated reason.
    pub examined: usize,
    /// Of these, the same in every cell, file and check.
    pub identical: usize,
    /// Of the identical ones, those that needed the declared normalisation.
    pub normalised: usize,
    /// Of the identical ones, those that were made with another Python or other packages.
    pub elsewhere: usize,
    /// Rows by the reason for which they differ.
    pub reasons: BTreeMap<Reason, usize>,
    /// Rows that could not be run for a failure of ours, and why.
    pub failed: BTreeMap<String, String>,
    /// Carried files whose bytes are not those of their names.
    pub changed_files: Vec<String>,
    /// What differs, by row.
    pub differing: BTreeMap<String, Findings>,
}

impl Report {
    pub(super) fn new(
        sample: f64,
        survey: &Survey,
        results: HashMap<Digest, Result<Findings, String>>,
        card: Option<String>,
    ) -> Self {
        let mut report = Self {
            rows: survey.rows,
            digest: survey.digest.to_string(),
            card,
            sample,
            examined: 0,
            identical: 0,
            normalised: 0,
            elsewhere: 0,
            reasons: BTreeMap::new(),
            failed: BTreeMap::new(),
            changed_files: survey.changed_files.clone(),
            differing: BTreeMap::new(),
        };
        for (row, flaws) in &survey.flawed {
            let findings = Findings {
                reason: Some(Reason::Changed),
                evidence: flaws.clone(),
                ..Findings::default()
            };
            report.add(row, findings);
        }
        for (row, result) in results {
            match result {
                Ok(findings) if !survey.flawed.contains_key(&row) => report.add(&row, findings),
                Ok(_) => {}
                Err(why) => {
                    report.failed.insert(row.to_string(), why);
                }
            }
        }
        report
    }

    fn add(&mut self, row: &Digest, findings: Findings) {
        self.examined += 1;
        match findings.reason {
            None => {
                self.identical += 1;
                self.normalised += usize::from(findings.normalised);
                self.elsewhere += usize::from(findings.elsewhere);
            }
            Some(reason) => {
                *self.reasons.entry(reason).or_default() += 1;
                self.differing.insert(row.to_string(), findings);
            }
        }
    }

    /// The sentence that the card is stamped with.
    pub fn sentence(&self) -> String {
        let differing = self.examined - self.identical;
        format!(
            "{} of rows re-executed identically, {} differ for a stated reason",
            percent(self.identical, self.examined),
            percent(differing, self.examined),
        )
    }

    /// Whether the card's digest is another than that of the rows.
    fn another_dataset(&self) -> bool {
        self.card.as_ref().is_some_and(|card| *card != self.digest)
    }

    /// Write the stamp into the card, and `proof.json` beside it. A folder without a card is left alone.
    pub(super) fn stamp(&self, folder: &Path) -> Result<(), RunError> {
        let path = folder.join("README.md");
        let Ok(text) = std::fs::read_to_string(&path) else {
            return Ok(());
        };
        let Some(stamped) = card::stamped(&text, &self.markdown()) else {
            let path = path.display();
            tracing::warn!("{path} has no place for a stamp; it is left as it is");
            return Ok(());
        };
        if stamped != text {
            replace(&path, stamped.as_bytes())?;
        }
        let json = serde_json::to_string_pretty(self)? + "\n";
        replace(&folder.join("proof.json"), json.as_bytes())
    }

    fn markdown(&self) -> String {
        let mut text = format!(
            "**{}** ({} of {} rows; `proof.json` names each).\n",
            self.sentence(),
            self.examined,
            self.rows
        );
        if self.normalised > 0 {
            text += &format!(
                "{} of the identical rows needed the declared normalisation of addresses, times and paths.\n",
                self.normalised
            );
        }
        if self.elsewhere > 0 {
            text += &format!(
                "{} of the identical rows were made with another Python or other packages.\n",
                self.elsewhere
            );
        }
        if !self.failed.is_empty() {
            text += &format!("{} rows could not be run here.\n", self.failed.len());
        }
        if self.another_dataset() {
            text += "The rows are **not those that this card names**: the digest of all rows is another.\n";
        }
        if !self.changed_files.is_empty() {
            let count = self.changed_files.len();
            text += &format!("{count} carried files have **other bytes than their names say**.\n");
        }
        if !self.reasons.is_empty() {
            text += "\n| reason | rows |\n| --- | ---: |\n";
            for (reason, count) in &self.reasons {
                text += &format!("| {} | {count} |\n", reason.words());
            }
        }
        text
    }

    /// Whether the dataset is what it says.
    pub(super) fn judge(&self) -> Result<(), RunError> {
        let changed = self.reasons.get(&Reason::Changed).copied().unwrap_or(0);
        if self.another_dataset() {
            return Err(RunError::Incomplete(
                "the card names another digest: rows were added, removed, moved or changed"
                    .to_owned(),
            ));
        }
        if let Some(first) = self.changed_files.first() {
            let count = self.changed_files.len();
            return Err(RunError::Incomplete(format!(
                "{count} files of the dataset have other bytes than their names say (first: {first})"
            )));
        }
        if changed > 0 {
            let text = format!("{changed} rows are not as they were written");
            return Err(RunError::Incomplete(text));
        }
        match self.failed.values().next() {
            None => Ok(()),
            Some(why) => Err(RunError::Incomplete(format!(
                "{} rows could not be run (first: {why}); the same command tries them again",
                self.failed.len()
            ))),
        }
    }
}

fn percent(part: usize, whole: usize) -> String {
    let share = 100.0 * part as f64 / whole.max(1) as f64;
    // 99.96 % is not 100 %.
    let cut = (share * 10.0).floor() / 10.0;
    match part == whole || part == 0 {
        true => format!("{share:.0} %"),
        false => format!("{:.1} %", cut.max(0.1)),
    }
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let wrap = || RunError::io(path.display().to_string());
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(wrap())?;
    std::io::Write::write_all(&mut file, bytes).map_err(wrap())?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode).map_err(wrap())?;
    file.persist(path).map_err(|error| wrap()(error.error))?;
    Ok(())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.sentence())?;
        let (examined, rows) = (self.examined, self.rows);
        writeln!(
            f,
            "{examined} of {rows} rows; all {rows} were checked against their hashes"
        )?;
        writeln!(f, "digest of all rows: {}", self.digest)?;
        if self.another_dataset() {
            let card = self.card.as_deref().unwrap_or_default();
            writeln!(f, "the card names another: {card}")?;
        }
        if self.normalised > 0 {
            let count = self.normalised;
            writeln!(f, "{count} identical after the declared normalisation")?;
        }
        if self.elsewhere > 0 {
            let count = self.elsewhere;
            writeln!(
                f,
                "{count} identical though made with another Python or other packages"
            )?;
        }
        for name in self.changed_files.iter().take(SHOWN) {
            writeln!(f, "files/{name} has other bytes than its name says")?;
        }
        for (reason, count) in &self.reasons {
            writeln!(f, "{count:>6}  {}", reason.words())?;
        }
        for (row, findings) in self.differing.iter().take(SHOWN) {
            let evidence = findings.evidence.join("; ");
            writeln!(f, "{}  {evidence}", &row[..12])?;
        }
        if self.differing.len() > SHOWN {
            writeln!(f, "and {} more", self.differing.len() - SHOWN)?;
        }
        for (row, why) in self.failed.iter().take(SHOWN) {
            writeln!(f, "{}  could not be run: {why}", &row[..12])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn shares_never_round_to_what_they_are_not() {
        assert_eq!(percent(200, 200), "100 %");
        assert_eq!(percent(1999, 2000), "99.9 %");
        assert_eq!(percent(1, 100_000), "0.1 %");
        assert_eq!(percent(0, 5), "0 %");
        assert_eq!(percent(0, 0), "0 %");
    }
}
