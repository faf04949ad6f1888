//! The audit tests the checks of every template with the real interpreter and the real checker.
//!
//! It writes tasks for each template from fixture files. The expert must pass twice with equal observations,
//! and the alternative must pass. The reference must share no code with the expert. All wrong solutions must
//! fail: doing nothing, echoing, copying, leaving empty files, every mutant of the template and of the
//! checker, and the deliberate faults of runs. Where a template states its requirements, a mutant that violates one
//! of them must fail by the checks that decide it and by no others.

pub mod attempt;
pub mod fixtures;
mod matrix;
mod report;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use futures::StreamExt;
use pybench_checks::{CheckError, Checker};
use pybench_interpreter::Interpreter;
use pybench_run::RunError;
use pybench_types::id::Digest;
use pybench_types::task::{Profile, SourceFile, Task};
use pybench_types::trajectory::{Finding, Outcome};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::expert::faults;
use super::{Deviation, Draft, DraftError, Library, Script, Template};
use attempt::{AttemptResult, attempt};
use fixtures::Fixtures;
pub use matrix::{matrix, matrix_markdown};
pub use report::{AuditRow, RequirementRow, Tally, summary, table};

/// Minimum number of wrong solutions per template.
const MIN_MUTANTS: usize = 8;
/// Longest line that reference and expert may share, in characters without white space.
const SHARED_LINE: usize = 25;
/// Maximum number of combinations of fixture files per template.
const MAX_COMBINATIONS: usize = 500;
/// How many drafts are tried for a task whose reference may refuse them.
const MAX_REFUSALS: usize = 40;
/// How often such a task is drawn on the same files.
const MAX_DRAWS: usize = 8;

#[derive(Clone, Debug, Default)]
pub struct AuditOptions {
    /// Template ids; empty audits all.
    pub templates: Vec<String>,
    /// Tasks audited in parallel, at least 1.
    pub jobs: usize,
    /// One task per file type instead of one per family (table, document, image, audio).
    pub every_kind: bool,
}

/// The environment of an audit.
pub struct AuditEnv {
    pub library: Arc<Library>,
    pub interpreter: Arc<dyn Interpreter>,
    pub checker: Checker,
    /// Input files for the tasks.
    pub fixtures: Fixtures,
}

/// Audits templates and returns one row per task, sorted by template. `done` is called with each row as soon as
/// it is complete.
///
/// # Errors
/// [`RunError::BadInput`] for an unknown template. Problems of a template are part of its row.
pub async fn audit(
    env: &AuditEnv,
    options: &AuditOptions,
    done: impl Fn(&AuditRow),
) -> Result<Vec<AuditRow>, RunError> {
    let mut work = Vec::new();
    for template in env.library.chosen(&options.templates)? {
        work.extend(drafts(env, template, options.every_kind)?);
    }
    let rows = futures::stream::iter(work)
        .map(|work| async {
            let row = audit_first(env, work).await;
            done(&row);
            row
        })
        .buffer_unordered(options.jobs.max(1));
    let mut rows: Vec<AuditRow> = rows.collect().await;
    rows.sort_by(|a, b| (&a.template, &a.files).cmp(&(&b.template, &b.files)));
    Ok(rows)
}

/// What is audited as one row: the first of these drafts whose files suit the task.
struct AuditItem<'a> {
    template: &'a Template,
    drafts: Vec<Draft<'a>>,
}

/// Drafts for each family (or type) of input files, with alternating languages: one, or several where the reference
/// may refuse the files. A single row without drafts if no fixture fits.
fn drafts<'a>(
    env: &'a AuditEnv,
    template: &'a Template,
    every_kind: bool,
) -> Result<Vec<AuditItem<'a>>, RunError> {
    let Fixtures { files, store, .. } = &env.fixtures;
    let seed = Digest::of_json(&("audit", template.name())).seed();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let combinations = template.combinations(files, MAX_COMBINATIONS, store, &mut rng)?;
    let (most, draws) = match template.has_conditions(true) {
        true => (MAX_REFUSALS, MAX_DRAWS),
        false => (1, 1),
    };
    let languages = template.languages();
    let mut groups: Vec<Vec<&str>> = Vec::new();
    let mut work: Vec<AuditItem<'_>> = Vec::new();
    for combination in std::iter::repeat_n(&combinations, draws).flatten() {
        let files: Vec<_> = combination.iter().map(|index| &files[*index]).collect();
        let group: Vec<_> = files.iter().map(|file| group(file, every_kind)).collect();
        let place = groups.iter().position(|known| *known == group);
        let place = place.unwrap_or_else(|| {
            groups.push(group);
            work.push(AuditItem {
                template,
                drafts: Vec::new(),
            });
            work.len() - 1
        });
        if work[place].drafts.len() >= most {
            continue;
        }
        if let Some(slots) = template.draw(&files, &mut rng) {
            work[place].drafts.push(Draft {
                template,
                files,
                slots,
                language: languages[(seed as usize + place) % languages.len()],
                phrasing: 0,
                seed,
            });
        }
    }
    if work.is_empty() {
        work.push(AuditItem {
            template,
            drafts: Vec::new(),
        });
    }
    Ok(work)
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

async fn audit_first(env: &AuditEnv, work: AuditItem<'_>) -> AuditRow {
    let mut refused = BTreeMap::new();
    for draft in &work.drafts {
        let mut row = empty_row(work.template);
        row.files = draft.files.iter().map(|file| file.name.clone()).collect();
        row.slots = draft.slots.clone();
        match suitable_task(env, draft).await {
            Ok(task) => {
                let audit = TaskAudit {
                    env,
                    task: &task,
                    row: &mut row,
                };
                audit.run().await;
            }
            Err(NotAudited::Unfit(reason)) => {
                *refused.entry(reason).or_default() += 1;
                continue;
            }
            Err(NotAudited::Problem(problem)) => row.problems.push(problem),
        }
        row.refused = refused;
        return row;
    }
    let mut row = empty_row(work.template);
    row.refused = refused;
    row.problems.push(match work.drafts.len() {
        0 => "no fixture file fits its inputs".to_owned(),
        count => format!("its reference refused the fixture files in each of {count} drafts"),
    });
    row
}

fn empty_row(template: &Template) -> AuditRow {
    AuditRow {
        requirements: matrix::rows(template),
        ..AuditRow::new(template.name())
    }
}

/// Why a draft is not audited.
enum NotAudited {
    /// The reference refuses the files.
    Unfit(String),
    Problem(String),
}

/// Writes the task of a draft, unless its reference refuses the files or a violation would not show.
async fn suitable_task(env: &AuditEnv, draft: &Draft<'_>) -> Result<Task, NotAudited> {
    let (library, store) = (&env.library, &env.fixtures.store);
    let problem = |error: DraftError| NotAudited::Problem(error.to_string());
    if draft.template.has_conditions(true) {
        let probe = draft.write_probe(library, store).map_err(problem)?;
        match env.checker.check_fit(&probe, store).await {
            Err(CheckError::Unfit(reason)) => return Err(NotAudited::Unfit(reason)),
            Err(error) => return Err(NotAudited::Problem(format!("checker: {error}"))),
            Ok(()) => {}
        }
    }
    draft.write(library, store).map_err(problem)
}

/// The audit of one task. Problems are added to the row and do not stop the audit.
struct TaskAudit<'a> {
    env: &'a AuditEnv,
    task: &'a Task,
    row: &'a mut AuditRow,
}

impl TaskAudit<'_> {
    async fn run(mut self) {
        let (env, task) = (self.env, self.task);
        let script = match Script::new(&env.library, task) {
            Ok(script) => script,
            Err(error) => return self.row.problems.push(error.to_string()),
        };
        self.check_reference_is_independent(&script);
        let expert = self.expert(&script).await;
        self.alternative(&script).await;
        for (index, mutant) in script.template().mutants.iter().enumerate() {
            let name = format!("own: {}", mutant.name.get_ref());
            let attempted = self
                .must_fail(name, &script, Deviation::Mutant(index))
                .await;
            if let (Some(expert), Some((result, findings))) = (&expert, attempted) {
                matrix::judge(
                    self.row,
                    script.template(),
                    mutant,
                    matrix::Violation {
                        expert,
                        result,
                        findings,
                    },
                );
            }
        }
        matrix::judge_checks(self.row);
        for (name, deviation) in faults(&script) {
            if !matches!(deviation, Deviation::Mutant(_)) {
                self.must_fail(format!("fault: {name}"), &script, deviation)
                    .await;
            }
        }
        if self.row.mutants.total < MIN_MUTANTS {
            let few = format!(
                "only {} wrong solutions were tested; at least {MIN_MUTANTS} are needed",
                self.row.mutants.total
            );
            self.row.problems.push(few);
        }
    }

    fn check_reference_is_independent(&mut self, script: &Script<'_>) {
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

    /// The expert must pass, a second run must have equal observations, and the checker's mutants of its outputs
    /// must fail.
    async fn expert(&mut self, script: &Script<'_>) -> Option<AttemptResult> {
        let first = self.attempt(script, Deviation::Honest, "expert").await?;
        self.check_mistakes(script, &first);
        if let Some(second) = self
            .attempt(script, Deviation::Honest, "expert again")
            .await
        {
            self.row.repeat =
                first.observations == second.observations && first.outputs == second.outputs;
            if !self.row.repeat {
                let difference = attempt::difference(&first, &second);
                self.row
                    .problems
                    .push(format!("a second run differs: {difference}"));
            }
        }
        let store = &self.env.fixtures.store;
        let audited = self
            .env
            .checker
            .audit(self.task, store, &first.candidate)
            .await;
        match audited {
            Ok(rows) => rows
                .into_iter()
                .for_each(|(name, findings)| self.judge(name, &findings)),
            Err(error) => self.row.problems.push(format!("checker: {error}")),
        }
        Some(first)
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

    fn check_mistakes(&mut self, script: &Script<'_>, result: &AttemptResult) {
        let turns = script.template().turns.iter().zip(&result.observations);
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
        let result = self
            .attempt(script, Deviation::Alternative, "alternative")
            .await;
        let Some(result) = result else { return };
        let raised = result
            .observations
            .iter()
            .find_map(|seen| seen.error.as_ref());
        if let Some(error) = raised {
            let problem = format!("the alternative raised {}: {}", error.ename, error.evalue);
            self.row.problems.push(problem);
        }
        match self.check(&result).await {
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

    /// Runs a wrong solution, which must fail, and returns what came of it.
    async fn must_fail(
        &mut self,
        name: String,
        script: &Script<'_>,
        deviation: Deviation,
    ) -> Option<(AttemptResult, Vec<Finding>)> {
        let result = self.attempt(script, deviation, &name).await?;
        match self.check(&result).await {
            Ok(findings) => {
                self.judge(name, &findings);
                Some((result, findings))
            }
            Err(error) => {
                self.row.problems.push(format!("{name}: checker: {error}"));
                None
            }
        }
    }

    async fn check(&self, result: &AttemptResult) -> Result<Vec<Finding>, CheckError> {
        let store = &self.env.fixtures.store;
        self.env
            .checker
            .check(self.task, store, &result.candidate)
            .await
    }

    async fn attempt(
        &mut self,
        script: &Script<'_>,
        deviation: Deviation,
        what: &str,
    ) -> Option<AttemptResult> {
        let script = script.clone().deviating(deviation);
        match attempt(self.env, self.task, &script).await {
            Ok(result) => Some(result),
            Err(error) => {
                self.row.problems.push(format!("{what}: {error}"));
                None
            }
        }
    }
}

pub fn passes(findings: &[Finding]) -> bool {
    !findings.is_empty()
        && findings
            .iter()
            .all(|finding| finding.outcome == Outcome::Pass)
}

pub fn reasons(findings: &[Finding]) -> String {
    let failed = findings
        .iter()
        .filter(|finding| finding.outcome != Outcome::Pass);
    let reasons: Vec<_> = failed
        .map(|f| format!("{}: {}", f.subject, f.detail))
        .collect();
    reasons.join("; ")
}

/// Long lines that both programs share, ignoring white space and imports.
fn shared_lines(one: &str, other: &str) -> Vec<String> {
    fn normalized(code: &str) -> impl Iterator<Item = String> {
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
    let known: HashSet<_> = normalized(one).collect();
    let mut shared: Vec<_> = normalized(other)
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
