//! The task folders as TRL's `HarborSpec` loads them. Running them needs the package harbor, which requires Python
//! 3.12; the environments of tests have the machine's Python.

use std::process::Command;

use pybench_testing::ROOT;
use serde_json::Value;

use crate::library::export::fixture::{exported, tasks};

/// Prints the rows of `spec`, the prompt's end, and rewards, after the document's example has run.
const LOOK: &str = "
import json
rows = spec.train_dataset.to_list()
environment = spec.environment_factory()
found = {'rows': rows, 'suffix': environment.PROMPT_SUFFIX, 'tools': hasattr(environment, 'bash')}
found['rewards'] = spec.reward_funcs(environment_reward=[1, 0])
del environment  # At exit its thread would be waited for.
print(json.dumps(found))
";

#[test]
fn the_documents_example_loads_the_folders_with_trl() {
    let Some(out) = exported("harbor") else {
        return;
    };
    let Some(python) = pybench_testing::python::environment("train-elsewhere") else {
        return;
    };
    let document = std::fs::read_to_string(format!("{ROOT}/docs/library-export.md")).unwrap();
    let examples = document.split("```python\n").skip(1);
    let examples = examples.filter_map(|rest| rest.split("```").next());
    let example = examples
        .into_iter()
        .find(|text| text.contains("HarborSpec(\"DIR\""));
    let example = example.unwrap().replace("DIR", out.to_str().unwrap());
    let output = Command::new(python)
        .args(["-c", &format!("{example}{LOOK}")])
        .envs([("TRL_EXPERIMENTAL_SILENCE", "1"), ("HF_HUB_OFFLINE", "1")])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let found: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let rows = found["rows"].as_array().unwrap();
    let folders: Vec<_> = rows
        .iter()
        .map(|row| row["task_dir"].as_str().unwrap())
        .collect();
    let expected = tasks(out);
    let expected: Vec<_> = expected.iter().map(|task| task.to_str().unwrap()).collect();
    assert_eq!(folders, expected);
    // The instruction says where the answer goes.
    assert_eq!(found["suffix"], "");
    assert_eq!(found["tools"], true);
    assert_eq!(found["rewards"], serde_json::json!([1.0, 0.0]));
}
