//! How varied composed tasks and the expert's solutions are.

use pybench_compose::script::Script;
use pybench_datasets::dedup::RowTexts;
use pybench_datasets::diversity::DiversitySurvey;
use pybench_run::RunError;
use pybench_types::task::{Task, TaskOrigin};

/// The table of distinct graphs, queries and programs, of near duplicates, and of the self-BLEU of the queries.
///
/// # Errors
/// [`RunError::Internal`] if temporary files cannot be written, or a task has no expert.
pub(super) fn table(tasks: &[Task]) -> Result<String, RunError> {
    let mut survey = DiversitySurvey::new().map_err(|error| internal(&error))?;
    for task in tasks {
        let script = Script::new(task, 0, None).map_err(|error| internal(&error))?;
        let graph = match &task.origin {
            TaskOrigin::Composed { skeleton, .. } => Some(skeleton.as_str()),
            _ => None,
        };
        let texts = RowTexts::new(&task.query, &script.cells(), &[]);
        let added = survey.add_texts(graph, &texts);
        added.map_err(|error| internal(&error))?;
    }
    let diversity = survey.finish().map_err(|error| internal(&error))?;
    Ok(diversity.markdown())
}

fn internal(error: &dyn std::fmt::Display) -> RunError {
    RunError::Internal(error.to_string())
}

#[cfg(test)]
mod tests {
    use pybench_compose::{Medium, TaskSeed, make};
    use pybench_types::held_out::HeldOutRule;
    use pybench_types::task::{FileKind, Language};

    use super::*;

    #[test]
    fn tasks_and_their_solutions_are_counted() {
        let row = |n: usize| format!("item {n},{},{}\n", ["a", "b", "c"][n * n % 3], n * n % 97);
        let bytes = "name,group,price\n".to_owned() + &(0..60).map(row).collect::<String>();
        let bytes = bytes.into_bytes();
        let file = pybench_profile::source_file("stock.csv", FileKind::Csv, &bytes);
        let composed = |seed: u64| {
            let seed = TaskSeed {
                foreign_names: None,
                seed,
                language: Language::En,
                medium: Medium::Table,
                renamed: false,
                messy: false,
                avoided: &HeldOutRule::default(),
            };
            let made = make(&file, &bytes, seed, str::to_owned).unwrap();
            made.map(|made| made.task)
        };
        let mut tasks: Vec<Task> = (0..200).filter_map(composed).take(3).collect();
        let again = tasks[0].clone();
        tasks.push(again);
        let table = table(&tasks).unwrap();
        let cells: Vec<&str> = table.lines().last().unwrap().split(" | ").collect();
        assert_eq!(cells[..2], ["| composed", "4"], "{table}");
        assert_eq!(cells[5], "1 (25.0 %)", "near duplicates: {table}");
        assert!(cells[6].starts_with("0."), "self-BLEU: {table}");
    }
}
