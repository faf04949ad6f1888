//! Tasks that ask for a program.

use pybench_types::check::CheckSpec;

use super::{rng, table, task};
use crate::argument::{Argument, Arguments};
use crate::graph::{Graph, Step};
use crate::program;
use crate::script::{Action, Script};

fn step(operation: &str, arguments: Arguments) -> Step {
    Step {
        operation: operation.to_owned(),
        arguments,
    }
}

#[test]
fn a_program_is_run_on_other_tables_of_which_each_step_changes_the_output() {
    let column = || ("column", Argument::Column("price".to_owned()));
    let above = Arguments::new([column(), ("value", Argument::Number(40.0))]);
    let mean = step("answer_mean", Arguments::new([column()]));
    let (start, filtered) = (table(120), step("filter_above", above));
    let drawn = |steps: Vec<Step>| program::draw(&Graph(steps), &start, Some(4), &mut rng(3));
    let found = drawn(vec![filtered, mean.clone()]).unwrap();
    assert!(found.path.ends_with(".py"), "{}", found.path);
    let runs: serde_json::Value = serde_json::from_str(&found.runs).unwrap();
    let runs = runs.as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for run in runs {
        let stdin = run["stdin"].as_str().unwrap();
        assert!(stdin.starts_with("price,amount,cost,region"), "{stdin}");
        assert!((21..=41).contains(&stdin.lines().count()), "{stdin}");
        let stdout = run["stdout"].as_str().unwrap();
        let (_, decimals) = stdout.split_once('.').unwrap();
        assert_eq!(decimals.len(), 4, "{stdout}");
    }
    // A sort changes nothing, and a part of the rows may have ties.
    let sorted = step("sort_ascending", Arguments::new([column()]));
    assert!(drawn(vec![sorted, mean.clone()]).is_none());
    // A filter that keeps all rows could be left out.
    let all = Arguments::new([column(), ("value", Argument::Number(-1.0))]);
    assert!(drawn(vec![step("filter_above", all), mean]).is_none());
}

#[test]
fn the_expert_writes_the_program_and_runs_it() {
    let tasks = (0..600).filter_map(|seed| task(seed, false));
    let mut programs = tasks
        .map(|made| made.task)
        .filter(|task| matches!(task.checks.as_slice(), [CheckSpec::Program { .. }]));
    let task = programs.next().unwrap();
    let path = &task.outputs[0];
    assert!(task.query.contains(&format!("./{path}")), "{}", task.query);
    assert!(task.query.contains("standard input"), "{}", task.query);
    let script = Script::new(&task, 0, None).unwrap();
    let cells = script.cells();
    let [.., written, run] = cells.as_slice() else {
        panic!("{cells:?}");
    };
    assert!(
        written.contains("pd.read_csv(sys.stdin.buffer)") && written.contains(path.as_str()),
        "{written}"
    );
    assert!(run.contains("subprocess.run"), "{run}");
    let seen = vec!["1"; cells.len()];
    let Action::Answer(answer) = script.next(&seen).unwrap() else {
        panic!("no answer after all cells");
    };
    assert!(answer.contains(path.as_str()), "{answer}");
}
