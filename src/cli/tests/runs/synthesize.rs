//! The whole way through the real program: what it prints, and the command that it recommends.

use std::process::Command;

use pybench_types::task::Task;

use crate::support::fixture::{RunFixture, code, interpreter_is_here};

const RECIPE: &str = "name = 't'\nseed = 7\nteacher = { kind = 'expert' }\n\n\
    [[crawl.sources]]\nsource = 'local'\npath = 'files'\nlicense = 'CC0-1.0'\n\n\
    [query]\ntasks = 4\ntemplate_share = 0.5\nkeywords = ['rotate image', 'derivative', 'integral']\n\n\
    [shard]\nheld_out_templates = 1\ntest_fraction = 0.3\n";

fn synthesize(fixture: &RunFixture, args: &[&str]) -> (Option<i32>, String) {
    let mut command = fixture.program("synthesize", args);
    let output = command.output().unwrap();
    (code(&output), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn looking_first_costs_nothing_and_the_run_goes_on_from_there() {
    let fixture = RunFixture::bare(RECIPE);
    let (status, text) = synthesize(&fixture, &["--dry-run"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(
        text.contains("calls              about 16 (4 to 40)"),
        "{text}"
    );
    assert!(!fixture.folder().join("trajectories.jsonl").exists());
    if !interpreter_is_here() {
        return;
    }
    let (status, text) = synthesize(&fixture, &["--preview", "2"]);
    assert_eq!(status, Some(0), "{text}");
    assert_eq!(text.matches("━━ trajectory").count(), 2, "{text}");
    // Each with its verdict, the reasons and the cost.
    assert_eq!(text.matches("\naccepted\n").count(), 2, "{text}");
    assert!(text.contains("   check "), "{text}");
    assert_eq!(text.matches("\ncost $0: ").count(), 2, "{text}");
    assert_eq!(fixture.units().len(), 2);

    let (status, text) = synthesize(&fixture, &[]);
    assert_eq!(status, Some(0), "{text}");
    for part in [
        "3 files → 4 tasks → 4 trajectories → 4 accepted",
        "teacher: expert (scripted, not a language model)",
        "to use a model behind an endpoint:",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(fixture.folder().join("dataset/README.md").exists());
    let (status, again) = synthesize(&fixture, &[]);
    assert_eq!(status, Some(0));
    assert!(
        again.contains("4 accepted"),
        "nothing is left to do: {again}"
    );
}

/// As the user would: in a shell, with the model's name filled in.
#[test]
fn the_command_for_a_real_endpoint_is_one_that_works() {
    let fixture = RunFixture::bare(RECIPE);
    let (status, text) = synthesize(&fixture, &["--dry-run"]);
    assert_eq!(status, Some(0), "{text}");
    let program = format!("{} synthesize", crate::support::PYBENCH);
    let command = pybench_shard::endpoint_command("t")
        .replace("./justw synthesize t ", &format!("{program} t.toml "))
        .replace("MODEL", "gpt-4o");
    let mut shell = Command::new("sh");
    shell
        .args(["-ec", &format!("{command} --dry-run --runs-dir data/runs")])
        .current_dir(fixture.folder().join("../../.."))
        .env("OPENAI_API_KEY", "x")
        .env_remove("PYBENCH_ROOT");
    let output = shell.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(code(&output), Some(0), "{output:?}");
    assert!(text.contains("openai:gpt-4o"), "{text}");
    assert!(text.contains("budget             $5.00"), "{text}");
}

/// Every contingency table of `clash.csv` has two columns of the same name, so that its reference raises an error.
#[test]
fn tasks_whose_reference_fails_are_dropped_and_replaced() {
    if !interpreter_is_here() {
        return;
    }
    let recipe = "name = 't'\nseed = 7\nteacher = { kind = 'expert' }\n\n\
        [[crawl.sources]]\nsource = 'local'\npath = 'files'\nlicense = 'CC0-1.0'\n\n\
        [query]\ntasks = 2\ntemplate_share = 1.0\nkeywords = ['pivot table']\n\n\
        [shard]\nheld_out_templates = 0\ntest_fraction = 0.5\n";
    let fixture = RunFixture::bare(recipe);
    let table = |shops: [&str; 2], towns: [&str; 3]| {
        let rows = (0..12).map(|n| format!("{},{}\n", shops[n % 2], towns[n % 3]));
        "shop,town\n".to_owned() + &rows.collect::<String>()
    };
    let clash = table(["town", "a"], ["shop", "b", "c"]);
    fixture.add("clash.csv", clash.as_bytes());
    let plain = table(["d", "a"], ["e", "b", "c"]);
    fixture.add("plain.csv", plain.as_bytes());
    let (status, text) = synthesize(&fixture, &[]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("2 tasks"), "{text}");
    assert!(text.contains("2 accepted"), "{text}");
    assert!(
        text.contains("two columns of the contingency table"),
        "counted: {text}"
    );
    let tasks: Vec<Task> = fixture.lines("tasks.jsonl");
    assert!(tasks.iter().all(|task| task.files[0].name == "plain.csv"));
}
