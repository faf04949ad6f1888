//! Rows to write: two languages, files with and without a license, tasks without files.

use std::collections::BTreeMap;

use pybench_datasets::Row;
use pybench_datasets::card::CardInfo;
use pybench_types::id::Digest;
use pybench_types::observation::Observation;
use pybench_types::task::{Category, FileFormat, FileKind, Language, Task, TaskFile, TaskOrigin};
use pybench_types::trajectory::{
    End, Finding, Message, Outcome, OutputFile, Role, Sampling, Trajectory, Turn, Usage, Verdict,
};

/// That many different rows.
pub fn rows(count: usize) -> Vec<Row> {
    (0..count).map(row).collect()
}

/// One row; its number decides on everything.
pub fn row(number: usize) -> Row {
    row_of(&task(number), number)
}

/// One row whose task asks something else.
pub fn row_with_query(number: usize, query: String) -> Row {
    let mut task = task(number);
    task.query = query;
    task.id = task.compute_id();
    row_of(&task, number)
}

fn row_of(task: &Task, number: usize) -> Row {
    let trajectory = trajectory(task, number);
    let verdict = verdict(&trajectory, task);
    Row::new(task, &trajectory, &verdict)
}

/// One row with that much text of its own, about a byte a character and hard to compress.
#[allow(dead_code)]
pub fn long_row(number: usize, length: usize) -> Row {
    let task = task(number);
    let mut trajectory = trajectory(&task, number);
    let mut state = number as u64 + 1;
    let letters = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(b"abcdefghijklmnopqrstuvwxyz     \n"[(state >> 59) as usize])
    });
    trajectory.messages[0].content = letters.take(length).collect();
    let verdict = verdict(&trajectory, &task);
    Row::new(&task, &trajectory, &verdict)
}

pub fn about() -> CardInfo {
    CardInfo {
        title: "A \"test\": recipe".into(),
        teacher: pybench_datasets::row::EXPERT_LABEL.into(),
        endpoint_command: "./justw synthesize".into(),
        recipe: "name = \"test\" # ``` no fence\n".into(),
        funnel: vec![("files".into(), 9), ("accepted".into(), 60)],
        rejected: vec![("check".into(), 4)],
        faults: "Planted faults: 4 of 4 rejected; trajectories without a fault: 60 of 60 accepted."
            .into(),
        ..CardInfo::default()
    }
}

fn task(number: usize) -> Task {
    let language = if number.is_multiple_of(3) {
        Language::Zh
    } else {
        Language::En
    };
    let category = [Category::Chart, Category::Math, Category::ImageAudio][number % 3];
    let template = format!("template-{}", number % 12);
    let fileless = number % 12 < 2;
    let mut task = Task {
        id: Digest::of_bytes(b""),
        category,
        subcategory: "sub".into(),
        keyword: "group by".into(),
        language,
        query: format!("请把第 {number} 行保存到 ./output/a.csv — “quoted”, 😀"),
        files: if fileless { vec![] } else { vec![file(number)] },
        held_out: vec![],
        outputs: vec!["output/a.csv".into()],
        reference: "expected = 1".into(),
        checks: vec![],
        origin: TaskOrigin::Library {
            template,
            slots: BTreeMap::new(),
            phrasing: 0,
        },
    };
    task.id = task.compute_id();
    task
}

fn file(number: usize) -> TaskFile {
    let which = number % 17;
    TaskFile {
        name: format!("f{which}.csv"),
        id: Digest::of_bytes(which.to_string().as_bytes()),
        kind: FileKind::Csv,
        origin: format!("pkg:pypi/demo@1#f{which}.csv"),
        license: which.is_multiple_of(2).then(|| "BSD-3-Clause".into()),
        derived_from: None,
        format: which.is_multiple_of(3).then(|| FileFormat {
            encoding: Some("latin-1".into()),
            delimiter: Some(';'),
            columns: None,
            read: Default::default(),
        }),
    }
}

fn trajectory(task: &Task, number: usize) -> Trajectory {
    let sampling = Sampling::default();
    let id = Trajectory::compute_id(&task.id, "expert", &sampling, "pybench", 0);
    let turns = 1 + number % 11;
    let mut messages = vec![
        Message::new(Role::System, "Be exact."),
        Message::new(Role::User, task.query.clone()),
    ];
    for turn in 0..turns {
        messages.push(Message::new(
            Role::Assistant,
            format!("step {turn}\n```python\n1\n```"),
        ));
        messages.push(Message::new(
            Role::User,
            format!("[INFO] {}", "x".repeat(number % 50)),
        ));
    }
    messages.pop();
    let turn = Turn {
        reply: "r".into(),
        cell: None,
        observation: Some(Observation::default()),
        more: Vec::new(),
        usage: Usage::default(),
    };
    Trajectory {
        seed: id.seed(),
        id,
        task: task.id.clone(),
        teacher: "expert".into(),
        sampling,
        sample: 0,
        environment: "env".into(),
        format: "pybench".into(),
        messages,
        turns: vec![turn; turns],
        outputs: vec![OutputFile {
            path: "output/a.csv".into(),
            id: Digest::of_bytes(b"a"),
            size: 1,
        }],
        end: End::Finished,
        fault: None,
        corrects: None,
    }
}

fn verdict(trajectory: &Trajectory, task: &Task) -> Verdict {
    let finding = |filter: &str, subject: &str| Finding {
        filter: filter.into(),
        subject: subject.into(),
        outcome: Outcome::Pass,
        detail: String::new(),
        mismatch: None,
    };
    Verdict {
        trajectory: trajectory.id.clone(),
        findings: vec![
            finding("format", "replies"),
            finding("check", &format!("table {}", task.outputs[0])),
        ],
        accepted: true,
        opinion: None,
        checker: "checker".into(),
    }
}
