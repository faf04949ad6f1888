//! `pybench show` and `pybench stats` over a real run: what a person reads, and notebooks that run again
//! in Jupyter with the same text.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::fixture::{RunFixture, code, interpreter_is_here, recipe};
use pybench_interpreter::normalize;
use regex::Regex;
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn show(fixture: &RunFixture, args: &[&str]) -> Output {
    let mut command = crate::support::pybench("show");
    command.arg(fixture.folder()).args(args).output().unwrap()
}

fn succeeded(output: Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(0), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn synthesize(fixture: &RunFixture, stages: &[&str]) {
    for stage in stages {
        let output = fixture.program(stage, &[]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), Some(0), "{stage}: {stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trajectory_is_listed_found_shown_and_converted() {
    if !interpreter_is_here() {
        return;
    }
    let fixture = RunFixture::new(&recipe(
        3,
        "{ kind = 'expert' }",
        "[shard]\nheld_out_templates = 0\n",
    ))
    .await;
    synthesize(&fixture, &["rollout", "grade", "shard"]);
    let list = succeeded(show(&fixture, &[]));
    assert_eq!(list.lines().count(), 3);
    assert!(list.lines().all(|line| line.contains("accepted")), "{list}");
    let one = &fixture.trajectories()[1];
    for which in ["2", &one.id.as_str()[..10]] {
        let shown = succeeded(show(&fixture, &[which]));
        assert!(
            shown.contains(one.id.short()) && shown.contains("Finished after"),
            "{shown}"
        );
        assert!(shown.contains("── assistant") && !shown.contains("── system"));
        assert!(shown.contains("<|execute_start|>"));
    }
    let converted = succeeded(show(&fixture, &["2", "--format", "codeact", "--system"]));
    assert!(converted.contains("<execute>") && converted.contains("── system"));
    assert!(!converted.contains("<|execute_start|>"), "{converted}");
    let output = show(&fixture, &["nothing"]);
    assert_eq!(code(&output), Some(3), "{output:?}");

    // A row of a shard is found as well.
    let dataset = fixture.folder().join("dataset");
    let of = |args: &[&str]| {
        let mut command = crate::support::pybench("show");
        succeeded(command.arg(&dataset).args(args).output().unwrap())
    };
    assert_eq!(of(&[]).lines().count(), 3);
    let row = of(&[one.id.as_str()]);
    assert!(
        row.contains("── assistant") && row.contains(".parquet:"),
        "{row}"
    );
    let folder = tempfile::tempdir().unwrap();
    of(&["1", "--notebook", folder.path().to_str().unwrap()]);
    let book: Value = read(&folder.path().join("notebook.ipynb"));
    assert_eq!(book["nbformat"], 4);

    let mut stats = crate::support::pybench("stats");
    let plots = folder.path().join("plots");
    stats.arg(fixture.folder()).arg("--plots").arg(&plots);
    let table = succeeded(
        stats
            .env("HOME", folder.path())
            .env_remove("HF_HOME")
            .env("PYBENCH_CACHE", folder.path())
            .output()
            .unwrap(),
    );
    assert!(table.contains("instructions           3\n"), "{table}");
    assert!(table.contains("cl100k_base; `--tokenizer FILE`"), "{table}");
    for plot in ["turns", "tokens", "types", "keywords", "funnel"] {
        let svg = std::fs::read_to_string(plots.join(format!("{plot}.svg"))).unwrap();
        assert!(svg.starts_with("<svg"), "{plot}");
    }
}

#[test]
fn a_dataset_without_rows_is_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let parts = folder.path().join("parts");
    std::fs::create_dir(&parts).unwrap();
    for (name, text) in [
        ("empty.jsonl", ""),
        ("blank.jsonl", "\n \n"),
        ("array.json", "[]"),
        ("parts/train.jsonl", ""),
    ] {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        let dataset = if name.starts_with("parts") {
            &parts
        } else {
            &file
        };
        for command in ["show", "stats"] {
            let mut program = crate::support::pybench(command);
            let output = program.arg(dataset).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(code(&output), Some(3), "{command} {name}: {stderr}");
            assert!(output.stdout.is_empty(), "{command} {name}");
            let named = stderr.contains(&dataset.display().to_string());
            assert!(named && stderr.contains("has no rows"), "{stderr}");
        }
    }
}

/// Python with nbclient beside the sessions' own packages; `None`, and why, where it cannot be had.
fn jupyter() -> Option<PathBuf> {
    let python = pybench_interpreter::environment_python().ok()?;
    let environment = python.parent()?.parent()?.to_owned();
    let setup = Command::new(format!("{ROOT}/benches/setup"))
        .arg(environment)
        .output();
    match setup {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8(output.stdout).unwrap().trim().into())
        }
        other => {
            pybench_testing::skip::missing_tool(format_args!(
                "nbclient cannot be installed here: {other:?}"
            ));
            None
        }
    }
}

/// As sessions have it.
const VARIABLES: [(&str, &str); 6] = [
    ("PYTHONHASHSEED", "0"),
    ("LANG", "C.UTF-8"),
    ("TZ", "UTC"),
    ("USER", "agent"),
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
];

#[tokio::test(flavor = "multi_thread")]
async fn notebooks_run_again_with_the_same_text() {
    if !interpreter_is_here() {
        return;
    }
    let Some(python) = jupyter() else { return };
    let wanted = std::env::var("PYBENCH_NOTEBOOKS").ok();
    let wanted: usize = wanted.and_then(|n| n.parse().ok()).unwrap_or(5);
    let text = format!(
        "name = 't'\nseed = 3\nteacher = {{ kind = 'expert', faults = 0.2 }}\n\n[[crawl.sources]]\n\
         source = 'local'\npath = '{ROOT}/data/samples/files'\nlicense = 'CC0-1.0'\n\n\
         [query]\ntasks = {wanted}\ntemplate_share = 0.1\n"
    );
    let fixture = RunFixture::bare(&text);
    synthesize(&fixture, &["crawl", "query", "rollout"]);
    let folder = tempfile::tempdir().unwrap();
    let books = folder.path().to_str().unwrap();
    let said = succeeded(show(&fixture, &["--notebook", books]));
    assert!(said.contains(&format!("{wanted} notebooks")), "{said}");
    let ran = Command::new(python)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/datasets/notebooks.py"
        ))
        .arg(folder.path())
        .envs(VARIABLES)
        .env("IPYTHONDIR", fixture.path("ipython"))
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let (mut cells, mut notebooks) = (0, 0);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let recorded = outputs(&read(&path.join("notebook.ipynb")));
        let executed = outputs(&read(&path.join("executed.ipynb")));
        for (cell, (was, is)) in recorded.iter().zip(&executed).enumerate().skip(1) {
            assert_eq!(was, is, "{}: cell {cell}", path.display());
            cells += 1;
        }
        assert_eq!(recorded.len(), executed.len());
        notebooks += 1;
    }
    assert_eq!(notebooks, wanted);
    assert!(cells > wanted, "{cells} cells in {notebooks} notebooks");
    eprintln!("{notebooks} notebooks, {cells} cells with the same text");
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// What each code cell said: its two streams, its values, its error. How streams are cut into pieces, how
/// they interleave, and what a cell is called where it warns, is the front end's affair.
fn outputs(notebook: &Value) -> Vec<[String; 4]> {
    let text = |value: &Value| match value {
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    let cell_name = Regex::new(r"<ipython-input-\d+-[0-9a-f]+>|/tmp/ipykernel_\S+?\.py").unwrap();
    let cells = notebook["cells"].as_array().unwrap().iter();
    let code = cells.filter(|cell| cell["cell_type"] == "code");
    let said = |cell: &Value| {
        let mut said = [const { String::new() }; 4];
        for output in cell["outputs"].as_array().unwrap() {
            match output["output_type"].as_str().unwrap() {
                "stream" if output["name"] == "stdout" => said[0] += &text(&output["text"]),
                "stream" => said[1] += &text(&output["text"]),
                "error" => {
                    said[3] += &format!("{}: {}", text(&output["ename"]), text(&output["evalue"]))
                }
                _ => said[2] += &(text(&output["data"]["text/plain"]) + "\n"),
            }
        }
        said.map(|text| {
            cell_name
                .replace_all(&normalize(&text), "CELL")
                .into_owned()
        })
    };
    code.map(said).collect()
}
