//! Splits tasks before anything has solved them, by the rules for rows.

use pybench_types::held_out::{HeldOutRule, Unseen};
use pybench_types::task::Task;

use crate::row::{category_name, shared_keys, template};
use crate::split::{Split, SplitRow, SplitSettings, split};

/// Splits tasks: those that share a file stay together, and those with a part that `rule` holds out are not trained on.
/// Near duplicates are not looked for, since there is no code yet.
pub fn split_tasks(tasks: &[Task], settings: &SplitSettings, rule: &HeldOutRule) -> Split {
    let templates: Vec<String> = tasks.iter().map(template).collect();
    let keys = tasks.iter().map(|task| {
        let files = task.files.iter().chain(&task.held_out);
        shared_keys(files.cloned())
    });
    let keys: Vec<Vec<String>> = keys.collect();
    let rows = tasks.iter().zip(&templates).zip(&keys);
    let rows: Vec<SplitRow<'_>> = rows
        .map(|((task, template), keys)| SplitRow {
            template,
            category: category_name(task.category),
            keys,
            near_keys: &[],
            held_out: rule.of_task(task),
        })
        .collect();
    split(&rows, settings)
}

/// What the tasks of the training split lack of one in the test split: the strongest reason.
pub fn unseen(task: &Task, split: &Split, rule: &HeldOutRule) -> Unseen {
    let template = split.held_out.contains(&template(task));
    let all = [rule.of_task(task), template.then_some(Unseen::Template)];
    all.into_iter().flatten().min().unwrap_or(Unseen::Files)
}
