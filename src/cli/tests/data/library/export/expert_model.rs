//! A scripted model behind an endpoint: it solves exported tasks as their expert does.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use pybench_testing::endpoint::{Answer, Endpoint};
use serde_json::{Value, json};

use crate::library::export::fixture::files_below;

/// The name by which the model solves tasks. By every other name it only says that it is done.
pub(crate) const EXPERT: &str = "expert";

/// What the expert sends for a task.
struct Solution {
    cells: Vec<String>,
    answer: String,
}

impl Solution {
    /// The solution in a task folder of Harbor.
    fn read(task: &Path) -> Self {
        let solution = task.join("solution");
        let cells = solution.join("cells");
        let cell = |name: String| fs::read_to_string(cells.join(name)).unwrap();
        Self {
            cells: files_below(&cells).into_iter().map(cell).collect(),
            answer: fs::read_to_string(solution.join("answer.txt")).unwrap(),
        }
    }
}

/// Starts a model for the tasks of a package. Their solutions are those of the same tasks as folders of Harbor.
pub(crate) async fn start(harbor: &Path, package: &Path) -> Endpoint {
    let rows = fs::read_to_string(package.join("pybench_library/tasks.jsonl")).unwrap();
    let solution = |row: &str| {
        let row: Value = serde_json::from_str(row).unwrap();
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        (text("prompt"), Solution::read(&harbor.join(text("name"))))
    };
    let solutions: HashMap<String, Solution> = rows.lines().map(solution).collect();
    Endpoint::start(move |request| std::future::ready(reply(&solutions, &request))).await
}

/// The expert sends one cell after the other, and its answer when the last one has been run.
fn reply(solutions: &HashMap<String, Solution>, request: &Value) -> Answer {
    if request["model"] != EXPERT {
        return Answer::Content("I am done.".to_owned());
    }
    let messages = request["messages"].as_array().unwrap();
    let mut prompts = messages.iter().filter(|message| message["role"] == "user");
    let prompt = prompts.next().unwrap()["content"].as_str().unwrap();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    let (solution, already_run) = (&solutions[prompt], results.count());
    match solution.cells.get(already_run) {
        Some(cell) => Answer::ToolCall {
            id: format!("call_{already_run}"),
            name: "execute_python",
            arguments: json!({"code": cell}),
        },
        None => Answer::Content(solution.answer.clone()),
    }
}
