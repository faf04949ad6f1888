//! What Python's `datasets` reads of a file.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const LOAD: &str = "
import json, sys
from datasets import load_dataset
rows = load_dataset(sys.argv[1], data_files=sys.argv[2], split='train')
print(json.dumps({'columns': rows.column_names, 'rows': rows.to_list()}))
";

/// The `columns` and `rows` of a file of the kind `json` or `parquet`, as users of TRL load it; warnings are errors. `None`
/// where the environment of `datasets` cannot be installed, and the test is skipped.
///
/// # Panics
/// The file cannot be loaded.
pub fn load_dataset(kind: &str, path: &Path) -> Option<Value> {
    let python = crate::python::environment("datasets")?;
    let home = tempfile::tempdir().expect("a folder for the cache of `datasets`");
    let loaded = Command::new(python)
        .args(["-W", "error", "-c", LOAD, kind])
        .arg(path)
        .env("HF_HOME", home.path())
        .env("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
        .output()
        .expect("Python runs");
    let stderr = String::from_utf8_lossy(&loaded.stderr);
    assert!(loaded.status.success(), "{stderr}");
    assert!(!stderr.to_lowercase().contains("warn"), "{stderr}");
    Some(serde_json::from_slice(&loaded.stdout).expect("JSON"))
}
