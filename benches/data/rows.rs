//! Synthetic trajectories: as long and as varied as those of models, some near copies of others, some that
//! hold a task of a benchmark. A row's number decides on everything.

#![allow(unreachable_pub)]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pybench_datasets::Row;
use pybench_datasets::decontaminate::BenchmarkTask;
use pybench_datasets::text::mix;
use pybench_types::id::Digest;
use pybench_types::observation::Observation;
use pybench_types::task::{Category, FileKind, Language, Task, TaskFile, TaskOrigin};
use pybench_types::trajectory::{
    End, Finding, Message, Outcome, OutputFile, Role, Sampling, Trajectory, Turn, Usage, Verdict,
};

/// One row of so many is a near copy of the row before it.
pub const COPIES: usize = 20;
/// One row of so many holds a task of the benchmark.
pub const PLANTED: usize = 100;
/// Tasks of the benchmark; PyBench has as many.
const TASKS: usize = 143;
/// Where the numbers of the benchmark's texts begin, beyond those of all rows.
const BENCHMARK: u64 = 1 << 60;

const SYSTEM: &str = "You are a data analyst with a Python interpreter. Think first, then run one cell at a time \
                      between the marks, look at what it shows, and answer once the result is there.";
const STEMS: [&str; 16] = [
    "sale", "price", "region", "month", "rate", "model", "count", "score", "value", "group",
    "sample", "station", "signal", "weight", "index", "error",
];
const VERBS: [&str; 8] = [
    "compute",
    "plot",
    "group",
    "filter",
    "compare",
    "summarize",
    "fit",
    "rank",
];
const METHODS: [&str; 12] = [
    "mean", "median", "sum", "std", "max", "min", "count", "nunique", "first", "last", "var",
    "prod",
];

/// Numbers without end (splitmix64).
struct Dice(u64);

impl Dice {
    fn throw(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % below.max(1) as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.throw(of.len())]
    }

    /// A name as columns have them.
    fn name(&mut self) -> String {
        format!("{}_{}", self.one(&STEMS), self.throw(400))
    }
}

pub fn benchmark() -> Vec<BenchmarkTask> {
    let item = |number: usize| BenchmarkTask {
        suite: "bench".into(),
        index: number.to_string(),
        query: query(&mut Dice(BENCHMARK + number as u64)),
        answers: vec![own_lines(&code(
            &mut Dice(2 * BENCHMARK + number as u64),
            12,
        ))],
        ..BenchmarkTask::default()
    };
    (0..TASKS).map(item).collect()
}

/// Code without the lines that all of it begins with: who judges by a few words alone would find those
/// everywhere, and stop at once.
fn own_lines(code: &str) -> String {
    code.lines().skip(2).collect::<Vec<_>>().join("\n")
}

/// Whether the row holds a task.
pub fn is_planted(number: usize) -> bool {
    number % PLANTED == 7
}

/// Whether the row is a near copy.
pub fn is_copy(number: usize) -> bool {
    number % COPIES == 11
}

pub fn row(number: usize) -> Row {
    // A copy is drawn as its original is, and changed in one number afterward.
    let drawn = number - usize::from(is_copy(number));
    let mut dice = Dice(drawn as u64);
    let query = match is_planted(number) {
        true => query(&mut Dice(BENCHMARK + (number / PLANTED % TASKS) as u64)),
        false => query(&mut dice),
    };
    let task = task(number, query, &mut dice);
    let trajectory = trajectory(&task, number, &mut dice);
    let finding = Finding {
        filter: "check".into(),
        subject: "table output/result.csv".into(),
        outcome: Outcome::Pass,
        detail: String::new(),
        mismatch: None,
    };
    let verdict = Verdict {
        trajectory: trajectory.id.clone(),
        findings: vec![finding],
        accepted: true,
        opinion: None,
        checker: "checker".into(),
    };
    Row::new(&task, &trajectory, &verdict)
}

/// A query by itself; a copy has a word more than the one before it.
pub fn short_query(number: usize) -> String {
    let drawn = number - usize::from(is_copy(number));
    let text = query(&mut Dice(mix(drawn as u64)));
    match is_copy(number) {
        true => format!("Please: {text}"),
        false => text,
    }
}

/// Some sixty words.
fn query(dice: &mut Dice) -> String {
    let mut text = String::from("The file describes ");
    for _ in 0..5 {
        let _ = write!(
            text,
            "{} by {} and {}, ",
            dice.name(),
            dice.name(),
            dice.name()
        );
    }
    for _ in 0..3 {
        let (verb, method) = (dice.one(&VERBS), dice.one(&METHODS));
        let _ = write!(
            text,
            "then {verb} the {method} of {} per {}, ",
            dice.name(),
            dice.name()
        );
    }
    let _ = write!(text, "and save the result as ./output/{}.csv.", dice.name());
    text
}

/// So many lines of pandas.
fn code(dice: &mut Dice, lines: usize) -> String {
    let mut text = String::from("import pandas as pd\nframe = pd.read_csv(\"./data/table.csv\")\n");
    for _ in 0..lines {
        let (a, b, c) = (dice.name(), dice.name(), dice.name());
        let (method, number) = (dice.one(&METHODS), dice.throw(1000));
        let _ = writeln!(
            text,
            "frame[\"{a}\"] = frame.groupby(\"{b}\")[\"{c}\"].transform(\"{method}\") * {number}"
        );
    }
    text + "print(frame.head())"
}

fn task(number: usize, query: String, dice: &mut Dice) -> Task {
    let categories = [
        Category::Chart,
        Category::Text,
        Category::ImageAudio,
        Category::Math,
        Category::Software,
    ];
    let which = dice.throw(4000);
    let mut task = Task {
        id: Digest::of_bytes(b""),
        category: categories[dice.throw(categories.len())],
        subcategory: dice.one(&VERBS).into(),
        keyword: dice.one(&METHODS).into(),
        language: Language::En,
        query,
        files: vec![TaskFile {
            name: "table.csv".into(),
            id: Digest::of_bytes(which.to_string().as_bytes()),
            kind: FileKind::Csv,
            origin: format!("pkg:pypi/demo@1#table{which}.csv"),
            license: Some("BSD-3-Clause".into()),
            derived_from: None,
            format: None,
        }],
        held_out: vec![],
        outputs: vec!["output/result.csv".into()],
        reference: code(dice, 4),
        checks: vec![],
        origin: TaskOrigin::Library {
            template: format!("template-{}", number % 119),
            slots: BTreeMap::new(),
            phrasing: 0,
        },
    };
    task.id = task.compute_id();
    task
}

fn trajectory(task: &Task, number: usize, dice: &mut Dice) -> Trajectory {
    let mut messages = vec![
        Message::new(Role::System, SYSTEM),
        Message::new(
            Role::User,
            format!("[INFO] Files: ./data/table.csv\n{}", task.query),
        ),
    ];
    let mut turns = Vec::new();
    for _ in 0..2 + dice.throw(4) {
        let lines = 4 + dice.throw(8);
        let mut cell = code(dice, lines);
        if is_copy(number) && turns.is_empty() {
            let _ = write!(cell, "\nprint({number})");
        }
        let reply = format!(
            "First I {} the {} of {}.\n<|execute_start|>\n```python\n{cell}\n```\n<|execute_end|>",
            dice.one(&VERBS),
            dice.one(&METHODS),
            dice.name()
        );
        let mut seen = String::from("[INFO] Code execution result:\n");
        for line in 0..6 {
            let _ = writeln!(
                seen,
                "{line}  {}  {}",
                dice.throw(1 << 20),
                dice.throw(1 << 20)
            );
        }
        messages.push(Message::new(Role::Assistant, reply.clone()));
        messages.push(Message::new(Role::User, seen));
        turns.push(Turn {
            reply,
            cell: Some(cell),
            observation: Some(Observation::default()),
            more: Vec::new(),
            usage: Usage::default(),
        });
    }
    let answer = format!("Finished: the result is {}.", dice.throw(1 << 20));
    messages.push(Message::new(Role::Assistant, answer.clone()));
    turns.push(Turn {
        reply: answer,
        cell: None,
        observation: None,
        more: Vec::new(),
        usage: Usage::default(),
    });
    let sampling = Sampling::default();
    let id = Trajectory::compute_id(&task.id, "model", &sampling, "pybench", number as u32);
    Trajectory {
        seed: id.seed(),
        id,
        task: task.id.clone(),
        teacher: "model".into(),
        sampling,
        sample: number as u32,
        environment: "python-3.11".into(),
        format: "pybench".into(),
        messages,
        turns,
        outputs: vec![OutputFile {
            path: "output/result.csv".into(),
            id: Digest::of_bytes(&number.to_le_bytes()),
            size: 100,
        }],
        end: End::Finished,
        fault: None,
        corrects: None,
    }
}
