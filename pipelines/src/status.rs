//! Status: the funnel of a run, its cost and its failures, from the journal alone.

mod text;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;

use pybench::run::cli::LogArgs;
use pybench::run::project::{default_runs_dir, find_run, project_root};
use pybench::run::{Batch, FailureKind, Journal, RunError, Spent, UnitFailure};
use pybench::trajectory::{Outcome, Verdict};
use serde::Serialize;

use crate::goal::CHOICES;
use crate::query;
use crate::query::writer::{CHECKS, DUPLICATES, Proven, Written};

/// Examples shown of each kind of failure or rejection.
const EXAMPLES: usize = 3;

/// Stages in the order of the data; others follow by name.
const ORDER: [&str; 6] = ["crawl", "query", "checks", "rollout", "grade", "shard"];

/// Show where a run stands: files → tasks → trajectories → accepted, cost, time, failures.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "pybench-status", bin_name = "pybench-status", version)]
pub struct StatusArgs {
    /// Run: a name in the folder of runs, or the path of a run folder
    pub run: PathBuf,
    /// Where run folders lie [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    pub runs_dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Funnel {
    /// Source files kept; `None` until `crawl` has ended.
    pub files: Option<u64>,
    /// Tasks; `None` until `query` has ended.
    pub tasks: Option<u64>,
    /// Trajectories that came to an end.
    pub trajectories: u64,
    /// Of these, graded so far.
    pub graded: u64,
    /// Of these, accepted.
    pub accepted: u64,
    /// Rows of the train and the test split; `None` until `shard` has ended.
    pub rows: Option<(u64, u64)>,
    /// Each stage's units and time, in the order of the data.
    pub stages: Vec<StageStatus>,
    /// Calls, tokens and money; uncertain calls are charged as reserved.
    pub spent: Spent,
    /// Batches that are out; what they may cost is reserved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<Batch>,
    /// Failures of ours, never of the model, most frequent first.
    pub failures: Vec<Count>,
    /// Queries of models that became no task, by what rejected them, and proposed checks that were dropped,
    /// most frequent first.
    pub queries: Vec<Count>,
    /// Rejected trajectories by the first filter that rejected them, most frequent first.
    pub rejected: Vec<Count>,
    /// What became of the faults that the expert put in on purpose.
    pub faults: Option<String>,
    /// How the judge and the checks agree.
    pub judge: Option<String>,
    /// What is not as it should be on this machine.
    pub warnings: Vec<String>,
}

/// A stage's units and time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageStatus {
    /// Name.
    pub stage: String,
    /// Units done.
    pub done: u64,
    /// Units failed for good.
    pub failed: u64,
    /// Units not tried, or to be tried again.
    pub pending: u64,
    /// Time over all restarts.
    pub seconds: f64,
}

/// How often something happened, with examples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Count {
    /// What: `rollout/endpoint/rate_limited`, or the name of a filter.
    pub what: String,
    /// How often.
    pub count: u64,
    /// The first few, in item order: `item: detail`.
    pub examples: Vec<String>,
}

/// Print where a run stands.
pub fn run(args: &StatusArgs) -> Result<(), RunError> {
    let root = project_root(std::path::Path::new("."));
    let runs_dir = args.runs_dir.clone();
    let runs_dir = runs_dir.unwrap_or_else(|| default_runs_dir(root.as_deref()));
    let folder = find_run(&args.run, &runs_dir)?;
    let journal = Journal::open_read_only(&folder.join("journal.sqlite"))?;
    let funnel = funnel(&journal)?;
    print(&match args.json {
        true => serde_json::to_string_pretty(&funnel)? + "\n",
        false => funnel.to_string(),
    })
}

/// Print to stdout; a reader that leaves early (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), RunError> {
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(RunError::io("standard output")(error))
        }
        _ => Ok(()),
    }
}

/// Where a run stands, from its journal.
pub fn funnel(journal: &Journal) -> Result<Funnel, RunError> {
    let fact = |name: &str| -> Result<Option<u64>, RunError> {
        Ok(journal.fact(name)?.and_then(|value| value.as_u64()))
    };
    let verdicts: Vec<Verdict> = journal.outputs("grade")?;
    let passed = verdicts.iter().filter(|verdict| verdict.accepted).count() as u64;
    let afterwards = afterwards(journal)?;
    let left_out: u64 = afterwards.iter().map(|(_, count)| count).sum();
    let mut rejected = tally(verdicts.iter().filter_map(describe_rejection));
    rejected.extend(afterwards.into_iter().map(|(what, count)| Count {
        what: what.to_owned(),
        count,
        examples: Vec::new(),
    }));
    rejected.sort_by_key(|count| Reverse(count.count));
    Ok(Funnel {
        files: fact("files")?,
        tasks: fact("tasks")?,
        trajectories: journal.summary("rollout")?.done,
        graded: verdicts.len() as u64,
        accepted: passed.saturating_sub(left_out),
        rows: fact("train_rows")?.zip(fact("test_rows")?),
        stages: stages(journal)?,
        spent: journal.spent()?,
        batches: journal.batches_out()?,
        failures: tally(journal.failures()?.iter().map(describe_failure)),
        queries: queries(journal)?,
        rejected,
        faults: journal
            .fact("faults")?
            .and_then(|f| Some(f.as_str()?.to_owned())),
        judge: journal
            .fact("judge")?
            .and_then(|f| Some(f.as_str()?.to_owned())),
        warnings: warnings(journal)?,
    })
}

/// Queries that became no task. Tasks of the library are written or not, and count nowhere here.
fn queries(journal: &Journal) -> Result<Vec<Count>, RunError> {
    let mut left_out = Vec::new();
    for unit in journal.units(query::STAGE)? {
        let written = unit.output.map(serde_json::from_value::<Written>);
        if let Some((by, detail)) = written.iter().flatten().find_map(Written::left_out) {
            left_out.push((by, format!("{}: {detail}", short(&unit.item))));
        }
    }
    for unit in journal.units(CHECKS)? {
        let proven = unit.output.map(serde_json::from_value::<Proven>);
        if let Some(Ok(Proven::Dropped { by, detail })) = proven {
            left_out.push((
                format!("check: {by}"),
                format!("{}: {detail}", short(&unit.item)),
            ));
        }
    }
    let mut counts = tally(left_out.into_iter());
    let alike = journal.fact(DUPLICATES)?.and_then(|count| count.as_u64());
    if let Some(count) = alike.filter(|count| *count > 0) {
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

/// What is left out once all are graded, not unit by unit: `grade` counts it in a fact.
fn afterwards(journal: &Journal) -> Result<Vec<(&'static str, u64)>, RunError> {
    let rejected = journal.fact("rejected")?.unwrap_or_default();
    let count = |what: &'static str| Some((what, rejected[what].as_u64().filter(|n| *n > 0)?));
    Ok(CHOICES.into_iter().filter_map(count).collect())
}

fn warnings(journal: &Journal) -> Result<Vec<String>, RunError> {
    let mut warnings: Vec<String> = Vec::new();
    if journal
        .fact("crawl_fallback")?
        .is_some_and(|value| value == true)
    {
        warnings.push("no source could be reached: the files are the recipe's fallback".into());
    }
    for (_, value) in journal.facts("warnings/")? {
        let list = value.as_array().cloned().unwrap_or_default();
        warnings.extend(list.iter().filter_map(|w| Some(w.as_str()?.to_owned())));
    }
    Ok(warnings)
}

fn stages(journal: &Journal) -> Result<Vec<StageStatus>, RunError> {
    let seconds: BTreeMap<String, f64> = journal
        .facts("seconds/")?
        .into_iter()
        .filter_map(|(stage, value)| Some((stage, value.as_f64()?)))
        .collect();
    let mut names = journal.stages()?;
    names.extend(seconds.keys().cloned());
    let place = |name: &str| ORDER.iter().position(|known| *known == name);
    names.sort_by_key(|name| (place(name).unwrap_or(ORDER.len()), name.clone()));
    names.dedup();
    names
        .into_iter()
        .map(|stage| {
            let summary = journal.summary(&stage)?;
            Ok(StageStatus {
                done: summary.done,
                failed: summary.failed,
                pending: summary.pending,
                seconds: seconds.get(&stage).copied().unwrap_or(0.0),
                stage,
            })
        })
        .collect()
}

/// What to count a failure as, and how to show it.
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
        what += " (to be tried again)";
    }
    (what, format!("{}: {}", short(&unit.item), failure.detail))
}

fn kind_name(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Item => "item",
        FailureKind::Interpreter => "interpreter",
        FailureKind::Endpoint => "endpoint",
        FailureKind::Budget => "budget",
        FailureKind::Replay => "replay",
        FailureKind::Internal => "internal",
        FailureKind::Deferred => "deferred",
    }
}

/// The first filter that rejected a trajectory, and why.
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

/// Ids are long; enough digits to tell the items of one run apart.
fn short(item: &str) -> &str {
    let is_id = item.len() == 64 && item.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { &item[..12] } else { item }
}

fn tally(happened: impl Iterator<Item = (String, String)>) -> Vec<Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for (what, example) in happened {
        let count = counts.entry(what.clone()).or_insert_with(|| Count {
            what,
            count: 0,
            examples: Vec::new(),
        });
        count.count += 1;
        if count.examples.len() < EXAMPLES {
            count.examples.push(example);
        }
    }
    let mut counts: Vec<Count> = counts.into_values().collect();
    counts.sort_by_key(|count| Reverse(count.count));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench::id::Digest;
    use pybench::run::{BudgetCap, Failure, Reservation};
    use pybench::trajectory::Finding;
    use serde_json::json;

    fn verdict(name: &str, failing: &[&str]) -> serde_json::Value {
        let finding = |filter: &str, outcome| Finding {
            filter: filter.to_owned(),
            subject: "table output/a.csv".to_owned(),
            outcome,
            detail: "12 rows expected, 11 found\u{1b}[31m".to_owned(),
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
        journal.set_fact("files", &json!(7)).unwrap();
        journal.set_fact("seconds/rollout", &json!(61.5)).unwrap();
        journal.set_fact("seconds/shard", &json!(0.5)).unwrap();
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
            .set_fact("rejected", &json!({"check": 2, "duplicate": 0}))
            .unwrap();
        journal.set_fact("crawl_fallback", &json!(true)).unwrap();
        journal
            .set_fact("warnings/interpreter", &json!(["no cgroup"]))
            .unwrap();
        let most = Reservation {
            micro_usd: 2_500,
            tokens: 100,
        };
        journal.reserve("call", most, BudgetCap::default()).unwrap();
        journal
    }

    #[test]
    fn the_funnel_counts_each_thing_once() {
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
    fn duplicates_are_taken_off_what_passed() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal(folder.path());
        journal.complete("grade", "d", &verdict("d", &[])).unwrap();
        assert_eq!(funnel(&journal).unwrap().accepted, 2);
        journal
            .set_fact("rejected", &json!({"check": 2, "duplicate": 1}))
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
    fn the_text_shows_the_funnel_and_no_control_characters() {
        let folder = tempfile::tempdir().unwrap();
        let text = funnel(&journal(folder.path())).unwrap().to_string();
        assert!(!text.contains('\u{1b}'), "{text:?}");
        insta::assert_snapshot!(text.replace('\u{fffd}', "?"), @r#"
        7 files → – tasks → 3 trajectories → 1 accepted
        warning: no source could be reached: the files are the recipe's fallback
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

        failures (ours, never the model's)
              1  rollout/endpoint/rate_limited
                 d: rate_limited: 429
        "#);
    }
}
