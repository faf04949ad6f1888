//! Grade and shard on a run folder whose rollout is done, with a checker that looks for one word.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_agent::Format;
use pybench_agent::PybenchFormat;
use pybench_checks::faults::fault_report;
use pybench_checks::selection::TrajectoryFeatures;
use pybench_grade as grade;
use pybench_run::artifacts::{VERDICTS, stage};
use pybench_run::{Failure, FailureKind, Recipe, RunContext, RunError, RunFolder, UnitState};
use pybench_shard as shard;
use pybench_types::id::Digest;
use pybench_types::observation::{Observation, Output};
use pybench_types::task::{Category, Language, Task, TaskOrigin};
use pybench_types::trajectory::{
    End, Finding, Message, Outcome, OutputFile, Role, Sampling, Trajectory, Turn, Usage, Verdict,
};

const RECIPE: &str = r#"
name = "test"
seed = 3
[crawl]
sources = []
[query]
tasks = 6
[teacher]
kind = "expert"
faults = 0.5
[grade]
at_least = 3
[shard]
held_out_templates = 1
test_fraction = 0.34
"#;

/// Passes outputs that hold `right`; fails to examine those that hold `crash`.
struct WordChecker(pybench_run::ContentStore);

#[async_trait]
impl grade::TrajectoryChecker for WordChecker {
    async fn check(&self, _: &Task, trajectory: &Trajectory) -> Result<Vec<Finding>, Failure> {
        let Some(output) = trajectory.outputs.first() else {
            return Ok(vec![
                finding("outputs", Outcome::Fail, "no file"),
                finding("check", Outcome::Fail, "no file"),
            ]);
        };
        let there = finding("outputs", Outcome::Pass, "");
        match self.0.get(&output.id).unwrap().as_slice() {
            b"right" => Ok(vec![there, finding("check", Outcome::Pass, "")]),
            b"crash" => Err(Failure::new(
                FailureKind::Interpreter,
                "the sandbox is gone",
            )),
            _ => Ok(vec![there, finding("check", Outcome::Fail, "another word")]),
        }
    }

    fn digest(&self) -> &str {
        "word-checker"
    }
}

fn finding(filter: &str, outcome: Outcome, detail: &str) -> Finding {
    Finding {
        filter: filter.into(),
        subject: "text output/a.txt".into(),
        outcome,
        detail: detail.into(),
        mismatch: None,
    }
}

fn task(number: usize) -> Task {
    let mut task = Task {
        id: Digest::of_bytes(b""),
        category: Category::Math,
        subcategory: "sums".into(),
        keyword: "sum".into(),
        language: Language::En,
        query: format!("Sum up the first {number} numbers into ./output/a.txt."),
        files: vec![],
        held_out: vec![],
        outputs: vec!["output/a.txt".into()],
        reference: "expected = 'right'".into(),
        checks: vec![],
        origin: TaskOrigin::Library {
            template: format!("template-{}", number % 3),
            slots: BTreeMap::new(),
            phrasing: 0,
        },
    };
    task.id = task.compute_id();
    task
}

/// What the agent of a trajectory does.
#[derive(Clone, Default)]
struct Acts {
    /// Bytes of `output/a.txt`; `None` writes nothing.
    writes: Option<&'static [u8]>,
    answer: &'static str,
    end: Option<End>,
    malformed: bool,
    fault: Option<&'static str>,
}

fn acts(writes: &'static [u8], answer: &'static str) -> Acts {
    Acts {
        writes: Some(writes),
        answer,
        ..Acts::default()
    }
}

fn trajectory(folder: &RunFolder, task: &Task, sample: u32, acts: &Acts) -> Trajectory {
    let format = PybenchFormat;
    let sampling = Sampling::default();
    let observation = Observation {
        outputs: vec![Output::Stream {
            name: "stdout".into(),
            text: "sum 12345.678\n".into(),
        }],
        ..Observation::default()
    };
    let step = match acts.malformed {
        true => "```python\nnever closed".to_owned(),
        false => format.write_step("I add them up.", "print(1)"),
    };
    let answer = format.write_answer(acts.answer);
    let mut messages = format.initial_messages(task);
    messages.push(Message::new(Role::Assistant, step.clone()));
    messages.push(format.observe(&observation));
    messages.push(Message::new(Role::Assistant, answer.clone()));
    let cell = (!acts.malformed).then(|| "print(1)".to_owned());
    let usage = Usage::default();
    let outputs = acts.writes.iter().map(|bytes| OutputFile {
        path: "output/a.txt".into(),
        id: folder.store().put(bytes).unwrap(),
        size: bytes.len() as u64,
    });
    let id = Trajectory::compute_id(&task.id, "expert", &sampling, "pybench", sample);
    Trajectory {
        seed: id.seed(),
        id,
        task: task.id.clone(),
        teacher: "expert".into(),
        sampling,
        sample,
        environment: "env".into(),
        format: "pybench".into(),
        messages,
        turns: vec![
            Turn {
                reply: step,
                cell,
                observation: Some(observation),
                usage,
                more: Vec::new(),
            },
            Turn {
                reply: answer,
                cell: None,
                observation: None,
                usage,
                more: Vec::new(),
            },
        ],
        outputs: outputs.collect(),
        end: acts.end.clone().unwrap_or(End::Finished),
        fault: acts.fault.map(String::from),
        corrects: None,
    }
}

/// A run folder whose rollout is done.
fn run_folder(root: &Path, all: &[(usize, u32, Acts)]) -> (RunContext, Vec<Trajectory>) {
    let folder = Arc::new(RunFolder::open(root, RECIPE).unwrap());
    let lines = |values: Vec<String>| values.join("\n") + "\n";
    let tasks: Vec<Task> = (0..6).map(task).collect();
    let json = tasks
        .iter()
        .map(|task| serde_json::to_string(task).unwrap());
    folder
        .write("tasks.jsonl", lines(json.collect()).as_bytes())
        .unwrap();
    folder.write("files.jsonl", b"").unwrap();
    let made: Vec<Trajectory> = all
        .iter()
        .map(|(number, sample, acts)| trajectory(&folder, &tasks[*number], *sample, acts))
        .collect();
    let json = made.iter().map(|made| serde_json::to_string(made).unwrap());
    folder
        .write("trajectories.jsonl", lines(json.collect()).as_bytes())
        .unwrap();
    let recipe: Recipe = toml::from_str(RECIPE).unwrap();
    (RunContext::new(folder, recipe), made)
}

async fn grade(context: &RunContext) -> Vec<Verdict> {
    let checker = Arc::new(WordChecker(context.folder.store().clone()));
    grade::run_with(context, checker).await.unwrap();
    let text = std::fs::read_to_string(context.folder.root().join(VERDICTS.name)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Filters that a verdict names as failed.
fn failed(verdict: &Verdict) -> Vec<&str> {
    let findings = verdict
        .findings
        .iter()
        .filter(|f| f.outcome != Outcome::Pass);
    findings.map(|f| f.filter.as_str()).collect()
}

#[tokio::test]
async fn each_filter_says_its_reason_and_no_filter_stops_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let good = "Saved to ./output/a.txt. The sum is 12,345.68.";
    let all = [
        (0, 0, acts(b"right", good)),
        (1, 0, acts(b"wrong", good)),
        (2, 0, acts(b"right", "The sum is 99.")),
        (
            3,
            0,
            Acts {
                answer: good,
                ..Acts::default()
            },
        ),
        (
            4,
            0,
            Acts {
                end: Some(End::MaxTurns),
                ..acts(b"wrong", good)
            },
        ),
        (
            5,
            0,
            Acts {
                malformed: true,
                ..acts(b"", "See ./output/b.txt")
            },
        ),
    ];
    let (context, made) = run_folder(&folder.path().join("run"), &all);
    let verdicts = grade(&context).await;
    let ids: Vec<_> = verdicts.iter().map(|v| &v.trajectory).collect();
    assert_eq!(ids, made.iter().map(|t| &t.id).collect::<Vec<_>>());
    let reasons: Vec<_> = verdicts.iter().map(failed).collect();
    assert_eq!(
        reasons,
        [
            vec![],
            vec!["check"],
            vec!["consistent"],
            vec!["outputs", "check"],
            vec!["finished", "check"],
            vec!["format", "check", "consistent"],
        ]
    );
    assert_eq!(
        context.folder.journal().metadata("accepted").unwrap(),
        Some(1.into())
    );
    assert_eq!(pybench_checks::rejections(&verdicts)["check"], 4);
    let names: Vec<_> = verdicts[0]
        .findings
        .iter()
        .map(|f| f.filter.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "format",
            "finished",
            "outputs",
            "check",
            "consistent",
            "duplicate"
        ]
    );
    assert_eq!(verdicts[0].checker, "word-checker");
}

#[tokio::test]
async fn a_failure_of_ours_is_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let all = [
        (0, 0, acts(b"crash", "Done.")),
        (1, 0, acts(b"right", "Done.")),
    ];
    let (context, made) = run_folder(&folder.path().join("run"), &all);
    let verdicts = grade(&context).await;
    assert_eq!(verdicts.len(), 1);
    assert_eq!(verdicts[0].trajectory, made[1].id);
    let units = context.folder.journal().units(stage::GRADE).unwrap();
    assert_eq!(units[0].state, UnitState::Failed);
    assert_eq!(
        units[0].failure.as_ref().unwrap().kind,
        FailureKind::Interpreter
    );
}

#[tokio::test]
async fn the_first_of_equal_conversations_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let all = [
        (0, 0, acts(b"wrong", "Done.")),
        (0, 1, acts(b"right", "Done.")),
        (0, 2, acts(b"right", "Done.")),
        (0, 3, acts(b"right", "Finished it.")),
    ];
    let (context, _) = run_folder(&folder.path().join("run"), &all);
    let verdicts = grade(&context).await;
    let accepted: Vec<_> = verdicts.iter().map(|v| v.accepted).collect();
    assert_eq!(accepted, [false, true, false, true]);
    assert_eq!(failed(&verdicts[2]), ["duplicate"]);
}

#[tokio::test]
async fn planted_faults_are_compared_with_verdicts() {
    let folder = tempfile::tempdir().unwrap();
    let fault = |acts: Acts| Acts {
        fault: Some("wrong column"),
        ..acts
    };
    let all = [
        (0, 0, fault(acts(b"wrong", "Done."))),
        (1, 0, fault(acts(b"right", "Done."))),
        (2, 0, acts(b"right", "Done.")),
        (3, 0, acts(b"wrong", "Done.")),
        (4, 0, acts(b"crash", "Done.")),
    ];
    let (context, made) = run_folder(&folder.path().join("run"), &all);
    let verdicts = grade(&context).await;
    let features: Vec<_> = made.iter().map(TrajectoryFeatures::of).collect();
    let report = fault_report(&features, &verdicts);
    assert_eq!((report.planted, report.caught), (2, 1));
    assert_eq!((report.honest, report.accepted), (2, 1));
    assert_eq!(report.missed, [(made[1].id.clone(), "wrong column".into())]);
    assert_eq!(report.wronged[0].0, made[3].id);
    assert!(!report.exact());
}

#[tokio::test]
async fn accepted_rows_become_a_dataset_with_equal_bytes() {
    let all: Vec<_> = (0..6)
        .map(|number| match number {
            4 => (
                number,
                0,
                Acts {
                    fault: Some("gave up"),
                    ..acts(b"wrong", "Done.")
                },
            ),
            _ => (number, 0, acts(b"right", "Done.")),
        })
        .collect();
    let mut cards = Vec::new();
    for _ in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let (context, _) = run_folder(&folder.path().join("run"), &all);
        grade(&context).await;
        shard::run(&context).await.unwrap();
        // Again, on the same folder: nothing changes.
        shard::run(&context).await.unwrap();
        let fact = |name: &str| {
            context
                .folder
                .journal()
                .metadata(name)
                .unwrap()
                .unwrap()
                .as_u64()
        };
        assert_eq!((fact("train_rows"), fact("test_rows")), (Some(4), Some(1)));
        let dataset = context.folder.root().join(shard::DATASET);
        let files = [
            "README.md",
            "data/train-00000-of-00001.parquet",
            "data/test-00000-of-00001.parquet",
        ];
        cards.push(files.map(|name| std::fs::read(dataset.join(name)).unwrap()));
    }
    assert_eq!(cards[0], cards[1]);
    let card = String::from_utf8_lossy(&cards[0][0]);
    assert!(
        card.contains("1 of 1 rejected; trajectories without a fault: 5 of 5 accepted"),
        "{card}"
    );
    assert!(
        card.contains("expert (scripted, not a language model)"),
        "{card}"
    );
}

#[tokio::test]
async fn too_few_accepted_rows_are_written_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let all = [
        (0, 0, acts(b"right", "Done.")),
        (1, 0, acts(b"wrong", "Done.")),
    ];
    let (context, _) = run_folder(&folder.path().join("run"), &all);
    grade(&context).await;
    let error = shard::run(&context).await.unwrap_err();
    assert!(
        matches!(&error, RunError::Incomplete(text) if text.contains("1 trajectories")),
        "{error}"
    );
    assert!(
        context
            .folder
            .root()
            .join("dataset/data/train-00000-of-00001.parquet")
            .exists()
    );
}
