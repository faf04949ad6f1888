//! The audit: every template proves its check, with the real interpreter and the real checker.
//!
//! For each template concrete tasks are written on fixture files. The expert must pass, twice with
//! equal observations; so must the alternative; the reference shares no code with the expert; and
//! whatever is wrong must fail: who did nothing, echoed, copied or left empty files, every mutant of
//! the template and of the checker, and the faults that runs put in on purpose.

pub mod fixtures;
mod report;
pub(super) mod trial;

use std::collections::HashSet;
use std::sync::Arc;

use futures::StreamExt;
use pybench::grade::{CheckError, Checker};
use pybench::id::Digest;
use pybench::interpreter::Interpreter;
use pybench::run::RunError;
use pybench::task::{Language, Profile, SourceFile, Task};
use pybench::trajectory::{Finding, Outcome};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::expert::faults;
use super::{Deviation, Draft, Library, Script, Template};
use fixtures::Fixtures;
pub use report::{Row, Tally, summary, table};
use trial::{Trial, attempt};

/// Wrong answers that must fail per template, at the least.
const LEAST_MUTANTS: usize = 8;
/// A shared line longer than this is shared code.
const SHARED_LINE: usize = 25;
/// Combinations of fixture files looked at per template.
const MOST_COMBINATIONS: usize = 500;

/// What is audited, and how.
#[derive(Clone, Debug, Default)]
pub struct AuditOptions {
    /// Template ids; empty audits all.
    pub templates: Vec<String>,
    /// Tasks at a time, at least 1.
    pub jobs: usize,
    /// One task per file type instead of one per family (table, document, image, audio).
    pub every_kind: bool,
}

/// What the audit works with.
pub struct Bench {
    /// The library.
    pub library: Arc<Library>,
    /// Runs cells.
    pub interpreter: Arc<dyn Interpreter>,
    /// Evaluates checks.
    pub checker: Checker,
    /// Files to write tasks for.
    pub fixtures: Fixtures,
}

/// Audits templates; one row per task, sorted by template. `done` hears of each row as it comes.
///
/// # Errors
/// [`RunError::BadInput`] for an unknown template. What goes wrong with a template is in its row.
pub async fn audit(
    bench: &Bench,
    options: &AuditOptions,
    done: impl Fn(&Row),
) -> Result<Vec<Row>, RunError> {
    let mut work = Vec::new();
    for template in bench.library.chosen(&options.templates)? {
        work.extend(drafts(bench, template, options.every_kind)?);
    }
    let rows = futures::stream::iter(work)
        .map(|work| async {
            let row = match work {
                Ok(draft) => audit_draft(bench, &draft).await,
                Err(row) => *row,
            };
            done(&row);
            row
        })
        .buffer_unordered(options.jobs.max(1));
    let mut rows: Vec<Row> = rows.collect().await;
    rows.sort_by(|a, b| (&a.template, &a.files).cmp(&(&b.template, &b.files)));
    Ok(rows)
}

/// A draft per family (or type) of input files, both languages in turn; or a row that says that no
/// fixture fits.
fn drafts<'a>(
    bench: &'a Bench,
    template: &'a Template,
    every_kind: bool,
) -> Result<Vec<Result<Draft<'a>, Box<Row>>>, RunError> {
    let Fixtures { files, store, .. } = &bench.fixtures;
    let seed = Digest::of_json(&("audit", template.name())).seed();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let combinations = template.combinations(files, MOST_COMBINATIONS, store, &mut rng)?;
    let mut seen = HashSet::new();
    let mut drafts = Vec::new();
    for combination in combinations {
        let files: Vec<_> = combination.iter().map(|index| &files[*index]).collect();
        let group: Vec<_> = files.iter().map(|file| group(file, every_kind)).collect();
        if !seen.insert(group) {
            continue;
        }
        if let Some(slots) = template.draw(&files, &mut rng) {
            let language = [Language::En, Language::Zh][(seed as usize + drafts.len()) % 2];
            let phrasing = 0;
            drafts.push(Ok(Draft {
                template,
                files,
                slots,
                language,
                phrasing,
                seed,
            }));
        }
    }
    if drafts.is_empty() {
        let mut row = Row::new(template.name());
        row.problems.push("no fixture file fits its inputs".into());
        drafts.push(Err(Box::new(row)));
    }
    Ok(drafts)
}

fn group(file: &SourceFile, every_kind: bool) -> &'static str {
    match &file.profile {
        _ if every_kind => file.kind.name(),
        Profile::Table(_) => "table",
        Profile::Document(_) => "document",
        Profile::Image(_) => "image",
        Profile::Audio(_) => "audio",
        Profile::Broken { .. } => "broken",
    }
}

async fn audit_draft(bench: &Bench, draft: &Draft<'_>) -> Row {
    let mut row = Row::new(draft.template.name());
    row.files = draft.files.iter().map(|file| file.name.clone()).collect();
    row.slots = draft.slots.clone();
    match draft.write(&bench.library, &bench.fixtures.store) {
        Ok(task) => {
            let audit = TaskAudit {
                bench,
                task: &task,
                row: &mut row,
            };
            audit.run().await;
        }
        Err(error) => row.problems.push(error.to_string()),
    }
    row
}

/// The audit of one task. What goes wrong is written into the row, and the rest goes on.
struct TaskAudit<'a> {
    bench: &'a Bench,
    task: &'a Task,
    row: &'a mut Row,
}

impl TaskAudit<'_> {
    async fn run(mut self) {
        let (bench, task) = (self.bench, self.task);
        let script = match Script::new(&bench.library, task) {
            Ok(script) => script,
            Err(error) => return self.row.problems.push(error.to_string()),
        };
        self.reference_stands_apart(&script);
        self.expert(&script).await;
        self.alternative(&script).await;
        for (index, mutant) in script.template().mutants.iter().enumerate() {
            let name = format!("own: {}", mutant.name.get_ref());
            self.must_fail(name, &script, Deviation::Mutant(index))
                .await;
        }
        for (name, deviation) in faults(&script) {
            if !matches!(deviation, Deviation::Mutant(_)) {
                self.must_fail(format!("fault: {name}"), &script, deviation)
                    .await;
            }
        }
        if self.row.mutants.total < LEAST_MUTANTS {
            let few = format!(
                "only {} wrong answers, {LEAST_MUTANTS} are needed",
                self.row.mutants.total
            );
            self.row.problems.push(few);
        }
    }

    fn reference_stands_apart(&mut self, script: &Script<'_>) {
        let cells = match script.cells() {
            Ok(cells) => cells.join("\n"),
            Err(error) => return self.row.problems.push(error.to_string()),
        };
        for line in shared_lines(&self.task.reference, &cells) {
            self.row
                .problems
                .push(format!("reference and expert share the line `{line}`"));
        }
    }

    /// The expert passes, does so again with equal observations, and what is made wrong of its
    /// outputs fails.
    async fn expert(&mut self, script: &Script<'_>) {
        let first = self.attempt(script, Deviation::Honest, "expert").await;
        let Some(first) = first else { return };
        self.mistakes_are_where_they_should(script, &first);
        if let Some(second) = self
            .attempt(script, Deviation::Honest, "expert again")
            .await
        {
            self.row.repeat =
                first.observations == second.observations && first.outputs == second.outputs;
            if !self.row.repeat {
                let difference = trial::difference(&first, &second);
                self.row
                    .problems
                    .push(format!("a second run differs: {difference}"));
            }
        }
        let store = &self.bench.fixtures.store;
        let audited = self
            .bench
            .checker
            .audit(self.task, store, &first.candidate)
            .await;
        match audited {
            Ok(rows) => rows
                .into_iter()
                .for_each(|(name, findings)| self.judge(name, &findings)),
            Err(error) => self.row.problems.push(format!("checker: {error}")),
        }
    }

    fn judge(&mut self, name: String, findings: &[Finding]) {
        let passed = passes(findings);
        if name == "original" {
            self.row.expert = passed;
            if !passed {
                self.row
                    .problems
                    .push(format!("the expert fails: {}", reasons(findings)));
            }
            return;
        }
        let tally = match name.starts_with("null: ") {
            true => &mut self.row.baselines,
            false => &mut self.row.mutants,
        };
        tally.total += 1;
        tally.failed += usize::from(!passed);
        if passed {
            self.row
                .problems
                .push(format!("passes, though it is wrong: {name}"));
        }
    }

    fn mistakes_are_where_they_should(&mut self, script: &Script<'_>, trial: &Trial) {
        let turns = script.template().turns.iter().zip(&trial.observations);
        for (index, (turn, observation)) in turns.enumerate() {
            let raised = observation.error.as_ref();
            match (turn.mistake, raised) {
                (true, None) => {
                    let problem =
                        format!("turn {index} is marked as a mistake, but nothing was raised");
                    self.row.problems.push(problem);
                }
                (false, Some(error)) => {
                    let problem = format!("turn {index} raised {}: {}", error.ename, error.evalue);
                    self.row.problems.push(problem);
                }
                _ => {}
            }
        }
    }

    async fn alternative(&mut self, script: &Script<'_>) {
        let trial = self
            .attempt(script, Deviation::Alternative, "alternative")
            .await;
        let Some(trial) = trial else { return };
        let raised = trial
            .observations
            .iter()
            .find_map(|seen| seen.error.as_ref());
        if let Some(error) = raised {
            let problem = format!("the alternative raised {}: {}", error.ename, error.evalue);
            self.row.problems.push(problem);
        }
        match self.check(&trial).await {
            Ok(findings) => {
                self.row.alternative = passes(&findings);
                if !self.row.alternative {
                    self.row
                        .problems
                        .push(format!("the alternative fails: {}", reasons(&findings)));
                }
            }
            Err(error) => self.row.problems.push(format!("checker: {error}")),
        }
    }

    async fn must_fail(&mut self, name: String, script: &Script<'_>, deviation: Deviation) {
        let Some(trial) = self.attempt(script, deviation, &name).await else {
            return;
        };
        match self.check(&trial).await {
            Ok(findings) => self.judge(name, &findings),
            Err(error) => self.row.problems.push(format!("{name}: checker: {error}")),
        }
    }

    async fn check(&self, trial: &Trial) -> Result<Vec<Finding>, CheckError> {
        let store = &self.bench.fixtures.store;
        self.bench
            .checker
            .check(self.task, store, &trial.candidate)
            .await
    }

    async fn attempt(
        &mut self,
        script: &Script<'_>,
        deviation: Deviation,
        what: &str,
    ) -> Option<Trial> {
        let script = script.clone().deviating(deviation);
        match attempt(self.bench, self.task, &script).await {
            Ok(trial) => Some(trial),
            Err(error) => {
                self.row.problems.push(format!("{what}: {error}"));
                None
            }
        }
    }
}

pub(crate) fn passes(findings: &[Finding]) -> bool {
    !findings.is_empty()
        && findings
            .iter()
            .all(|finding| finding.outcome == Outcome::Pass)
}

pub(crate) fn reasons(findings: &[Finding]) -> String {
    let failed = findings
        .iter()
        .filter(|finding| finding.outcome != Outcome::Pass);
    let reasons: Vec<_> = failed
        .map(|f| format!("{}: {}", f.subject, f.detail))
        .collect();
    reasons.join("; ")
}

/// Lines of both programs, white space aside, that are long enough to be the same thought. Imports
/// are free.
fn shared_lines(one: &str, other: &str) -> Vec<String> {
    fn normalised(code: &str) -> impl Iterator<Item = String> {
        let imports = |line: &&str| line.starts_with("import ") || line.starts_with("from ");
        let lines = code
            .lines()
            .map(str::trim)
            .filter(move |line| !imports(line));
        let lines = lines.map(|line| {
            line.chars()
                .filter(|c| !c.is_whitespace())
                .collect::<String>()
        });
        lines.filter(|line| line.chars().count() > SHARED_LINE)
    }
    let known: HashSet<_> = normalised(one).collect();
    let mut shared: Vec<_> = normalised(other)
        .filter(|line| known.contains(line))
        .collect();
    shared.dedup();
    shared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_lines_ignore_space_and_imports() {
        let reference = "import pandas as pd, numpy as np\nfor row in ref.rows(path):\n    total += row[ 'Miles per Gallon' ]\nx = 1\n";
        let cell = "import pandas as pd, numpy as np\ntotal+=row['Miles per Gallon']\nx = 1\n";
        assert_eq!(
            shared_lines(reference, cell),
            ["total+=row['MilesperGallon']"]
        );
    }
}
