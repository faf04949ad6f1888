//! Collects and checks a dataset for publication: the hashes of all rows match, there are no secrets, no shard is
//! missing, and the card belongs to these rows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pybench_datasets::dataset::FILES_DIR;
use pybench_datasets::decontaminate::{BenchmarkMatches, BenchmarkSearch, MatchAction, RowPrint};
use pybench_datasets::formats::{Schema, of_row};
use pybench_datasets::row_hashes::{self, DatasetDigest, row_digest};
use pybench_datasets::scrub::Scrubber;
use pybench_datasets::survey::Survey;
use pybench_datasets::tokens::TokenCounter;
use pybench_datasets::{Row, card, read, samples};
use pybench_files::read_regular;
use pybench_run::RunError;
use pybench_run::project::invocation;
use pybench_run::run_selection::run_argument;
use serde_json::Value;
use tempfile::TempDir;

use super::Package;
use super::card::ExtraFiles;
use pybench_dataset_tools::{FromArgs, file_search, to_run_error, without_rows};
use pybench_hub::Kind;

/// Number of rows that are also written as traces.
const MAX_TRACES: usize = 10;
/// Maximum number of problems listed.
const MAX_LISTED: usize = 10;
/// Maximum size of README.md and proof.json, in bytes.
const MAX_TEXT_BYTES: u64 = 16 << 20;
/// Maximum size of an input file, in bytes.
const MAX_INPUT_BYTES: u64 = 4 << 30;

/// Collect the files of a dataset. Rows that match known benchmarks are left out, unless `allow_contaminated` is set.
///
/// # Errors
/// [`RunError::BadInput`] with all problems that prevent publication.
pub(super) fn package(
    source: &Path,
    repo: Option<&str>,
    allow_contaminated: bool,
) -> Result<Package, RunError> {
    let from = FromArgs {
        dataset: source.to_owned(),
    };
    let (folder, scrubber) = (from.folder()?, Scrubber::of_machine());
    let mut dataset = CheckedDataset::read(&folder, &scrubber)?;
    if dataset.scan.benchmarks.matches.is_empty() {
        return dataset.into_package(repo, None);
    }
    let mut temporary = None;
    if allow_contaminated {
        dataset.scan.benchmarks.action = MatchAction::Allowed;
    } else {
        let copies = temporary_folder()?;
        dataset = dataset.without_matches(&scrubber, copies.path())?;
        temporary = Some(copies);
    }
    let mut section = dataset.scan.benchmarks.section();
    if !allow_contaminated {
        section += "\nThe sections on how the rows were made, diversity, split and scrubbing count these rows too.\n";
    }
    dataset.card = card::with_section(&dataset.card, &section);
    dataset.into_package(repo, temporary)
}

fn temporary_folder() -> Result<TempDir, RunError> {
    let folder = tempfile::Builder::new()
        .prefix("pybench-publish-")
        .tempdir();
    folder.map_err(RunError::io("temporary folder for the copy"))
}

/// A dataset that passed its checks.
struct CheckedDataset {
    folder: PathBuf,
    /// Path in the repository and file of each shard.
    shards: Vec<(String, PathBuf)>,
    card: String,
    /// Path in the repository and file of each input file.
    files: Vec<(String, PathBuf)>,
    scan: RowScan,
}

impl CheckedDataset {
    /// Check a dataset.
    ///
    /// # Errors
    /// [`RunError::BadInput`] with all problems that prevent publication.
    fn read(folder: &Path, scrubber: &Scrubber) -> Result<Self, RunError> {
        let mut problems = Problems::default();
        let shards = shards(folder, &mut problems)?;
        let card = text(&folder.join("README.md"))?;
        let card = card.ok_or_else(|| {
            let path = folder.display();
            RunError::BadInput(format!("{path} has no README.md: a dataset needs a card"))
        })?;
        let scan = scan_rows(folder, scrubber, &mut problems)?;
        scan_shards(&shards, scrubber, &mut problems)?;
        check_texts(folder, &card, &scan, scrubber, &mut problems)?;
        let files = files(folder, scrubber, &mut problems)?;
        problems.into_result(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            shards,
            card,
            files,
            scan,
        })
    }

    /// The report of `pybench verify`, if the dataset has one.
    fn proof(&self) -> Option<PathBuf> {
        let path = self.folder.join("proof.json");
        path.is_file().then_some(path)
    }

    /// A checked copy without the rows that match benchmarks, in this folder. Word sequences that were common in the dataset
    /// may not be common without these rows, so copies are made until no row matches.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if every row matches; errors of the disk.
    fn without_matches(mut self, scrubber: &Scrubber, copies: &Path) -> Result<Self, RunError> {
        let has_proof = self.proof().is_some();
        let (source, rows) = (self.folder.clone(), self.scan.benchmarks.rows);
        let mut benchmarks = BenchmarkMatches {
            rows,
            unread: self.scan.benchmarks.unread,
            action: MatchAction::Dropped,
            matches: Vec::new(),
        };
        for number in 1.. {
            let found = std::mem::take(&mut self.scan.benchmarks);
            if found.matches.is_empty() {
                break;
            }
            let left_out = found.matches.iter().map(|found| found.row).collect();
            benchmarks.matches.extend(found.matches);
            if benchmarks.matches.len() == rows {
                return Err(RunError::BadInput(format!(
                    "{}: every row matches tasks or files of benchmarks ({}), so there is nothing to publish; \
                     --allow-contaminated publishes them, and the card says so",
                    source.display(),
                    benchmarks.counts()
                )));
            }
            let copy = copies.join(format!("copy-{number}"));
            without_rows(
                &self.folder,
                &copy,
                "pybench publish",
                (found.rows, &left_out),
            )?;
            let clean = Self::read(&copy, scrubber)?;
            let card = card::with_origin(&clean.card, &self.card);
            self = Self { card, ..clean };
        }
        report_left_out(&benchmarks, has_proof);
        self.scan.benchmarks = benchmarks;
        Ok(self)
    }

    fn into_package(
        self,
        repo: Option<&str>,
        temporary: Option<TempDir>,
    ) -> Result<Package, RunError> {
        let title = card::title(&self.card).unwrap_or("dataset").to_owned();
        let mut package = Package::new(Kind::Dataset, title, owns).keeping(temporary);
        for (path, file) in self.shards.iter().chain(&self.files) {
            package.file(path, file)?;
        }
        if let Some(proof) = self.proof() {
            package.file("proof.json", &proof)?;
        }
        let plots = plots(&self.folder)?;
        for (name, svg) in &plots {
            package.bytes(&format!("plots/{name}"), svg.clone())?;
        }
        for (number, lines) in (1..).zip(&self.scan.traces) {
            package.bytes(&format!("traces/session-{number:06}.jsonl"), lines.clone())?;
        }
        let extra = ExtraFiles {
            plots: plots.iter().map(|(name, _)| *name).collect(),
            sessions: self.scan.traces.len(),
        };
        package.notes = self.scan.notes(&self.card);
        package.with_card(super::card::dataset(&self.card, repo, &extra))
    }
}

/// Name the rows that are left out.
fn report_left_out(benchmarks: &BenchmarkMatches, has_proof: bool) {
    tracing::warn!(
        "{} of {} rows match tasks or files of benchmarks ({}) and are left out; --allow-contaminated publishes them",
        benchmarks.matches.len(),
        benchmarks.rows,
        benchmarks.counts()
    );
    for line in benchmarks.lines() {
        tracing::warn!("{line}");
    }
    if has_proof {
        tracing::warn!(
            "proof.json is of all rows and is left out too; to publish one, write the other rows with `{} dataset \
             decontaminate` and verify them",
            invocation()
        );
    }
}

/// Whether this program manages a path in dataset repositories.
fn owns(path: &str) -> bool {
    let folders = ["data/", "files/", "plots/", "traces/"];
    ["README.md", "proof.json"].contains(&path) || folders.iter().any(|f| path.starts_with(f))
}

/// Problems that prevent publication.
#[derive(Debug, Default)]
struct Problems {
    listed: Vec<String>,
    count: usize,
}

impl Problems {
    fn add(&mut self, problem: impl Into<String>) {
        self.count += 1;
        if self.listed.len() < MAX_LISTED {
            self.listed.push(problem.into());
        }
    }

    /// An error with the problems, if there are any.
    fn into_result(self, folder: &Path) -> Result<(), RunError> {
        if self.count == 0 {
            return Ok(());
        }
        let mut text = format!("{} cannot be published:", folder.display());
        for problem in &self.listed {
            text += &format!("\n  {problem}");
        }
        if self.count > self.listed.len() {
            text += &format!("\n  and {} more", self.count - self.listed.len());
        }
        Err(RunError::BadInput(text))
    }
}

/// List the shards and check that none is missing. The card refers to them by a pattern, so a missing shard would not
/// be noticed later.
fn shards(folder: &Path, problems: &mut Problems) -> Result<Vec<(String, PathBuf)>, RunError> {
    let mut shards = Vec::new();
    let mut splits: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
    for shard in read::shards(folder).map_err(to_run_error)? {
        let name = shard.path.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        match parse_shard_name(&name) {
            Some(numbers) => splits.entry(shard.split).or_default().push(numbers),
            None => problems.add(format!(
                "{name}: unexpected file name; expected SPLIT-00000-of-000NN.parquet"
            )),
        }
        if !is_plain_file(&shard.path) {
            problems.add(format!("{name} is not a regular file (is it a link?)"));
        }
        shards.push((format!("data/{name}"), shard.path));
    }
    for (split, found) in &splits {
        let count = found[0].1;
        let whole = found
            .iter()
            .enumerate()
            .all(|(at, one)| *one == (at, count));
        if !whole || found.len() != count {
            problems.add(format!(
                "shards of {split} are missing or belong to different datasets: found {} of {count} files",
                found.len()
            ));
        }
    }
    if !splits.contains_key("train") {
        problems.add("the train split is missing");
    }
    Ok(shards)
}

/// Parse the numbers of a shard: 2 and 5 for `train-00002-of-00005.parquet`.
fn parse_shard_name(name: &str) -> Option<(usize, usize)> {
    let stem = name.strip_suffix(".parquet")?;
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (split, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    let plain = !split.is_empty() && split.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    if !(plain && digits(number) && digits(count)) {
        return None;
    }
    Some((number.parse().ok()?, count.parse().ok()?))
}

fn is_plain_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file())
}

/// Result of reading all rows.
struct RowScan {
    digest: String,
    rows: BTreeMap<String, usize>,
    /// The first rows as traces (JSON lines).
    traces: Vec<String>,
    /// What they have in common with known benchmarks.
    benchmarks: BenchmarkMatches,
}

impl RowScan {
    fn notes(&self, card: &str) -> Vec<String> {
        let rows = self.rows.iter().map(|(split, n)| format!("{split} {n}"));
        let rows = rows.collect::<Vec<_>>().join(", ");
        let mut notes = vec![
            format!("rows: {rows}; all hashes match, no secrets found"),
            format!("digest of all rows: {}, as stated in the card", self.digest),
        ];
        if card.contains("Not verified yet.") {
            notes.push(format!(
                "not verified: `{} verify` of the same dataset re-executes the rows and writes the result to the card",
                invocation()
            ));
        }
        if self.benchmarks.action != MatchAction::Dropped {
            let warning = self.benchmarks.warning();
            notes.extend(warning.map(|warning| format!("warning: {warning}")));
        }
        notes
    }
}

/// Read and check every row.
fn scan_rows(
    folder: &Path,
    scrubber: &Scrubber,
    problems: &mut Problems,
) -> Result<RowScan, RunError> {
    let (mut digest, mut rows) = (DatasetDigest::default(), BTreeMap::<String, usize>::new());
    let (mut traces, mut search) = (Vec::new(), BenchmarkSearch::default());
    let files = file_search(folder)?;
    for row in read::dataset(folder).map_err(to_run_error)? {
        let (split, row) = row.map_err(to_run_error)?;
        digest.add(&split, &row_digest(&row));
        let number = rows.entry(split.clone()).or_default();
        *number += 1;
        search.add(RowPrint::of(&row, &files));
        let location = format!("{split} row {number}");
        for problem in row_hashes::problems(&row) {
            problems.add(format!("{location}: {problem}"));
        }
        if traces.len() < MAX_TRACES {
            traces.push(trace(&row)?);
        }
        let found = scrubber.row(&mut row.clone());
        if found.total() > 0 {
            problems.add(format!("{location} contains {found}"));
        }
    }
    if rows.values().sum::<usize>() == 0 {
        problems.add("the dataset has no rows");
    }
    Ok(RowScan {
        digest: digest.digest().to_string(),
        rows,
        traces,
        benchmarks: search.finish(&files),
    })
}

/// Search what the rows do not show: other columns and the footers of the shards.
fn scan_shards(
    shards: &[(String, PathBuf)],
    scrubber: &Scrubber,
    problems: &mut Problems,
) -> Result<(), RunError> {
    for (name, path) in shards {
        let scan = scrubber
            .shard(path)
            .map_err(RunError::io(path.display().to_string()))?;
        if !scan.is_clean() {
            problems.add(format!("{name} {scan}"));
        }
    }
    Ok(())
}

/// A row in the Hub's format for agent traces.
fn trace(row: &Row) -> Result<String, RunError> {
    let (lines, _) = Schema::Traces.write(&of_row(row, true));
    let mut text = String::new();
    for line in &lines {
        text += &serde_json::to_string(line)?;
        text.push('\n');
    }
    Ok(text)
}

/// Read a small text file; `None` if it does not exist.
fn text(path: &Path) -> Result<Option<String>, RunError> {
    let io = |error| RunError::io(path.display().to_string())(error);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io(error)),
        Ok(metadata) if !metadata.is_file() || metadata.len() > MAX_TEXT_BYTES => {
            let path = path.display();
            let text = format!(
                "{path}: not a regular file, or larger than {} MiB",
                MAX_TEXT_BYTES >> 20
            );
            Err(RunError::BadInput(text))
        }
        Ok(_) => fs::read_to_string(path).map(Some).map_err(io),
    }
}

/// Check that the card and proof.json belong to these rows.
fn check_texts(
    folder: &Path,
    card: &str,
    scan: &RowScan,
    scrubber: &Scrubber,
    problems: &mut Problems,
) -> Result<(), RunError> {
    match card::digest(card) {
        Some(digest) if digest == scan.digest => {}
        Some(digest) => problems.add(format!(
            "README.md is the card of other rows: it states the digest {digest}, but the rows have {}",
            scan.digest
        )),
        None => problems.add("README.md has no digest of all rows: it was not written by pybench"),
    }
    if !card.starts_with("---\n") {
        problems.add("README.md has no YAML header (---)");
    }
    let found = scrubber.text(card).found;
    if found.total() > 0 {
        problems.add(format!("README.md contains {found}"));
    }
    if let Some(proof) = text(&folder.join("proof.json"))? {
        let searched = scrubber.file(proof.as_bytes());
        if !searched.is_clean() {
            problems.add(format!("proof.json {searched}"));
        }
        let proof: Value = serde_json::from_str(&proof).unwrap_or_default();
        if proof["digest"].as_str() != Some(scan.digest.as_str()) {
            problems.add(format!(
                "proof.json is of other rows: run `{} verify {}` again, or delete the file",
                invocation(),
                run_argument(folder)
            ));
        }
    }
    Ok(())
}

/// List and check the input files in the dataset, which are named by their BLAKE3.
fn files(
    folder: &Path,
    scrubber: &Scrubber,
    problems: &mut Problems,
) -> Result<Vec<(String, PathBuf)>, RunError> {
    let root = folder.join(FILES_DIR);
    let mut files = Vec::new();
    if !root.is_dir() {
        return Ok(files);
    }
    for part in entries(&root)? {
        let prefix = part.file_name().unwrap_or_default();
        let prefix = prefix.to_string_lossy().into_owned();
        for file in entries(&part)? {
            let name = file.file_name().unwrap_or_default();
            let name = name.to_string_lossy().into_owned();
            if !is_plain_file(&file) {
                problems.add(format!(
                    "files/…/{name} is not a regular file (is it a link?)"
                ));
                continue;
            }
            let bytes = read_regular(&file, MAX_INPUT_BYTES);
            let bytes = bytes.map_err(RunError::io(file.display().to_string()))?;
            let digest = blake3::hash(&bytes).to_hex();
            if digest.as_str() != name || digest[..2] != *prefix {
                problems.add(format!("files/…/{name}: contents do not match the name"));
            }
            let scan = scrubber.file(&bytes);
            if !scan.is_clean() {
                problems.add(format!("files/…/{name} {scan}"));
            }
            files.push((format!("{FILES_DIR}/{prefix}/{name}"), file));
        }
    }
    Ok(files)
}

/// The sorted entries of a folder; empty if the path is not a folder.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, RunError> {
    let io = |error| RunError::io(folder.display().to_string())(error);
    if !fs::symlink_metadata(folder).map_err(io)?.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).map_err(io)?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, _>>()
        .map_err(io)?;
    paths.sort();
    Ok(paths)
}

/// Draw the plots. Tokens are counted by the built-in tokenizer, so that the plots are the same on all machines.
fn plots(folder: &Path) -> Result<Vec<(&'static str, String)>, RunError> {
    let counter = TokenCounter::Cl100k;
    let mut survey = Survey::new(&counter);
    let read = samples::read(folder, &mut |sample| {
        survey.add(&sample, &counter);
        Ok(())
    });
    read.map_err(|error| RunError::BadInput(error.to_string()))?;
    Ok(survey.plots())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_shards_are_parsed_strictly() {
        assert_eq!(
            parse_shard_name("train-00002-of-00005.parquet"),
            Some((2, 5))
        );
        for wrong in [
            "train.parquet",
            "train-2-of-5.parquet",
            "train-00002-of-00005.parquet.bak",
            "-00002-of-00005.parquet",
            "tr/ain-00002-of-00005.parquet",
            "train-0000a-of-00005.parquet",
        ] {
            assert_eq!(parse_shard_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn all_problems_are_counted_and_the_first_are_listed() {
        let mut problems = Problems::default();
        for number in 0..MAX_LISTED + 3 {
            problems.add(format!("problem {number}"));
        }
        let error = problems
            .into_result(Path::new("d"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("problem 9\n  and 3 more"), "{error}");
    }
}
