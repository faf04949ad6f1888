//! The benchmarks. Each is a folder and a line of [`SUITES`].
//!
//! Tests name the other places that a new benchmark needs: a row in `docs/suites.md`, its name in `just audit-suites`, the page of
//! its audit in `docs/suite-audits/`, and the fingerprints of its tasks (`just fingerprints`).

pub mod answers;
pub mod da_dev;
pub mod evalplus;
#[cfg(test)]
mod evaluator_tests;
mod executed;
pub mod gsm8k;
pub mod m3tooleval;
pub mod mint;
pub mod mmlu;
pub mod pybench;
mod python_literal;
mod python_number;
pub mod qrdata;
pub mod wikitablequestions;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pybench_net::git_origin::own_checkout;
use pybench_run::RunError;
use pybench_run::project::invocation;

use crate::suite::{Origin, Suite};

/// All benchmarks.
pub const SUITES: &[Entry] = &[
    pybench::ENTRY,
    pybench::REGENERATED_ENTRY,
    wikitablequestions::ENTRY,
    da_dev::ENTRY,
    da_dev::VERIFIED,
    qrdata::ENTRY,
    m3tooleval::ENTRY,
    mint::ENTRY,
    evalplus::HUMANEVAL,
    evalplus::HUMANEVAL_PLUS,
    evalplus::MBPP,
    evalplus::MBPP_PLUS,
    gsm8k::ENTRY,
    mmlu::ENTRY,
];

/// A benchmark that can be opened.
pub struct Entry {
    /// Name in recipes, records and on the command line.
    pub name: &'static str,
    pub origin: &'static Origin,
    /// Opens its files.
    pub open: fn(&Place<'_>) -> Result<Arc<dyn Suite>, RunError>,
}

/// Where the files of benchmarks are looked for.
pub struct Place<'a> {
    /// The machine's cache, which contains what `pybench eval fetch` downloaded.
    pub cache: &'a Path,
    /// The project, if there is one.
    pub project: Option<&'a Path>,
    /// A checkout of PyBench that the user names.
    pub pybench: Option<&'a Path>,
    /// Another list of PyBench tasks (upstream's `--task_path`).
    pub pybench_tasks: Option<&'a Path>,
}

impl Entry {
    /// The checkout of this suite: `$PYBENCH_SUITES/<name>` if the variable is set, else what
    /// `pybench eval fetch` downloaded.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if it does not exist.
    pub fn checkout(&self, place: &Place<'_>) -> Result<PathBuf, RunError> {
        let own = own_checkout(self.name);
        let folder = own.unwrap_or_else(|| self.origin.checkout_dir(place.cache));
        if folder.is_dir() {
            return Ok(folder);
        }
        Err(RunError::BadInput(format!(
            "{}: the files of `{}` are not here; run `{} eval fetch --suite {}` to download them, or run the evaluation with \
             `--fetch`",
            folder.display(),
            self.name,
            invocation(),
            self.name
        )))
    }
}

/// The benchmark with this name.
///
/// # Errors
/// There is none; the message lists all.
pub fn entry(name: &str) -> Result<&'static Entry, String> {
    let found = SUITES.iter().find(|entry| entry.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = SUITES.iter().map(|e| format!("`{}`", e.name)).collect();
        format!("`{name}` is not a suite: use one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The lists that are written by hand have every benchmark.
    #[test]
    fn every_benchmark_is_in_the_documents_and_audited() {
        let documents = include_str!("../../../../docs/suites.md");
        let recipes = include_str!("../../../../justfile");
        let audited = recipes.lines().find(|line| line.contains("|| set -- "));
        let audited: Vec<&str> = audited.unwrap().split([' ', ';']).collect();
        for Entry { name, .. } in SUITES {
            assert!(documents.contains(&format!("`{name}`")), "{name}");
            let is_audited = audited.contains(name) || *name == pybench::SUITE;
            assert!(is_audited, "{name} is not in `just audit-suites`");
            let page = match *name == pybench::SUITE {
                true => "eval-audit.md".to_owned(),
                false => format!("suite-audits/{name}.md"),
            };
            let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
            assert!(docs.join(&page).is_file(), "docs/{page} is missing");
        }
    }
}
