//! Recipes, run folders and exit codes through the real programs.

use std::fs::File;
use std::path::Path;
use std::process::{Output, Stdio};

use pybench_run::{BudgetCap, ExitCode, Journal, Reservation, RunFolder};
use serde_json::json;

const RECIPE: &str = r#"name = "tiny"
crawl.sources = []
query.tasks = 1
teacher.kind = "expert"
"#;

/// A folder with a recipe; programs run in it, with no project above.
struct RecipeFolder(tempfile::TempDir);

impl RecipeFolder {
    fn new(recipe: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tiny.toml"), recipe).unwrap();
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn synthesize(&self, args: &[&str]) -> Output {
        self.program("synthesize", args)
    }

    fn status(&self, args: &[&str]) -> Output {
        self.program("status", args)
    }

    fn program(&self, program: &str, args: &[&str]) -> Output {
        let mut command = crate::support::pybench(program);
        command
            .args(args)
            .current_dir(self.path())
            .env_remove("PYBENCH_ROOT");
        command.output().unwrap()
    }
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    let fixture = RecipeFolder::new(RECIPE);
    for args in [
        &["--no-such-option"][..],
        &["--preview", "0"],
        &["--dry-run", "--preview", "1"],
    ] {
        let output = fixture.synthesize(args);
        assert_eq!(code(&output), Some(ExitCode::Usage as i32), "{args:?}");
    }
    assert_eq!(code(&fixture.status(&[])), Some(ExitCode::Usage as i32));
}

#[test]
fn no_command_takes_a_wrong_command_line() {
    let fixture = RecipeFolder::new(RECIPE);
    let commands = [
        "synthesize",
        "crawl",
        "query",
        "rollout",
        "grade",
        "shard",
        "library",
        "status",
        "show",
        "stats",
        "dataset",
        "verify",
        "eval",
        "loop",
        "publish",
        "doctor",
        "interpreter",
        "completions",
        "man",
    ];
    let wrong: [&[&str]; 5] = [
        &["--no-such-option"],
        &["--log-format", "x"],
        &["--jobs"],
        &["--jobs", "-1"],
        &["a", "b", "c", "d", "e", "f"],
    ];
    for command in commands {
        for args in wrong {
            let output = fixture.program(command, args);
            let text = stderr(&output);
            assert_eq!(
                code(&output),
                Some(ExitCode::Usage as i32),
                "{command} {args:?}: {text}"
            );
            assert!(!text.contains("panicked"), "{command} {args:?}: {text}");
        }
    }
}

/// Values that a recipe must not have, by the key that the message names.
const WRONG_SETS: [&str; 50] = [
    "query.tasks=-1",
    "query.tasks=0",
    "query.tasks=1.5",
    "query.tasks=1e30",
    "query.tasks=99999999999999999999",
    "query.tasks=\"many\"",
    "query.tasks=true",
    "query.tasks=[]",
    "query.tasks={}",
    "query.tasks=",
    "query.tasks=nan",
    "query.tasks=1=2",
    "query=1",
    "query.template_share=nan",
    "query.template_share=inf",
    "query.template_share=-0.1",
    "query.template_share=2",
    "query.languages={}",
    "query.languages={en=-1}",
    "query.languages={klingon=1}",
    "query.categories=[\"nothing\"]",
    "rollout.samples=0",
    "rollout.samples=-1",
    "rollout.max_turns=0",
    "rollout.attempts=0",
    "rollout.format=\"nothing\"",
    "rollout.sampling={temperature=-1}",
    "rollout.sampling={temperature=nan}",
    "teacher.kind=\"nothing\"",
    "teacher={kind=\"openai\"}",
    "interpreter.tier=\"nothing\"",
    "interpreter.network=\"everything\"",
    "interpreter.limits.memory_mib=0",
    "interpreter.limits.memory_mib=1e12",
    "interpreter.limits.cell_seconds=-1",
    "interpreter.limits.cpus=nan",
    "interpreter.limits.cpus=0",
    "shard.test_fraction=1.5",
    "shard.test_fraction=nan",
    "shard.held_out_templates=-1",
    "budget.usd=-1",
    "budget.usd=nan",
    "budget.tokens=-5",
    "seed=-1",
    "name=\"../x\"",
    "name=\"\"",
    "=1",
    "a..b=1",
    "crawl.sources=[{}]",
    "crawl.sources=[{source=\"nothing\"}]",
];

#[test]
fn wrong_values_are_refused_by_their_key() {
    let fixture = RecipeFolder::new(RECIPE);
    for set in WRONG_SETS {
        let output = fixture.synthesize(&["tiny.toml", "--set", set]);
        let (key, text) = (set.split('=').next().unwrap(), stderr(&output));
        assert_eq!(
            code(&output),
            Some(ExitCode::BadInput as i32),
            "{set}: {text}"
        );
        assert!(text.contains(&format!("--set {key}: ")), "{set}: {text}");
        assert!(!text.contains("panicked"), "{set}: {text}");
    }
    assert!(!fixture.path().join("data").exists(), "nothing was made");
}

#[test]
fn a_wrong_recipe_is_refused_with_its_place() {
    let fixture = RecipeFolder::new(&RECIPE.replace("query.tasks", "query.taks"));
    let output = fixture.synthesize(&["tiny.toml"]);
    assert_eq!(code(&output), Some(ExitCode::BadInput as i32));
    insta::assert_snapshot!(stderr(&output), @r#"
    error: tiny.toml:3:7: unknown key `taks` in query; did you mean `tasks`? (known keys: `tasks`, `template_share`, `languages`, `categories`, `keywords`, `composed`, `renamed`, `foreign_names`, `messy`, `imprecise`, `typos`, `difficulties`, `balance`, `files`, `apart_from`, `task_sets`, `writer`)
    tiny.toml:3:1: query: the key `tasks` is missing: Number of tasks to write.
    "#);
    assert!(
        !fixture.path().join("data/runs").exists(),
        "nothing was made"
    );
}

#[test]
fn wrong_sets_names_and_runs_are_refused() {
    let fixture = RecipeFolder::new(RECIPE);
    let shown = [
        fixture.synthesize(&["tiny.toml", "--set", "rollout.smaples=4"]),
        fixture.synthesize(&["tiny.toml", "--run", "../escape"]),
        fixture.synthesize(&["tniy"]),
        fixture.status(&["nothing"]),
    ];
    for output in &shown {
        assert_eq!(code(output), Some(ExitCode::BadInput as i32));
    }
    insta::assert_snapshot!(shown.each_ref().map(stderr).concat(), @r#"
    error: --set rollout.smaples: unknown key `smaples` in rollout; did you mean `samples`? (known keys: `samples`, `format`, `max_turns`, `max_identical_turns`, `repetition_detection`, `code_within_tokens`, `sampling`, `concurrency`, `attempts`, `unit_minutes`, `reuse`, `corrections`)
    error: --run "../escape": the name of a run has 1 to 64 letters, digits, `-` or `_`
    error: no recipe `tniy` (available: embedded, pyinstruct, quickstart); or give the path of a recipe file
    error: no run `nothing` in ./data/runs (available: none)
    "#);
}

#[test]
fn a_run_folder_in_use_or_of_another_recipe_is_a_conflict() {
    let fixture = RecipeFolder::new(RECIPE);
    let root = fixture.path().join("data/runs/tiny");
    let held = RunFolder::open(&root, "name = 'other'").unwrap();
    let (paid, journal) = (Reservation::default(), held.journal());
    journal.reserve("a/0", paid, BudgetCap::default()).unwrap();
    let output = fixture.synthesize(&["tiny.toml"]);
    assert_eq!(code(&output), Some(ExitCode::Conflict as i32));
    assert!(stderr(&output).contains("in use"), "{}", stderr(&output));
    drop(held);
    let output = fixture.synthesize(&["tiny.toml"]);
    assert_eq!(code(&output), Some(ExitCode::Conflict as i32));
    let text = stderr(&output);
    for part in [
        "  name: \"other\" in the folder, \"tiny\" in this recipe",
        "add --start-over, which deletes this run and loses replies that cost $0 (calls: 1)",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // A stage that reads what others made offers the command that makes it again.
    let output = fixture.program("rollout", &["tiny.toml", "--set", "seed=3"]);
    assert_eq!(code(&output), Some(ExitCode::Conflict as i32));
    let command = "synthesize tiny.toml --set seed=3 --start-over`";
    assert!(stderr(&output).contains(command), "{}", stderr(&output));
    let output = fixture.synthesize(&["tiny.toml", "--start-over"]);
    assert_ne!(code(&output), Some(ExitCode::Conflict as i32));
    assert!(
        stderr(&output).contains("starts over"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn errors_are_json_lines_where_the_log_is() {
    let fixture = RecipeFolder::new("");
    let output = fixture.synthesize(&["tiny.toml", "--log-format", "json"]);
    assert_eq!(code(&output), Some(ExitCode::BadInput as i32));
    let line: serde_json::Value = serde_json::from_str(stderr(&output).trim()).unwrap();
    assert_eq!(line["exit_code"], json!(3));
    assert!(
        line["message"]
            .as_str()
            .unwrap()
            .contains("`name` is missing"),
        "{line}"
    );
}

#[test]
fn status_shows_a_run_by_name_and_by_path() {
    let fixture = RecipeFolder::new(RECIPE);
    let root = fixture.path().join("data/runs/tiny");
    std::fs::create_dir_all(&root).unwrap();
    let journal = Journal::open(&root.join("journal.sqlite")).unwrap();
    journal.set_metadata("files", &json!(3)).unwrap();
    let output = fixture.status(&["tiny"]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("3 files → – tasks → 0 trajectories → 0 accepted\n"),
        "{text}"
    );
    drop(journal);
    let output = fixture.status(&[root.to_str().unwrap(), "--json"]);
    let funnel: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(funnel["files"], json!(3));
    assert_eq!(funnel["tasks"], json!(null));
}

#[test]
fn a_full_disk_behind_standard_output_is_said_and_a_closed_pipe_is_not() {
    let fixture = RecipeFolder::new(RECIPE);
    let root = fixture.path().join("data/runs/tiny");
    std::fs::create_dir_all(&root).unwrap();
    drop(Journal::open(&root.join("journal.sqlite")).unwrap());
    let status = |stdout: Stdio| {
        let mut command = crate::support::pybench("status");
        command.arg(&root).stdout(stdout).output().unwrap()
    };
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = status(full.into());
    assert_eq!(code(&output), Some(ExitCode::Environment as i32));
    assert!(stderr(&output).contains("standard output"), "{output:?}");
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let output = status(closed.into());
    assert_eq!((code(&output), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn a_disk_that_cannot_be_written_is_said_with_its_path() {
    let fixture = RecipeFolder::new(RECIPE);
    let runs = fixture.path().join("runs");
    let begun = runs.join("tiny");
    let begin = |arguments: &[&str]| fixture.synthesize(arguments);
    let arguments = ["tiny.toml", "--runs-dir", "runs"];
    begin(&arguments); // an empty crawl writes no dataset, but the run folder and its journal
    assert!(begun.join("journal.sqlite").is_file());
    let write_protected = |arguments: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command.arg(&runs).arg(crate::support::PYBENCH);
        command.arg("synthesize").args(arguments);
        command.current_dir(fixture.path()).output().unwrap()
    };
    let probe = write_protected(&["--help"]);
    if !probe.status.success() {
        return pybench_testing::skip::unavailable(format!(
            "no mount of our own: {}",
            stderr(&probe)
        ));
    }
    for (run, named) in [("tiny", "runs/tiny"), ("other", "runs/other")] {
        let output = write_protected(&[&arguments[..], &["--run", run]].concat());
        assert!(stderr(&output).contains(named), "{}", stderr(&output));
        let environment = Some(ExitCode::Environment as i32);
        assert_eq!(code(&output), environment, "{}", stderr(&output));
    }
}

#[test]
fn damage_is_bad_input_with_its_path() {
    let not_a_folder = RecipeFolder::new(RECIPE);
    let runs = not_a_folder.path().join("data/runs");
    std::fs::create_dir(runs.parent().unwrap()).unwrap();
    std::fs::write(&runs, "").unwrap();
    let damaged_journal = RecipeFolder::new(RECIPE);
    let run = damaged_journal.path().join("data/runs/tiny");
    std::fs::create_dir_all(&run).unwrap();
    std::fs::write(run.join("journal.sqlite"), "damaged ".repeat(1000)).unwrap();
    let not_text = RecipeFolder::new(RECIPE);
    std::fs::write(not_text.path().join("tiny.toml"), b"name = \"\xff\"").unwrap();
    for (fixture, named) in [
        (not_a_folder, "data/runs/tiny"),
        (
            damaged_journal,
            "journal.sqlite in the run folder is damaged",
        ),
        (not_text, "tiny.toml"),
    ] {
        let output = fixture.synthesize(&["tiny.toml"]);
        assert!(stderr(&output).contains(named), "{}", stderr(&output));
        let bad_input = Some(ExitCode::BadInput as i32);
        assert_eq!(code(&output), bad_input, "{}", stderr(&output));
    }
}
