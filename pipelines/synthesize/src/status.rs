//! The command `pybench status`: funnel, cost and failures of a run, read from its journal.

mod text;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;

use pybench_run::cli::LogArgs;
use pybench_run::project::{default_runs_dir, find_run, project_root};
use pybench_run::shared::Member;
use pybench_run::{Batch, FailureKind, InFlight, Journal, Pace, RunError, Spent, UnitFailure};
use pybench_types::trajectory::{Outcome, Verdict};
use serde::Serialize;
use serde_json::Value;

use pybench_checks::selection::CHOICES;
use pybench_query as query;
use pybench_query::writer::{CHECKS, CheckValidation, DUPLICATES, WrittenQuery};
use pybench_shard as shard;

/// Maximum examples per kind of failure or rejection.
const EXAMPLES: usize = 3;

/// Stages in pipeline order; other stages follow by name.
const STAGE_ORDER: [&str; 6] = ["crawl", "query", "checks", "rollout", "grade", "shard"];

/// Show the progress of a run: files → tasks → trajectories → accepted, cost, time, failures
#[derive(Clone, Debug, clap::Parser)]
pub struct StatusArgs {
    /// Run (name, folder, or s3://BUCKET/PREFIX/NAME)
    pub run: PathBuf,
    /// Directory with the run folders, which may be s3://BUCKET/PREFIX [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    pub runs_dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub log: LogArgs,
}

/// The progress of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Funnel {
    /// Source files kept; `None` until `crawl` is done.
    pub files: Option<u64>,
    /// Tasks written; `None` until `query` is done.
    pub tasks: Option<u64>,
    /// Finished trajectories.
    pub trajectories: u64,
    /// Graded trajectories.
    pub graded: u64,
    /// Accepted trajectories.
    pub accepted: u64,
    /// Rows of the train and the test split; `None` until `shard` is done.
    pub rows: Option<(u64, u64)>,
    /// Units and time per stage, in pipeline order.
    pub stages: Vec<StageStatus>,
    /// Calls, tokens and money. Calls with an unknown outcome count with their full reservation.
    pub spent: Spent,
    /// What a running process has in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<InFlight>,
    /// How fast units end while a process coordinates the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// Workers that have joined.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<Member>,
    /// Pending batches; their maximum cost is reserved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<Batch>,
    /// Infrastructure failures, never the model's, most frequent first.
    pub failures: Vec<Count>,
    /// Rejected queries by the step that rejected them, and dropped checks; most frequent first.
    pub queries: Vec<Count>,
    /// Rejected trajectories by the first filter that rejected them, most frequent first.
    pub rejected: Vec<Count>,
    /// Accepted trajectories that match tasks or files of benchmarks, by benchmark. They are left out of the dataset
    /// unless the recipe allows them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contaminated: Vec<Count>,
    /// Whether the dataset has the contaminated rows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub contaminated_allowed: bool,
    /// How many of the planted faults were rejected.
    pub faults: Option<String>,
    /// How many attempts a rule of the recipe ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
    /// Agreement of the judge with the checks.
    pub judge: Option<String>,
    /// What the tasks were kept apart from, and what that left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart_from: Option<String>,
    /// Problems of this machine or of the sources.
    pub warnings: Vec<String>,
}

impl Funnel {
    /// Number of accepted trajectories that the dataset leaves out, because they match benchmarks.
    pub(crate) fn left_out(&self) -> u64 {
        match self.contaminated_allowed {
            true => 0,
            false => self.contaminated.iter().map(|found| found.count).sum(),
        }
    }
}

/// Units and time of a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageStatus {
    pub stage: String,
    pub done: u64,
    /// Units that failed permanently.
    pub failed: u64,
    /// Units that are not started, or will be retried.
    pub pending: u64,
    /// Pending units that a process works on.
    #[serde(skip_serializing_if = "is_zero")]
    pub in_work: u64,
    /// Total time over all restarts.
    pub seconds: f64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// How often something happened, with examples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Count {
    /// For example `rollout/endpoint/rate_limited`, or the name of a filter.
    pub what: String,
    pub count: u64,
    /// The first few, in item order: `item: detail`.
    pub examples: Vec<String>,
}

impl StatusArgs {
    /// The folder of the run.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the run does not exist.
    pub fn folder(&self) -> Result<PathBuf, RunError> {
        let root = project_root(std::path::Path::new("."));
        let runs_dir = self.runs_dir.clone();
        let runs_dir = runs_dir.unwrap_or_else(|| default_runs_dir(root.as_deref()));
        find_run(&self.run, &runs_dir)
    }
}

/// Runs the command. `headline` replaces the funnel's first line for runs of another kind, which have no files or
/// tasks.
///
/// # Errors
/// [`RunError::BadInput`] if the run does not exist; errors of the journal.
pub fn run(args: &StatusArgs, headline: Option<String>) -> Result<(), RunError> {
    let journal = Journal::read_run(&args.folder()?)?;
    let funnel = funnel(&journal)?;
    print(&match (args.json, headline) {
        (true, _) => serde_json::to_string_pretty(&funnel)? + "\n",
        (false, Some(headline)) => headline + &funnel.details(),
        (false, None) => funnel.to_string(),
    })
}

/// Prints to stdout; ignores a closed pipe (`| head`).
pub(crate) fn print(text: &str) -> Result<(), RunError> {
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(RunError::io("standard output")(error))
        }
        _ => Ok(()),
    }
}

/// Computes the progress of a run from its journal.
///
/// # Errors
/// The journal cannot be read.
pub fn funnel(journal: &Journal) -> Result<Funnel, RunError> {
    let count_of = |name: &str| -> Result<Option<u64>, RunError> {
        Ok(journal.metadata(name)?.and_then(|value| value.as_u64()))
    };
    let (mut graded, mut passed, mut rejections) = (0, 0, Tally::default());
    journal.each_output("grade", |_, verdict: Verdict| {
        graded += 1;
        passed += u64::from(verdict.accepted);
        rejections.extend(describe_rejection(&verdict));
        Ok(())
    })?;
    let selection_counts = selection_counts(journal)?;
    let dropped: u64 = selection_counts.iter().map(|(_, count)| count).sum();
    let mut rejected = rejections.counts();
    rejected.extend(selection_counts.into_iter().map(|(what, count)| Count {
        what: what.to_owned(),
        count,
        examples: Vec::new(),
    }));
    rejected.sort_by_key(|count| Reverse(count.count));
    let mut failures = Tally::default();
    failures.extend(journal.failures()?.iter().map(describe_failure));
    let (contaminated, dropped_contaminated) = contaminated(journal)?;
    Ok(Funnel {
        files: count_of("files")?,
        tasks: count_of("tasks")?,
        trajectories: journal.summary("rollout")?.done,
        graded,
        accepted: passed.saturating_sub(dropped),
        rows: count_of("train_rows")?.zip(count_of("test_rows")?),
        stages: stages(journal)?,
        spent: journal.spent()?,
        in_flight: InFlight::of(journal)?,
        pace: Pace::of(journal)?,
        workers: Member::all(journal)?,
        batches: journal.all_open_batches()?,
        failures: failures.counts(),
        queries: queries(journal)?,
        rejected,
        contaminated_allowed: !(contaminated.is_empty() || dropped_contaminated),
        contaminated,
        faults: journal
            .metadata("faults")?
            .and_then(|f| Some(f.as_str()?.to_owned())),
        ended_early: journal
            .metadata("ended_early")?
            .and_then(|f| Some(f.as_str()?.to_owned())),
        judge: journal
            .metadata("judge")?
            .and_then(|f| Some(f.as_str()?.to_owned())),
        apart_from: journal
            .metadata(query::APART_FROM)?
            .and_then(|entry| Some(entry["text"].as_str()?.to_owned())),
        warnings: warnings(journal)?,
    })
}

/// Rejected queries of the query writer. Library tasks are not rejected and do not count here.
fn queries(journal: &Journal) -> Result<Vec<Count>, RunError> {
    let mut rejections = Tally::default();
    // Tasks of the library are no written queries.
    journal.each_output(query::STAGE, |item, output: Value| {
        let written: Result<WrittenQuery, _> = serde_json::from_value(output);
        if let Some((by, detail)) = written.ok().as_ref().and_then(WrittenQuery::rejection) {
            rejections.extend([(by, format!("{}: {detail}", short(item)))]);
        }
        Ok(())
    })?;
    journal.each_output(CHECKS, |item, output: Value| {
        if let Ok(CheckValidation::Dropped { by, detail }) = serde_json::from_value(output) {
            let example = format!("{}: {detail}", short(item));
            rejections.extend([(format!("check: {by}"), example)]);
        }
        Ok(())
    })?;
    let mut counts = rejections.counts();
    let duplicates = journal
        .metadata(DUPLICATES)?
        .and_then(|count| count.as_u64());
    if let Some(count) = duplicates.filter(|count| *count > 0) {
        let (what, examples) = ("near duplicate".to_owned(), Vec::new());
        counts.push(Count {
            what,
            count,
            examples,
        });
    }
    counts.sort_by_key(|count| Reverse(count.count));
    Ok(counts)
}

/// Trajectories that selection dropped after grading. `grade` stores their number in the journal.
fn selection_counts(journal: &Journal) -> Result<Vec<(&'static str, u64)>, RunError> {
    let rejected = journal.metadata("rejected")?.unwrap_or_default();
    let count = |what: &'static str| Some((what, rejected[what].as_u64().filter(|n| *n > 0)?));
    Ok(CHOICES.into_iter().filter_map(count).collect())
}

/// Rows that match benchmarks, by benchmark, and whether they were left out. `shard` stores them in the journal.
fn contaminated(journal: &Journal) -> Result<(Vec<Count>, bool), RunError> {
    let entry = journal.metadata(shard::CONTAMINATED)?.unwrap_or_default();
    let rows = entry["rows"].as_array().cloned().unwrap_or_default();
    let mut tally = Tally::default();
    for row in &rows {
        let text = |key: &str| row[key].as_str().unwrap_or_default();
        let (suite, _) = text("task").split_once('/').unwrap_or_default();
        let (trajectory, task, evidence) =
            (short(text("trajectory")), text("task"), text("evidence"));
        let example = format!("{trajectory}: {task}: {evidence}");
        tally.extend([(suite.to_owned(), example)]);
    }
    Ok((tally.counts(), entry["dropped"] == true))
}

fn warnings(journal: &Journal) -> Result<Vec<String>, RunError> {
    let mut warnings: Vec<String> = Vec::new();
    if journal
        .metadata("crawl_fallback")?
        .is_some_and(|value| value == true)
    {
        warnings
            .push("no source could be reached: the files come from the recipe's fallback".into());
    }
    for (_, value) in journal.metadata_with_prefix("warnings/")? {
        let list = value.as_array().cloned().unwrap_or_default();
        warnings.extend(list.iter().filter_map(|w| Some(w.as_str()?.to_owned())));
    }
    Ok(warnings)
}

fn stages(journal: &Journal) -> Result<Vec<StageStatus>, RunError> {
    let seconds: BTreeMap<String, f64> = journal
        .metadata_with_prefix("seconds/")?
        .into_iter()
        // Evaluations keep the time of each attempt beside that of the stages, by its id.
        .filter(|(name, _)| !is_id(name))
        .filter_map(|(stage, value)| Some((stage, value.as_f64()?)))
        .collect();
    let mut names = journal.stages()?;
    names.extend(seconds.keys().cloned());
    let position = |name: &str| STAGE_ORDER.iter().position(|known| *known == name);
    names.sort_by_key(|name| (position(name).unwrap_or(STAGE_ORDER.len()), name.clone()));
    names.dedup();
    names
        .into_iter()
        .map(|stage| {
            let summary = journal.summary(&stage)?;
            Ok(StageStatus {
                done: summary.done,
                failed: summary.failed,
                pending: summary.pending,
                in_work: journal.count_leased(&stage)?,
                seconds: seconds.get(&stage).copied().unwrap_or(0.0),
                stage,
            })
        })
        .collect()
}

/// Category and example text of a failure.
fn describe_failure(unit: &UnitFailure) -> (String, String) {
    let failure = &unit.failure;
    let mut what = format!("{}/{}", unit.stage, kind_name(failure.kind));
    if failure.kind == FailureKind::Endpoint
        && let Some((kind, _)) = failure.detail.split_once(':')
        && kind.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    {
        what += &format!("/{kind}");
    }
    if !unit.last {
        what += " (will be retried)";
    }
    (what, format!("{}: {}", short(&unit.item), failure.detail))
}

fn kind_name(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Item => "item",
        FailureKind::Interpreter => "interpreter",
        FailureKind::Endpoint => "endpoint",
        FailureKind::Budget => "budget",
        FailureKind::Store => "store",
        FailureKind::Replay => "replay",
        FailureKind::Internal => "internal",
        FailureKind::Deferred => "deferred",
    }
}

/// The first filter that rejected a trajectory, and an example text.
fn describe_rejection(verdict: &Verdict) -> Option<(String, String)> {
    if verdict.accepted {
        return None;
    }
    let trajectory = verdict.trajectory.short();
    let finding = verdict.findings.iter().find(|f| f.outcome != Outcome::Pass);
    Some(match finding {
        Some(finding) => (
            finding.filter.clone(),
            format!("{trajectory}: {}: {}", finding.subject, finding.detail),
        ),
        None => ("none named".to_owned(), trajectory.to_owned()),
    })
}

/// Shortens ids to 12 digits, which are unique within a run.
fn short(item: &str) -> &str {
    if is_id(item) { &item[..12] } else { item }
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Counts by name, with the first examples of each.
#[derive(Default)]
struct Tally(BTreeMap<String, Count>);

impl Extend<(String, String)> for Tally {
    fn extend<I: IntoIterator<Item = (String, String)>>(&mut self, happened: I) {
        for (what, example) in happened {
            let count = self.0.entry(what.clone()).or_insert_with(|| Count {
                what,
                count: 0,
                examples: Vec::new(),
            });
            count.count += 1;
            if count.examples.len() < EXAMPLES {
                count.examples.push(example);
            }
        }
    }
}

impl Tally {
    /// The most frequent ones first.
    fn counts(self) -> Vec<Count> {
        let mut counts: Vec<Count> = self.0.into_values().collect();
        counts.sort_by_key(|count| Reverse(count.count));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_run::shared::WorkerMachine;
    use pybench_run::{BudgetCap, Failure, Reservation};
    use pybench_types::id::Digest;
    use pybench_types::trajectory::Finding;
    use serde_json::json;

    fn verdict(name: &str, failing: &[&str]) -> serde_json::Value {
        let finding = |filter: &str, outcome| Finding {
            filter: filter.to_owned(),
            subject: "table output/a.csv".to_owned(),
            outcome,
            detail: "12 rows expected, 11 found\u{1b}[31m".to_owned(),
            mismatch: None,
        };
        let findings = ["format", "check"].map(|filter| {
            let failed = failing.contains(&filter);
            finding(filter, if failed { Outcome::Fail } else { Outcome::Pass })
        });
        let verdict = Verdict {
            trajectory: Digest::of_bytes(name.as_bytes()),
            findings: findings.to_vec(),
            accepted: failing.is_empty(),
            opinion: None,
            checker: "c".to_owned(),
        };
        serde_json::to_value(verdict).unwrap()
    }

    fn journal(folder: &std::path::Path) -> Journal {
        let journal = Journal::open(&folder.join("journal.sqlite")).unwrap();
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        journal.set_metadata("files", &json!(7)).unwrap();
        journal
            .set_metadata("seconds/rollout", &json!(61.5))
            .unwrap();
        journal.set_metadata("seconds/shard", &json!(0.5)).unwrap();
        let attempt = format!("seconds/{}", Digest::of_bytes(b"attempt"));
        journal.set_metadata(&attempt, &json!(3.0)).unwrap();
        for stage in ["crawl", "rollout", "grade"] {
            journal.enqueue(stage, &names).unwrap();
        }
        for item in ["a", "b", "c"] {
            journal.complete("rollout", item, &json!({})).unwrap();
        }
        let limited = Failure::new(FailureKind::Endpoint, "rate_limited: 429");
        journal.fail("rollout", "d", &limited, true).unwrap();
        journal.complete("grade", "a", &verdict("a", &[])).unwrap();
        journal
            .complete("grade", "b", &verdict("b", &["check"]))
            .unwrap();
        journal
            .complete("grade", "c", &verdict("c", &["format", "check"]))
            .unwrap();
        journal
            .set_metadata("rejected", &json!({"check": 2, "duplicate": 0}))
            .unwrap();
        journal
            .set_metadata("crawl_fallback", &json!(true))
            .unwrap();
        journal
            .set_metadata("warnings/interpreter", &json!(["no cgroup"]))
            .unwrap();
        journal
            .set_metadata("ended_early", &json!("attempts that ended early: 1"))
            .unwrap();
        let most = Reservation {
            micro_usd: 2_500,
            tokens: 100,
        };
        journal.reserve("call", most, BudgetCap::default()).unwrap();
        journal
    }

    #[test]
    fn the_funnel_counts_every_item_once() {
        let folder = tempfile::tempdir().unwrap();
        drop(journal(folder.path()));
        let journal = Journal::open(&folder.path().join("journal.sqlite")).unwrap();
        let funnel = funnel(&journal).unwrap();
        assert_eq!((funnel.files, funnel.tasks), (Some(7), None));
        assert_eq!(
            (funnel.trajectories, funnel.graded, funnel.accepted),
            (3, 3, 1)
        );
        assert_eq!((funnel.spent.calls, funnel.spent.uncertain), (1, 1));
        let names: Vec<_> = funnel
            .stages
            .iter()
            .map(|stage| stage.stage.as_str())
            .collect();
        assert_eq!(names, ["crawl", "rollout", "grade", "shard"]);
        let counts = |counts: &[Count]| -> Vec<(String, u64)> {
            counts.iter().map(|c| (c.what.clone(), c.count)).collect()
        };
        assert_eq!(
            counts(&funnel.failures),
            [("rollout/endpoint/rate_limited".into(), 1)]
        );
        assert_eq!(
            counts(&funnel.rejected),
            [("check".into(), 1), ("format".into(), 1)]
        );
    }

    #[test]
    fn the_pace_of_a_running_process_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal(folder.path());
        assert_eq!(funnel(&journal).unwrap().pace, None);
        let now = journal.now_millis().unwrap();
        let pace = json!({
            "stage": "grade", "per_hour": 60.0, "left": 1, "micro_usd_left": 2_000_000, "at": now,
        });
        journal.set_metadata("pace", &pace).unwrap();
        assert!(journal.lease("grade", "d", now / 1000, 100).unwrap());
        let funnel = funnel(&journal).unwrap();
        let grade = funnel.stages.iter().find(|stage| stage.stage == "grade");
        assert_eq!(grade.map(|stage| stage.in_work), Some(1));
        let text = funnel.to_string();
        let expected = "grade: units per hour: 60.0, in work: 1, left in this round: 1, which takes about 1:00 min and $2";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("the run will have cost $2.00 then"), "{text}");
        let row = format!(
            "{:<9} {:>7} {:>7} {:>7} {:>8} {:>9}",
            "grade", 3, 0, 1, 1, "0.0 s"
        );
        assert!(
            text.contains("pending  in work      time") && text.contains(&row),
            "{text}"
        );
    }

    #[test]
    fn workers_say_what_they_do_and_run_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut funnel = funnel(&journal(folder.path())).unwrap();
        let worker = |name: &str| Member::new(name.to_owned(), vec!["rollout".to_owned()]);
        let machine = WorkerMachine {
            program: "0a1b2c3d4e5f".to_owned(),
            packages: "5f4e3d2c1b0a".to_owned(),
            tier: "jail".to_owned(),
            cores: 8,
            free_mib: 12_600,
        };
        let busy = Member {
            stage: Some("rollout".to_owned()),
            units: 3,
            ended: 40,
            silent_seconds: 7,
            machine,
            ..worker("node-1:17")
        };
        funnel.workers = vec![busy, worker("node-2\u{1b}[31m:4")];
        let text = funnel.to_string();
        let expected = "worker node-1:17: rollout, units in work: 3, ended: 40, last sign of life: 7 s ago\n         \
                        takes rollout; tier jail, 8 cores, 12.3 GiB of memory free when it joined, packages 5f4e3d2c1b0a, \
                        program 0a1b2c3d4e5f\n";
        assert!(text.contains(expected), "{text}");
        assert!(
            text.contains("worker node-2\u{fffd}[31m:4: waits"),
            "{text}"
        );
        // What it says of itself is in its entry in the journal; how long it is silent is not.
        let about = serde_json::to_string(&funnel.workers[0]).unwrap();
        let read: Member = serde_json::from_str(&about).unwrap();
        assert_eq!((read.silent_seconds, read.machine.cores), (0, 8));
    }

    #[test]
    fn duplicates_are_subtracted_from_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal(folder.path());
        journal.complete("grade", "d", &verdict("d", &[])).unwrap();
        assert_eq!(funnel(&journal).unwrap().accepted, 2);
        journal
            .set_metadata("rejected", &json!({"check": 2, "duplicate": 1}))
            .unwrap();
        let funnel = funnel(&journal).unwrap();
        assert_eq!(funnel.accepted, 1);
        assert!(
            funnel
                .rejected
                .iter()
                .any(|c| (c.what.as_str(), c.count) == ("duplicate", 1))
        );
    }

    #[test]
    fn the_text_has_no_control_characters() {
        let folder = tempfile::tempdir().unwrap();
        let text = funnel(&journal(folder.path())).unwrap().to_string();
        assert!(!text.contains('\u{1b}'), "{text:?}");
        insta::assert_snapshot!(text.replace('\u{fffd}', "?"), @r#"
        7 files → – tasks → 3 trajectories → 1 accepted
        attempts that ended early: 1
        warning: no source could be reached: the files come from the recipe's fallback
        warning: no cgroup

        stage        done  failed pending      time
        crawl           0       0       4     0.0 s
        rollout         3       1       0  1:02 min
        grade           3       0       1     0.0 s
        shard           0       0       0     0.5 s

        calls 1 · tokens 100 · $0.0025

        rejected by
              1  check
                 10e5cf3d3c8a: table output/a.csv: 12 rows expected, 11 found?[31m
              1  format
                 ea7aa1fc9efd: table output/a.csv: 12 rows expected, 11 found?[31m

        failures (not of the model)
              1  rollout/endpoint/rate_limited
                 d: rate_limited: 429
        "#);
    }
}
