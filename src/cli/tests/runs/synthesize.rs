//! The whole way through the real program: what it prints, and the command that it recommends.

use std::process::Command;
use std::sync::Arc;

use pybench_agent::ScriptedSolver as _;
use pybench_datasets::read;
use pybench_library::{Expert, Library};
use pybench_run::FormatChoice;
use pybench_types::difficulty;
use pybench_types::task::{Difficulty, Task};
use pybench_types::trajectory::Role;

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
    // It freezes nothing: another recipe is estimated, and replaces it.
    let changed = ["--set", "query.tasks=2", "--dry-run"];
    let (status, text) = synthesize(&fixture, &changed);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("calls              about 8 "), "{text}");
    let (status, text) = synthesize(&fixture, &["--dry-run"]);
    assert_eq!(status, Some(0), "{text}");
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

/// A run over a picture of its own and one of PyBench, called `holiday.jpeg`; `None` where PyBench or sessions are missing.
fn with_picture_of_benchmark() -> Option<RunFixture> {
    let data = pybench_testing::benchmark::pybench_data()?;
    if !interpreter_is_here() {
        return None;
    }
    let recipe = RECIPE
        .replace(", 'derivative', 'integral'", "")
        .replace("template_share = 0.5", "template_share = 1.0")
        .replace("held_out_templates = 1", "held_out_templates = 0");
    let fixture = RunFixture::bare(&recipe);
    for own in ["picture2.png", "picture3.png"] {
        std::fs::remove_file(fixture.path("files").join(own)).unwrap();
    }
    fixture.add(
        "holiday.jpeg",
        &std::fs::read(data.join("78.jpeg")).unwrap(),
    );
    Some(fixture)
}

/// The rows of the dataset.
fn dataset_rows(fixture: &RunFixture) -> Vec<pybench_datasets::Row> {
    let rows = pybench_datasets::read::dataset(&fixture.folder().join("dataset")).unwrap();
    rows.map(|row| row.unwrap().1).collect()
}

fn is_planted(row: &pybench_datasets::Row) -> bool {
    row.files.iter().any(|file| file.name == "holiday.jpeg")
}

#[test]
fn rows_that_match_a_benchmark_are_left_out_unless_they_are_allowed() {
    let Some(fixture) = with_picture_of_benchmark() else {
        return;
    };
    let rows = || dataset_rows(&fixture);
    let card = || std::fs::read_to_string(fixture.folder().join("dataset/README.md")).unwrap();

    let (status, text) = synthesize(&fixture, &[]);
    assert_eq!(status, Some(0), "{text}");
    let accepted = fixture.units().len();
    let dropped = accepted - rows().len();
    assert!(
        dropped > 0 && !rows().is_empty() && !rows().iter().any(is_planted),
        "{text}"
    );
    let listed: Vec<serde_json::Value> = fixture.lines("contaminated.jsonl");
    assert_eq!(listed.len(), dropped);
    let short = &listed[0]["trajectory"].as_str().unwrap()[..12];
    for part in [
        "left out of the dataset",
        &format!("{dropped:>7}  pybench"),
        short,
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let left_out =
        format!("{dropped} of them match tasks or files of a benchmark (PyBench {dropped})");
    for part in [
        &left_out,
        &format!("| `{short}` | pybench/"),
        "| without benchmark tasks |",
    ] {
        assert!(card().contains(part), "{part} is not in {}", card());
    }

    let (status, text) = synthesize(&fixture, &["--allow-contaminated"]);
    assert_eq!(status, Some(0), "{text}");
    assert_eq!(fixture.units().len(), accepted, "nothing was done again");
    assert_eq!(rows().len(), accepted, "{text}");
    assert!(
        text.contains("match a benchmark, but allowed in the dataset"),
        "{text}"
    );
    let allowed =
        format!("**Warning:** {dropped} of {accepted} rows match tasks or files of benchmarks");
    for part in [&*allowed, "kept on purpose", "allow_contaminated = true"] {
        assert!(card().contains(part), "{part} is not in {}", card());
    }
}

/// The goal is a number of rows of the dataset. Rows that match are named, and others are looked for.
#[test]
fn rows_that_match_a_benchmark_do_not_count_toward_the_goal() {
    let Some(fixture) = with_picture_of_benchmark() else {
        return;
    };
    let (status, text) = synthesize(&fixture, &[]);
    assert_eq!(status, Some(0), "{text}");
    let (all, clean) = (fixture.units().len(), dataset_rows(&fixture).len());
    let tasks: Vec<Task> = fixture.lines("tasks.jsonl");
    let planted = |task: &Task| task.files.iter().any(|file| file.name == "holiday.jpeg");
    assert!(
        tasks[..clean].iter().any(planted),
        "another seed is needed: no task that matches comes before the last other one"
    );

    let goal = format!("goal.accept={clean}");
    let (status, text) = synthesize(&fixture, &["--set", &goal]);
    assert_eq!(status, Some(0), "{text}");
    let rows = dataset_rows(&fixture);
    assert_eq!(rows.len(), clean, "{text}");
    assert!(!rows.iter().any(is_planted), "{text}");
    let listed: Vec<serde_json::Value> = fixture.lines("contaminated.jsonl");
    assert!(
        !listed.is_empty() && listed.len() <= all - clean,
        "{listed:?}"
    );

    // More rows than there are others: the run is incomplete, and says why.
    let goal = format!("goal.accept={all}");
    let mut command = fixture.program("synthesize", &["--set", &goal]);
    let output = command.output().unwrap();
    assert_eq!(code(&output), Some(7), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    let expected = format!(
        "{clean} trajectories were accepted, beside {} that match benchmarks and are left out",
        all - clean
    );
    assert!(error.contains(&expected), "{error}");
    // What was allowed counts.
    let (status, text) = synthesize(&fixture, &["--set", &goal, "--allow-contaminated"]);
    assert_eq!(status, Some(0), "{text}");
    assert_eq!(dataset_rows(&fixture).len(), all);
}

/// As the user would: in a shell, with the model's name filled in.
#[test]
fn the_command_for_a_real_endpoint_is_one_that_works() {
    let fixture = RunFixture::bare(RECIPE);
    let (status, text) = synthesize(&fixture, &["--dry-run"]);
    assert_eq!(status, Some(0), "{text}");
    let program = format!("{} synthesize", crate::support::PYBENCH);
    let command = pybench_shard::endpoint_command(&format!("{program} t.toml"), "t")
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

/// As the user would: in a shell, where the runs lie in a folder of his own.
#[test]
fn what_comes_next_works_as_it_is_printed() {
    if !interpreter_is_here() {
        return;
    }
    let fixture = RunFixture::bare(RECIPE);
    let mut command = crate::support::pybench("synthesize");
    command.args(["t.toml", "--runs-dir", "my runs", "--set", "query.tasks=2"]);
    let folder = fixture.path("");
    let output = command
        .current_dir(&folder)
        .env_remove("PYBENCH_ROOT")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let (_, next) = text.split_once("next:\n").unwrap();
    let commands: Vec<&str> = next.lines().take_while(|line| line.contains('#')).collect();
    for expected in ["show", "query", "dataset export", "verify", "publish"] {
        let found = commands.iter().find(|command| command.contains(expected));
        let found = found.unwrap_or_else(|| panic!("{expected}: {text}"));
        let mut shell = Command::new("sh");
        shell
            .args(["-ec", found])
            .current_dir(&folder)
            .env_remove("PYBENCH_ROOT");
        let output = shell.output().unwrap();
        assert_eq!(code(&output), Some(0), "{found}: {output:?}");
    }
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

/// A table with a category, two numbers and a name, as csv.
fn stock() -> String {
    let at = |n: usize| (n * 7919 + 13) % 1009;
    let row = |n: usize| {
        let (region, price) = (["north", "south", "east"][at(n) % 3], at(n) as f64 / 8.0);
        format!("item {n:03},{region},{price},{}\n", at(n + 5) % 90)
    };
    "name,region,price,stock\n".to_owned() + &(0..80).map(row).collect::<String>()
}

#[test]
fn composed_tasks_are_solved_by_the_expert_and_their_faults_are_rejected() {
    if !interpreter_is_here() {
        return;
    }
    let recipe = "name = 't'\nseed = 3\nteacher = { kind = 'expert', faults = 0.4, recoveries = 0.5 }\n\n\
        [[crawl.sources]]\nsource = 'local'\npath = 'files'\nlicense = 'CC0-1.0'\n\n\
        [query]\ntasks = 12\ncomposed = 1.0\nrenamed = 0.5\nimprecise = 0.5\n\n\
        [shard]\nheld_out_templates = 0\ntest_fraction = 0\n";
    let fixture = RunFixture::bare(recipe);
    fixture.add("stock.csv", stock().as_bytes());
    let (status, text) = synthesize(&fixture, &[]);
    assert_eq!(status, Some(0), "{text}");
    let tasks: Vec<Task> = fixture.lines("tasks.jsonl");
    assert_eq!(tasks.len(), 12, "{text}");
    let wordings = |task: &Task| pybench_types::held_out::composition(task).1;
    let is_imprecise = |name: &String| name.starts_with("imprecise/");
    let imprecise = tasks
        .iter()
        .filter(|task| wordings(task).iter().any(is_imprecise));
    assert!((1..12).contains(&imprecise.count()));
    let derived = tasks
        .iter()
        .filter(|task| task.files[0].derived_from.is_some());
    assert!((1..12).contains(&derived.count()));
    let trajectories: Vec<pybench_types::trajectory::Trajectory> =
        fixture.lines("trajectories.jsonl");
    let verdicts: Vec<pybench_types::trajectory::Verdict> = fixture.lines("verdicts.jsonl");
    let (mut faults, mut sound) = (0, 0);
    for trajectory in &trajectories {
        let verdict = verdicts
            .iter()
            .find(|verdict| verdict.trajectory == trajectory.id)
            .unwrap();
        assert_eq!(
            verdict.accepted,
            trajectory.fault.is_none(),
            "{:?} {verdict:?}",
            trajectory.fault
        );
        match trajectory.fault {
            Some(_) => faults += 1,
            None => sound += 1,
        }
    }
    assert!(faults > 0 && sound > 0, "{faults} faults, {sound} without");
    check_mistakes(&fixture);
}

/// A row has one reply that is not trained if the expert errs in it, and none otherwise.
fn check_mistakes(fixture: &RunFixture) {
    let library = Arc::new(Library::embedded().unwrap());
    let format = pybench_agent::format(FormatChoice::Pybench);
    let expert = Expert::new(library, format).with_faults(0.4, 3);
    let expert = expert.with_recoveries(0.5);
    let tasks: Vec<Task> = fixture.lines("tasks.jsonl");
    let (mut erring, mut others) = (0, 0);
    for row in read::dataset(&fixture.folder().join("dataset")).unwrap() {
        let row = row.unwrap().1;
        let task = tasks.iter().find(|task| task.id == row.task_id).unwrap();
        let replies = row.messages.iter().filter(|m| m.role == Role::Assistant);
        let untrained = replies.enumerate().filter(|(_, reply)| !reply.trained);
        let untrained: Vec<usize> = untrained.map(|(at, _)| at).collect();
        let mistake = expert.mistake(task, row.sample);
        assert_eq!(untrained, Vec::from_iter(mistake));
        match mistake {
            Some(_) => erring += 1,
            None => others += 1,
        }
    }
    assert!(
        erring > 0 && others > 0,
        "{erring} rows with a mistake, {others} without"
    );
}

#[test]
fn composed_tasks_have_the_difficulties_that_a_recipe_weighs() {
    let recipe = "name = 't'\nseed = 3\nteacher = { kind = 'expert' }\n\n\
        [[crawl.sources]]\nsource = 'local'\npath = 'files'\nlicense = 'CC0-1.0'\n\n\
        [query]\ntasks = 6\ncomposed = 1.0\ncategories = ['chart']\n\
        balance.difficulties = { easy = 2, medium = 1, hard = 0 }\n\n\
        [shard]\nheld_out_templates = 0\ntest_fraction = 0\n";
    let fixture = RunFixture::bare(recipe);
    fixture.add("stock.csv", stock().as_bytes());
    for command in ["crawl", "query"] {
        let output = fixture.program(command, &[]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(&output), Some(0), "{text}");
    }
    let tasks: Vec<Task> = fixture.lines("tasks.jsonl");
    let count = |wanted: Difficulty| {
        let of = tasks.iter().map(difficulty::of_task);
        of.filter(|found| *found == Some(wanted)).count()
    };
    assert_eq!(Difficulty::ALL.map(count), [4, 2, 0]);
}

#[test]
fn composing_from_the_command_line_prints_or_proves() {
    let fixture = RunFixture::bare(RECIPE);
    fixture.add("stock.csv", stock().as_bytes());
    let folder = fixture.path("files");
    let compose = |args: &[&str]| {
        let output = crate::support::pybench("compose")
            .arg("--files")
            .arg(&folder)
            .args(args)
            .output();
        let output = output.unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (code(&output), text.into_owned())
    };
    let (status, text) = compose(&["--count", "3"]);
    assert_eq!(status, Some(0), "{text}");
    assert_eq!(text.matches("──").count(), 3, "{text}");
    let (_, again) = compose(&["--count", "3"]);
    assert_eq!(text, again, "the same seed gives the same tasks");
    let (status, text) = compose(&["--count", "3", "--diversity"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("| composed | 3 |"), "{text}");
    if interpreter_is_here() {
        let (status, text) = compose(&["--count", "3", "--audit"]);
        assert_eq!(status, Some(0), "{text}");
        assert!(text.contains("expert passes            3 of 3"), "{text}");
        assert!(text.contains("null agents that pass    0"), "{text}");
        let (status, text) = compose(&["--count", "2", "--prove"]);
        assert_eq!(status, Some(0), "{text}");
        assert!(text.contains("expert passes            2 of 2"), "{text}");
    }
    let (status, text) = compose(&["--files", "/nowhere"]);
    assert_ne!(status, Some(0), "{text}");
}

#[test]
fn a_recipe_that_asks_for_composed_tasks_of_other_kinds_is_refused() {
    let recipe = RECIPE.replace("[query]\n", "[query]\ncomposed = 0.5\n");
    let fixture = RunFixture::bare(&recipe);
    let output = fixture.program("query", &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        text.contains("query.composed: keywords choose among templates"),
        "{text}"
    );
    let recipe = RECIPE.replace("[query]\n", "[query]\ndifficulties = [1]\n");
    let output = RunFixture::bare(&recipe)
        .program("query", &[])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        text.contains("query.difficulties: only composed tasks have a level"),
        "{text}"
    );
}
