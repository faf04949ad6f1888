//! PyBench, where somebody has given its files.

use std::path::{Path, PathBuf};

/// The folder `data` of PyBench: below `PYBENCH_DATA`, or beside the checkout. `None`, with a printed reason, if it is not
/// there.
pub fn pybench_data() -> Option<PathBuf> {
    let named = std::env::var_os("PYBENCH_DATA").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| Path::new(crate::ROOT).join("../shared/pybench"));
    let data = folder.join("data");
    if data.join("meta/task.json").is_file() {
        return Some(data);
    }
    crate::skip::unavailable(format_args!("no PyBench in {}", folder.display()));
    None
}

/// The queries of its tasks.
pub fn pybench_queries() -> Option<Vec<String>> {
    let text = std::fs::read_to_string(pybench_data()?.join("meta/task.json")).unwrap();
    let tasks: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let query = |task: &serde_json::Value| task["user"].as_str().unwrap().to_owned();
    Some(tasks.iter().map(query).collect())
}
