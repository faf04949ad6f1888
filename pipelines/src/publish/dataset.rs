//! A dataset that may leave: every row as it was written, nothing secret in it, all shards there, and the card
//! of exactly these rows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pybench::run::RunError;
use pybench_datasets::dataset::FILES;
use pybench_datasets::exchange::{Schema, of_row};
use pybench_datasets::proof::{self, Root, row_digest};
use pybench_datasets::scrub::{Found, Scrubber};
use pybench_datasets::survey::Survey;
use pybench_datasets::tokens::Counter;
use pybench_datasets::{Row, card, read, samples};
use serde_json::Value;

use super::Package;
use super::card::Beside;
use crate::dataset::{FromArgs, bad};
use crate::hub::Kind;

/// Sessions shown as the Hub shows traces of agents.
const SESSIONS: usize = 10;
/// Problems told one by one.
const TOLD: usize = 10;
/// Most bytes of a card or a proof.
const TEXT: u64 = 16 << 20;

/// The repository of a dataset.
///
/// # Errors
/// [`RunError::BadInput`] with everything that keeps it from being published.
pub(super) fn package(what: &Path, repo: Option<&str>) -> Result<Package, RunError> {
    let from = FromArgs {
        dataset: what.to_owned(),
    };
    let folder = from.folder()?;
    let mut problems = Problems::default();
    let shards = shards(&folder, &mut problems)?;
    let card = text(&folder.join("README.md"))?;
    let card = card.ok_or_else(|| {
        let path = folder.display();
        RunError::BadInput(format!("{path} has no README.md: no card says what it is"))
    })?;
    let scrubber = Scrubber::of_machine();
    let looked = look(&folder, &scrubber, &mut problems)?;
    check_texts(&folder, &card, &looked, &scrubber, &mut problems)?;
    let files = files(&folder, &scrubber, &mut problems)?;
    problems.none(&folder)?;

    let title = card::title(&card).unwrap_or("dataset").to_owned();
    let mut package = Package::new(Kind::Dataset, title, owns);
    for (path, file) in shards.into_iter().chain(files) {
        package.file(&path, &file)?;
    }
    let proof = folder.join("proof.json");
    if proof.is_file() {
        package.file("proof.json", &proof)?;
    }
    let plots = plots(&folder)?;
    for (name, svg) in &plots {
        package.bytes(&format!("plots/{name}"), svg.clone())?;
    }
    for (number, lines) in (1..).zip(&looked.sessions) {
        package.bytes(&format!("traces/session-{number:06}.jsonl"), lines.clone())?;
    }
    let beside = Beside {
        plots: plots.iter().map(|(name, _)| *name).collect(),
        sessions: looked.sessions.len(),
    };
    package.notes = looked.notes(&card);
    package.with_card(super::card::dataset(&card, repo, &beside))
}

/// What this program writes into repositories of datasets.
fn owns(path: &str) -> bool {
    let folders = ["data/", "files/", "plots/", "traces/"];
    ["README.md", "proof.json"].contains(&path) || folders.iter().any(|f| path.starts_with(f))
}

/// What keeps a dataset from being published.
#[derive(Debug, Default)]
struct Problems {
    told: Vec<String>,
    all: usize,
}

impl Problems {
    fn add(&mut self, problem: impl Into<String>) {
        self.all += 1;
        if self.told.len() < TOLD {
            self.told.push(problem.into());
        }
    }

    fn none(self, folder: &Path) -> Result<(), RunError> {
        if self.all == 0 {
            return Ok(());
        }
        let mut text = format!("{} may not be published:", folder.display());
        for problem in &self.told {
            text += &format!("\n  {problem}");
        }
        if self.all > self.told.len() {
            text += &format!("\n  and {} more", self.all - self.told.len());
        }
        Err(RunError::BadInput(text))
    }
}

/// The shards with their places, of which none may be missing: the card names them by a pattern, and nobody
/// would see that one is not there.
fn shards(folder: &Path, problems: &mut Problems) -> Result<Vec<(String, PathBuf)>, RunError> {
    let mut shards = Vec::new();
    let mut splits: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
    for shard in read::shards(folder).map_err(bad)? {
        let name = shard.path.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        match numbers(&name) {
            Some(numbers) => splits.entry(shard.split).or_default().push(numbers),
            None => problems.add(format!(
                "{name}: expected SPLIT-00000-of-000NN.parquet, as the card names it"
            )),
        }
        if !is_plain_file(&shard.path) {
            problems.add(format!("{name} is no file of its own (a link?)"));
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
                "shards of {split} are missing or of several makings: {} files of {count}",
                found.len()
            ));
        }
    }
    if !splits.contains_key("train") {
        problems.add("there is no train split");
    }
    Ok(shards)
}

/// `train-00002-of-00005.parquet`: 2 and 5.
fn numbers(name: &str) -> Option<(usize, usize)> {
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

/// What reading all rows found.
struct Looked {
    digest: String,
    rows: BTreeMap<String, usize>,
    /// The first sessions, as lines.
    sessions: Vec<String>,
}

impl Looked {
    fn notes(&self, card: &str) -> Vec<String> {
        let rows = self.rows.iter().map(|(split, n)| format!("{split} {n}"));
        let rows = rows.collect::<Vec<_>>().join(", ");
        let mut notes = vec![
            format!("rows: {rows}; each as its hashes say, and nothing secret found in any"),
            format!("digest of all rows: {}, as the card says", self.digest),
        ];
        if card.contains("Not verified yet.") {
            notes
                .push("not verified: `just verify` runs the rows again and stamps the card".into());
        }
        notes
    }
}

/// Read every row.
fn look(folder: &Path, scrubber: &Scrubber, problems: &mut Problems) -> Result<Looked, RunError> {
    let (mut root, mut rows) = (Root::default(), BTreeMap::<String, usize>::new());
    let mut sessions = Vec::new();
    for row in read::dataset(folder).map_err(bad)? {
        let (split, row) = row.map_err(bad)?;
        root.add(&split, &row_digest(&row));
        let number = rows.entry(split.clone()).or_default();
        *number += 1;
        let place = format!("{split} row {number}");
        for flaw in proof::flaws(&row) {
            problems.add(format!("{place}: {flaw}"));
        }
        if sessions.len() < SESSIONS {
            sessions.push(session(&row)?);
        }
        let found = scrubber.row(&mut row.clone());
        if found.total() > 0 {
            problems.add(format!("{place} holds {}", kinds(&found)));
        }
    }
    if rows.values().sum::<usize>() == 0 {
        problems.add("it has no rows");
    }
    Ok(Looked {
        digest: root.digest().to_string(),
        rows,
        sessions,
    })
}

/// What was found, without it.
fn kinds(found: &Found) -> String {
    let kinds = found.0.keys().map(|kind| kind.placeholder());
    format!(
        "what has to be taken out first: {}",
        kinds.collect::<Vec<_>>().join(", ")
    )
}

/// A row as the Hub shows traces of agents.
fn session(row: &Row) -> Result<String, RunError> {
    let (lines, _) = Schema::Traces.write(&of_row(row, true));
    let mut text = String::new();
    for line in &lines {
        text += &serde_json::to_string(line)?;
        text.push('\n');
    }
    Ok(text)
}

/// A small file as text; `None` where there is none.
fn text(path: &Path) -> Result<Option<String>, RunError> {
    let io = |error| RunError::io(path.display().to_string())(error);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io(error)),
        Ok(metadata) if !metadata.is_file() || metadata.len() > TEXT => {
            let path = path.display();
            let text = format!(
                "{path}: no file of its own, or larger than {} MiB",
                TEXT >> 20
            );
            Err(RunError::BadInput(text))
        }
        Ok(_) => fs::read_to_string(path).map(Some).map_err(io),
    }
}

/// Card and proof have to be of these rows.
fn check_texts(
    folder: &Path,
    card: &str,
    looked: &Looked,
    scrubber: &Scrubber,
    problems: &mut Problems,
) -> Result<(), RunError> {
    match card::digest(card) {
        Some(digest) if digest == looked.digest => {}
        Some(digest) => problems.add(format!(
            "README.md is the card of other rows: it names {digest}, these are {}",
            looked.digest
        )),
        None => problems.add("README.md names no digest of all rows: it is no card of ours"),
    }
    if !card.starts_with("---\n") {
        problems.add("README.md does not begin with a header (---)");
    }
    let found = scrubber.text(card).found;
    if found.total() > 0 {
        problems.add(format!("README.md holds {}", kinds(&found)));
    }
    if let Some(proof) = text(&folder.join("proof.json"))? {
        let proof: Value = serde_json::from_str(&proof).unwrap_or_default();
        if proof["digest"].as_str() != Some(looked.digest.as_str()) {
            problems.add("proof.json is of other rows: `just verify` again, or delete it");
        }
    }
    Ok(())
}

/// The input files that the dataset carries, each under its BLAKE3.
fn files(
    folder: &Path,
    scrubber: &Scrubber,
    problems: &mut Problems,
) -> Result<Vec<(String, PathBuf)>, RunError> {
    let root = folder.join(FILES);
    let mut files = Vec::new();
    if !root.is_dir() {
        return Ok(files);
    }
    for part in entries(&root)? {
        let place = part.file_name().unwrap_or_default();
        let place = place.to_string_lossy().into_owned();
        for file in entries(&part)? {
            let name = file.file_name().unwrap_or_default();
            let name = name.to_string_lossy().into_owned();
            if !is_plain_file(&file) {
                problems.add(format!("files/…/{name} is no file of its own (a link?)"));
                continue;
            }
            let bytes = fs::read(&file).map_err(RunError::io(file.display().to_string()))?;
            let digest = blake3::hash(&bytes).to_hex();
            if digest.as_str() != name || digest[..2] != *place {
                problems.add(format!("files/…/{name} has other bytes than its name says"));
            }
            let found = scrubber.file(&bytes);
            if found.total() > 0 {
                problems.add(format!("files/…/{name} holds {}", kinds(&found)));
            }
            files.push((format!("{FILES}/{place}/{name}"), file));
        }
    }
    Ok(files)
}

/// The entries of a folder by name; of what is none, nothing.
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

/// Counted without a tokenizer, so that all machines draw the same.
fn plots(folder: &Path) -> Result<Vec<(&'static str, String)>, RunError> {
    let counter = Counter::QuarterOfBytes;
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
    fn names_of_shards_are_exact() {
        assert_eq!(numbers("train-00002-of-00005.parquet"), Some((2, 5)));
        for wrong in [
            "train.parquet",
            "train-2-of-5.parquet",
            "train-00002-of-00005.parquet.bak",
            "-00002-of-00005.parquet",
            "tr/ain-00002-of-00005.parquet",
            "train-0000a-of-00005.parquet",
        ] {
            assert_eq!(numbers(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn problems_are_all_counted_and_the_first_told() {
        let mut problems = Problems::default();
        for number in 0..TOLD + 3 {
            problems.add(format!("problem {number}"));
        }
        let error = problems.none(Path::new("d")).unwrap_err().to_string();
        assert!(error.contains("problem 9\n  and 3 more"), "{error}");
    }
}
