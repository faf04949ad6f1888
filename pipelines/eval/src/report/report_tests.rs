use std::collections::BTreeMap;
use std::io::Write as _;

use super::*;
use crate::record::tests::{attempt, fingerprint};
use crate::record::{AgentKind, Attempt, Check, Duel, Headline, Judgment, Outcome, Score, Scores};
use pybench_types::id::Digest;
use pybench_types::trajectory::{
    End, Message, OutputFile, Role, Sampling, Trajectory, Turn, Usage,
};

/// A content store in a temporary folder.
struct TempStore {
    root: tempfile::TempDir,
}

impl TempStore {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("store")).unwrap();
        Self { root }
    }

    fn store(&self) -> PathBuf {
        self.root.path().join("store")
    }

    fn path(&self, id: &Digest) -> PathBuf {
        let folder = self.store().join(&id.as_str()[..2]);
        std::fs::create_dir_all(&folder).unwrap();
        folder.join(id.as_str())
    }

    fn put(&self, path: &str, bytes: &[u8]) -> OutputFile {
        let id = Digest::of_bytes(bytes);
        std::fs::write(self.path(&id), bytes).unwrap();
        OutputFile {
            path: path.to_owned(),
            id,
            size: bytes.len() as u64,
        }
    }

    fn write(&self, evaluation: &Evaluation, name: &str) -> PathBuf {
        let out = self.root.path().join(name);
        write(evaluation, &[self.store()], &out, &Options::default()).unwrap();
        out
    }
}

/// Every file of a folder with its bytes.
fn tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let name = path.strip_prefix(folder).unwrap().display().to_string();
                    files.insert(name, std::fs::read(path).unwrap());
                }
            }
        }
    }
    files
}

fn trajectory(reply: &str) -> Trajectory {
    Trajectory {
        id: Digest::of_bytes(reply.as_bytes()),
        task: Digest::of_bytes(b"task"),
        teacher: "m".into(),
        sampling: Sampling::default(),
        sample: 0,
        seed: 1,
        environment: "e".into(),
        format: "pybench".into(),
        messages: vec![
            Message::new(Role::System, "system prompt"),
            Message::new(Role::User, "Do it."),
            Message::new(Role::Assistant, reply),
        ],
        turns: vec![Turn {
            reply: reply.into(),
            cell: Some("print(1)".into()),
            observation: None,
            more: Vec::new(),
            usage: Usage::default(),
        }],
        outputs: Vec::new(),
        end: End::Finished,
        fault: None,
        corrects: None,
    }
}

fn picture(width: u32, height: u32) -> Vec<u8> {
    let mut png = Vec::new();
    let image = image::RgbImage::from_fn(width, height, |x, y| image::Rgb([x as u8, y as u8, 9]));
    image
        .write_to(&mut std::io::Cursor::new(&mut png), image::ImageFormat::Png)
        .unwrap();
    png
}

/// A PNG that claims to be 10,000 × 10,000: the header is right, the rest is not there.
fn bomb() -> Vec<u8> {
    let mut png = picture(8, 8);
    png[16..20].copy_from_slice(&10_000_u32.to_be_bytes());
    png[20..24].copy_from_slice(&10_000_u32.to_be_bytes());
    let crc = crc32(&png[12..29]);
    png[29..33].copy_from_slice(&crc.to_be_bytes());
    png
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 * (crc & 1));
        }
    }
    !crc
}

fn judged(mut attempt: Attempt, passed: Option<bool>) -> Attempt {
    attempt.judgment = Some(Judgment {
        judge: "openai:judge".into(),
        prompts: Digest::of_bytes(b"p"),
        passed,
        reason: "because".into(),
        duels: [("base".to_owned(), Duel::Win)].into(),
    });
    attempt
}

/// Two models, a reference and a null agent, on 20 tasks of four categories, two seeds.
fn evaluation(store: &TempStore) -> Evaluation {
    let agents = [
        ("tuned", AgentKind::Model),
        ("base", AgentKind::Model),
        ("reference", AgentKind::Reference),
        ("do-nothing", AgentKind::Null),
    ];
    let table = store.put("output/t.csv", b"name,value\nx,1\ny,2\n");
    let mut attempts = Vec::new();
    for (agent, _) in agents {
        for task in 2..22_u32 {
            for seed in 0..2 {
                let passed = match agent {
                    "tuned" => task < 16,
                    "base" => task < 7,
                    "reference" => true,
                    _ => false,
                };
                let mut one = attempt(agent, &task.to_string(), seed, passed);
                one.category =
                    ["chart", "text", "image_audio", "math"][task as usize % 4].to_owned();
                let bytes =
                    serde_json::to_vec(&trajectory(&format!("{agent} {task} {seed}"))).unwrap();
                one.trajectory = Some(store.put("trajectory.json", &bytes));
                one.outputs = vec![table.clone(), store.put("output/p.png", &picture(30, 20))];
                attempts.push(if agent == "tuned" {
                    judged(one, Some(passed))
                } else {
                    one
                });
            }
        }
    }
    Evaluation::new(fingerprint(&agents), attempts)
}

#[test]
fn the_report_shows_the_scores_in_all_formats() {
    let store = TempStore::new();
    let evaluation = evaluation(&store);
    let out = store.write(&evaluation, "report");
    let files = tree(&out);
    // HTML escaping encodes slashes as numbers.
    let text = |name: &str| {
        String::from_utf8(files[name].clone())
            .unwrap()
            .replace("&#x2f;", "/")
    };
    let json: serde_json::Value = serde_json::from_str(&text("report.json")).unwrap();
    let tuned = json["agents"]
        .as_array()
        .unwrap()
        .iter()
        .find(|a| a["agent"] == "tuned")
        .unwrap();
    let strict = tuned["measures"]
        .as_array()
        .unwrap()
        .iter()
        .find(|m| m["measure"] == "strict")
        .unwrap();
    assert_eq!(strict["overall"]["rate"], 0.7);
    let (index, markdown) = (text("index.html"), text("report.md"));
    for page in [&index, &markdown] {
        for part in [
            "70.0",
            "48.1–85.5",
            "PyLlama3",
            "published",
            "columns give 49.7",
            "57.3(48.2)",
            "statistically tied",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }
    assert!(index.contains("tuned is better") && markdown.contains("tuned is better"));
    assert!(index.contains("tasks/pybench-15.html"), "flips are linked");
    let page = text("tasks/pybench-2.html") + &text("tasks/pybench-2-2.html");
    for part in [
        "<th>name</th>",
        "files/",
        "loading=\"lazy\"",
        "because",
        "vs. base: win",
        "tuned 2 0",
        "text output/a.txt",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let notebook: serde_json::Value =
        serde_json::from_str(&text("notebooks/pybench-2-tuned-0.ipynb")).unwrap();
    assert_eq!(notebook["nbformat"], 4);
    assert_eq!(notebook["cells"][3]["source"], "print(1)");
    for plot in ["strict", "judge", "turns", "duels"] {
        assert!(text(&format!("plots/pybench-{plot}.svg")).starts_with("<svg"));
    }
}

#[test]
fn unknown_costs_and_empty_columns_are_not_shown_as_zeros() {
    let store = TempStore::new();
    let labels = ["free", "paid", "unpriced"];
    let costs = [Some(0), Some(5_700), None];
    let attempts = labels.iter().zip(costs).map(|(label, cost)| {
        let mut one = attempt(label, "ab8b2857", 0, true);
        one.suite = "library".to_owned();
        one.keyword = Some("quantile".to_owned());
        one.micro_usd = cost;
        one
    });
    let agents = labels.map(|label| (label, AgentKind::Model));
    let evaluation = Evaluation::new(fingerprint(&agents), attempts.collect());
    let files = tree(&store.write(&evaluation, "report"));
    let text = |name: &str| String::from_utf8(files[name].clone()).unwrap();
    let (markdown, index) = (text("report.md"), text("index.html"));
    let counts = markdown.split("## Attempts").nth(1).unwrap();
    for (label, cost) in labels.iter().zip(["$0", "$0.0057", "unknown"]) {
        let row = counts
            .lines()
            .find(|row| row.starts_with(&format!("| {label} ")));
        let row = row.unwrap();
        assert!(row.ends_with(&format!(" {cost} |")), "{row}");
        assert!(index.contains(&format!("<td>{cost}</td>")), "{index}");
    }
    assert!(
        markdown.contains("| agent | overall | chart | macro | over tasks, clustered | turns |\n"),
        "{markdown}"
    );
    assert!(index.contains(">quantile: Do it.</a>"), "{index}");
    let json: serde_json::Value = serde_json::from_str(&text("report.json")).unwrap();
    assert_eq!(json["agents"][2]["micro_usd"], serde_json::Value::Null);
}

/// External addresses may occur in text, but not where a browser would load them.
#[test]
fn pages_load_nothing_from_the_network() {
    let store = TempStore::new();
    let out = store.write(&evaluation(&store), "report");
    for (name, bytes) in tree(&out) {
        let Ok(text) = String::from_utf8(bytes).map(|text| text.replace("&#x2f;", "/")) else {
            continue;
        };
        if name.ends_with(".html") {
            assert!(text.contains("default-src 'none'"), "{name}");
            for part in [
                "src=\"http",
                "href=\"http",
                "src=\"//",
                "href=\"//",
                "<script",
                "url(",
                "@import",
            ] {
                assert!(!text.contains(part), "{part} in {name}");
            }
        }
    }
}

#[test]
fn the_report_does_not_depend_on_the_order_of_completion() {
    let store = TempStore::new();
    let whole = evaluation(&store);
    let first = tree(&store.write(&whole, "a"));
    // Interrupted and continued: the attempts were completed in another order and took longer.
    let mut attempts = whole.attempts.clone();
    attempts.reverse();
    attempts.iter_mut().for_each(|a| a.seconds += 1.0);
    let resumed = Evaluation::new(whole.fingerprint.clone(), attempts);
    let second = tree(&store.write(&resumed, "b"));
    assert_eq!(
        first.keys().collect::<Vec<_>>(),
        second.keys().collect::<Vec<_>>()
    );
    for (name, bytes) in &first {
        assert_eq!(
            *bytes == second[name],
            !name.starts_with("timing."),
            "{name}"
        );
    }
    // Writing to the same folder again replaces the report with an identical one.
    assert_eq!(tree(&store.write(&whole, "a")), first);
}

#[test]
fn folders_without_a_report_are_not_replaced() {
    let store = TempStore::new();
    let out = store.root.path().join("mine");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("thesis.tex"), "x").unwrap();
    let error = write(
        &evaluation(&store),
        &[store.store()],
        &out,
        &Options::default(),
    )
    .unwrap_err();
    assert!(matches!(error, ReportError::NotAReport(_)), "{error}");
    assert!(out.join("thesis.tex").exists());
}

const SCRIPT: &str = "<script>fetch('http://evil.example')</script>";

fn hostile(store: &TempStore) -> Evaluation {
    let agents = [("<img src=x onerror=alert(1)>", AgentKind::Model)];
    let mut one = attempt(agents[0].0, "../../../etc/passwd", 0, false);
    one.category = SCRIPT.into();
    one.prompt = format!("{SCRIPT}\u{1b}[2J\u{202e}\u{0}");
    one.checks = vec![Check::new(
        Score::Strict,
        SCRIPT,
        false,
        SCRIPT,
        "\"'><b>\u{7}",
    )];
    one.judgment = Some(Judgment {
        judge: SCRIPT.into(),
        prompts: Digest::of_bytes(b""),
        passed: None,
        reason: SCRIPT.into(),
        duels: [(SCRIPT.to_owned(), Duel::Abstained)].into(),
    });
    let bytes = serde_json::to_vec(&trajectory(&format!("</pre>{SCRIPT}\u{9b}31m"))).unwrap();
    one.trajectory = Some(store.put("trajectory.json", &bytes));
    let html =
        format!("<html><body onload=alert(1)>\"'{SCRIPT}<iframe src=http://evil.example></iframe>");
    // A sparse table of 1 GiB: only its beginning may be read.
    let big = Digest::of_bytes(b"big");
    let mut file = std::fs::File::create(store.path(&big)).unwrap();
    file.write_all(b"a,b\n1,=cmd()\n<i>,2\n").unwrap();
    file.set_len(1 << 30).unwrap();
    let link = Digest::of_bytes(b"link");
    std::os::unix::fs::symlink("/etc/passwd", store.path(&link)).unwrap();
    let file = |path: &str, id: Digest, size| OutputFile {
        path: path.into(),
        id,
        size,
    };
    let mut lie = store.put("output/lie.png", &picture(9, 9));
    std::fs::write(store.path(&lie.id), b"other bytes").unwrap();
    lie.size = 11;
    one.outputs = vec![
        store.put("output/page.html", html.as_bytes()),
        store.put("output/bomb.png", &bomb()),
        file("output/big.csv", big, 1 << 30),
        file("output/link.txt", link, 5),
        file("output/gone.txt", Digest::of_bytes(b"gone"), 5),
        store.put(
            "output/model.pkl",
            b"cos\nsystem\n(S'touch /tmp/owned'\ntR.",
        ),
        store.put("output/\u{202e}gpj.exe", &[0, 159, 146, 150, 0, 1, 2, 255]),
        store.put(
            "output/x.svg",
            format!("<svg onload=alert(1)>{SCRIPT}</svg>").as_bytes(),
        ),
        store.put("output/a.wav", b"<script>no sound</script>"),
        store.put("output/b.xlsx", b"PK\x03\x04 not really"),
        lie,
    ];
    let mut not_run = attempt(agents[0].0, "3", 0, false);
    not_run.outcome = Outcome::NotRun {
        reason: SCRIPT.into(),
    };
    not_run.scores = Scores::default();
    not_run.headline = Headline {
        counts: false,
        reason: Some(SCRIPT.into()),
    };
    Evaluation::new(fingerprint(&agents), vec![one, not_run])
}

#[test]
fn hostile_content_is_limited_and_escaped() {
    let store = TempStore::new();
    let evaluation = hostile(&store);
    let started = std::fs::read_dir(store.root.path()).unwrap().count();
    let out = store.write(&evaluation, "report");
    assert_eq!(
        std::fs::read_dir(store.root.path()).unwrap().count(),
        started + 1,
        "nothing else written"
    );
    let files = tree(&out);
    let total: usize = files.values().map(Vec::len).sum();
    assert!(total < 4 << 20, "{total} bytes");
    for (name, bytes) in &files {
        assert!(!name.contains("..") && !name.contains("passwd/"), "{name}");
        let text = String::from_utf8_lossy(bytes);
        if name.ends_with(".html") || name.ends_with(".svg") {
            for part in [
                "<script",
                "onload=alert(1)>\"",
                "<img src=x",
                "<i>",
                "\u{1b}",
                "\u{202e}",
                "\u{0}",
                "\u{9b}",
            ] {
                assert!(!text.contains(part), "{part:?} in {name}");
            }
            assert!(!text.contains("root:x:0"), "a link was followed: {name}");
        }
    }
    let pages: Vec<_> = files.keys().filter(|n| n.starts_with("tasks/")).collect();
    let page = String::from_utf8(
        files[pages
            .iter()
            .find(|p| p.contains("passwd"))
            .copied()
            .unwrap()]
        .clone(),
    )
    .unwrap();
    for part in [
        "sandbox=\"\"",
        "srcdoc=\"&lt;html&gt;",
        "10000 × 10000 pixels are too many",
        "the first rows",
        "it is no regular file",
        "it is not in the content store",
        "may run anything",
        "neither text nor another type",
        "no sound",
        "holds other bytes",
        "1.0 GiB",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

/// 143 tasks; each attempt has a long text, an image, a sound, a page and a long conversation.
fn large(store: &TempStore, agents: &[&'static str], seeds: u64) -> Evaluation {
    let chat = serde_json::to_vec(&trajectory(&"word ".repeat(50_000))).unwrap();
    let chat = store.put("trajectory.json", &chat);
    let outputs = vec![
        store.put("output/long.txt", "line\n".repeat(100_000).as_bytes()),
        store.put("output/p.png", &picture(300, 200)),
        store.put("output/a.wav", b"RIFF and what follows"),
        store.put("output/page.html", b"<p>page</p>"),
    ];
    let mut attempts = Vec::new();
    for agent in agents {
        for (task, seed) in (2..145_u32).flat_map(|task| (0..seeds).map(move |seed| (task, seed))) {
            attempts.push(Attempt {
                outputs: outputs.clone(),
                trajectory: Some(chat.clone()),
                ..attempt(agent, &task.to_string(), seed, task > 70)
            });
        }
    }
    let known: Vec<_> = agents
        .iter()
        .map(|agent| (*agent, AgentKind::Model))
        .collect();
    Evaluation::new(fingerprint(&known), attempts)
}

#[test]
fn large_runs_have_small_pages() {
    let store = TempStore::new();
    let written = |agents: &[&'static str], seeds| {
        let evaluation = large(&store, agents, seeds);
        let begun = std::time::Instant::now();
        let out = store.write(&evaluation, "report");
        let seconds = begun.elapsed().as_secs_f64();
        let mut files = tree(&out);
        files.retain(|name, _| name.ends_with(".html"));
        let index = files.remove("index.html").unwrap().len();
        let pages = files.len();
        let largest = files.values().map(Vec::len).max().unwrap_or(0);
        println!(
            "{} attempts: {seconds:.1} s; index {:.1} KiB; {pages} pages, the largest {:.1} KiB",
            evaluation.attempts.len(),
            index as f64 / 1024.0,
            largest as f64 / 1024.0
        );
        (evaluation.attempts.len(), index, pages, largest, files)
    };
    let (few, small, pages, ..) = written(&["a"], 1);
    assert_eq!(pages, 143);
    let (many, index, pages, largest, files) = written(&["a"], 10);
    assert_eq!((many, pages), (1_430, 2 * 143), "six attempts on a page");
    // The index lists tasks, not attempts: a count grows from "pass" to "10 of 10".
    let growth = index.saturating_sub(small) as f64 / (many - few) as f64;
    println!("the index grows by {growth:.2} bytes per attempt");
    assert!(growth < 4.0, "{growth}");
    assert!(index < 128 << 10 && largest < 512 << 10);
    for (name, bytes) in &files {
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(!text.contains("data:"), "{name} holds a file");
        for (tag, lazily) in [
            ("<img", "loading=\"lazy\""),
            ("<iframe", "loading=\"lazy\""),
            ("<audio", "preload=\"none\""),
        ] {
            let tags: Vec<_> = text.split(tag).skip(1).collect();
            assert!(!tags.is_empty(), "{tag} in {name}");
            for rest in tags {
                assert!(
                    rest.split('>').next().unwrap().contains(lazily),
                    "{tag} in {name}"
                );
            }
        }
    }
    let (_, index, _, largest, _) = written(&["a", "b", "c", "d"], 3);
    assert!(index < 512 << 10 && largest < 512 << 10);
}

#[test]
fn a_loss_against_the_base_model_is_reported() {
    let mut attempts = Vec::new();
    for task in 0..60_u32 {
        for (agent, passed) in [("base", task < 40), ("tuned", task < 15)] {
            let mut one = attempt(agent, &format!("HumanEval/{task}"), 0, passed);
            one.suite = "humaneval+".into();
            one.scores = Scores {
                upstream: Some(passed),
                ..Scores::default()
            };
            attempts.push(one);
        }
    }
    let agents = [("base", AgentKind::Model), ("tuned", AgentKind::Model)];
    let evaluation = Evaluation::new(fingerprint(&agents), attempts);
    let warned = |base: Option<&str>| {
        ReportData::new(
            &evaluation,
            &Options {
                base: base.map(str::to_owned),
                ..Options::default()
            },
        )
        .warnings
    };
    assert!(warned(None).is_empty() && warned(Some("tuned")).is_empty());
    let warnings = warned(Some("base"));
    assert!(
        warnings.len() == 1
            && warnings[0].contains("tuned is worse than its base model")
            && warnings[0].contains("41.7 points"),
        "{warnings:?}"
    );
}

/// An agent without any score stands below the others, with what its rate can be.
#[test]
fn an_agent_whose_attempts_all_failed_for_reasons_of_ours_is_on_the_leaderboard() {
    let failed = Attempt {
        outcome: Outcome::Infrastructure {
            failure: "no connection".into(),
        },
        scores: Scores::default(),
        ..attempt("b", "2", 0, false)
    };
    let agents = [("a", AgentKind::Model), ("b", AgentKind::Model)];
    let notes = |attempts: Vec<Attempt>| {
        let evaluation = Evaluation::new(fingerprint(&agents), attempts);
        let data = ReportData::new(&evaluation, &Options::default());
        let boards = leaderboard::leaderboards(&data).into_iter();
        let strict = boards.filter(|board| board.measure == "strict");
        let rows = strict.flat_map(|board| board.rows);
        let rows = rows.map(|mut row| {
            let overall = row.cells.remove(0);
            (row.label, overall.value, overall.note)
        });
        rows.collect::<Vec<_>>()
    };
    let row = |label: &str, value: &str, note: &str| {
        (label.to_owned(), value.to_owned(), note.to_owned())
    };
    let missing = row("b", "", "1 missing: 0.0–100.0");
    let scored = attempt("a", "2", 0, true);
    assert_eq!(
        notes(vec![scored, failed.clone()]),
        [row("a", "100.0", ""), missing.clone()]
    );
    assert_eq!(notes(vec![failed]), [missing]);
}

/// DA-Dev's authors do not count questions without a response: their rate says over how many of the questions it is.
#[test]
fn a_rate_over_some_of_the_tasks_says_so() {
    let agents = [("a", AgentKind::Model)];
    let attempts = ["2", "3", "4"].map(|task| {
        let mut one = attempt("a", task, 0, task == "2");
        one.scores.upstream = (task == "2").then_some(true);
        one
    });
    let evaluation = Evaluation::new(fingerprint(&agents), attempts.into());
    let data = ReportData::new(&evaluation, &Options::default());
    let overall = |measure: &str| {
        let boards = leaderboard::leaderboards(&data).into_iter();
        let mut rows = boards
            .filter(|board| board.measure == measure)
            .flat_map(|board| board.rows);
        let mut row = rows.find(|row| row.label == "a").unwrap();
        let cell = row.cells.remove(0);
        (cell.value, cell.tasks)
    };
    assert_eq!(overall("upstream"), ("100.0".into(), "n = 1 of 3".into()));
    assert_eq!(overall("strict"), ("33.3".into(), "n = 3".into()));
}

#[test]
fn the_tables_over_suites_say_so_too() {
    let agents = [("a", AgentKind::Model)];
    let attempts = ["da-dev", "qrdata"].into_iter().flat_map(|suite| {
        ["2", "3", "4"].map(|task| {
            let mut one = attempt("a", task, 0, task == "2");
            one.suite = suite.to_owned();
            one.scores.upstream = (suite == "qrdata" || task == "2").then_some(task == "2");
            one
        })
    });
    let evaluation = Evaluation::new(fingerprint(&agents), attempts.collect());
    let data = ReportData::new(&evaluation, &Options::default());
    let markdown = over_suites::in_markdown(&data);
    let rows = |measure: &str| {
        let title = format!("## Over suites: {measure}\n");
        let (_, table) = markdown.split_once(&title).unwrap();
        let rows = table.lines().filter(|line| line.starts_with('|')).take(3);
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    let upstream = rows("upstream");
    assert_eq!(upstream[0], "| agent | da-dev | qrdata | macro |");
    assert!(
        upstream[2].starts_with("| a | 100.0 (1 of 3) | 33.3 | 66.7 ["),
        "{markdown}"
    );
    let strict = rows("strict");
    assert!(
        strict[2].starts_with("| a | 33.3 | 33.3 | 33.3 ["),
        "{markdown}"
    );
}
