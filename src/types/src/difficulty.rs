//! How difficult a composed task is, by what it is made of.

use crate::held_out::composition;
use crate::task::{Difficulty, Task, TaskFile};

/// The most difficult level; the easiest one is 1.
pub const MAX_LEVEL: u32 = 5;

/// How the wordings of a task begin that say it less precisely.
const IMPRECISE: &str = "imprecise/";

/// The level of a composed task, from 1 to [`MAX_LEVEL`]: each operation, each further file, a messy file and imprecise
/// wordings count one point; three points or fewer are level 1, seven or more level 5. `None` for other tasks.
pub fn level(task: &Task) -> Option<u32> {
    let (operations, wordings) = composition(task);
    if operations.is_empty() {
        return None;
    }
    let branches = task.files.len().saturating_sub(1);
    let is_messy = task.files.iter().any(is_messy);
    let is_imprecise = wordings.iter().any(|name| name.starts_with(IMPRECISE));
    let points = operations.len() + branches + usize::from(is_messy) + usize::from(is_imprecise);
    let level = u32::try_from(points.saturating_sub(2)).unwrap_or(MAX_LEVEL);
    Some(level.clamp(1, MAX_LEVEL))
}

/// The difficulty of a composed task: level 1 is easy, levels 2 and 3 are medium, the others hard. `None` for other tasks.
pub fn of_task(task: &Task) -> Option<Difficulty> {
    Some(match level(task)? {
        ..=1 => Difficulty::Easy,
        2 | 3 => Difficulty::Medium,
        _ => Difficulty::Hard,
    })
}

/// Whether a file is written so that one has to look how.
fn is_messy(file: &TaskFile) -> bool {
    file.format.as_ref().is_some_and(|format| {
        let encoding = format.encoding.as_deref().unwrap_or("utf-8");
        !format.read.is_default() || !matches!(encoding, "utf-8" | "utf8" | "ascii")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Digest;
    use serde_json::{Value, json};

    fn file(format: &Value) -> Value {
        json!({
            "name": "a.csv", "id": Digest::of_bytes(b"a"), "kind": "csv", "origin": "a.csv", "license": null,
            "format": format,
        })
    }

    fn task(skeleton: &str, wordings: &[&str], files: &[Value]) -> Task {
        let task = json!({
            "id": Digest::of_bytes(b"task"), "category": "chart", "subcategory": "", "keyword": "", "language": "en",
            "query": "", "files": files, "outputs": [], "reference": "", "checks": [],
            "origin": {"by": "composed", "skeleton": skeleton, "plan": null, "wordings": wordings},
        });
        serde_json::from_value(task).unwrap()
    }

    #[test]
    fn what_a_task_is_made_of_counts() {
        let plain = file(&Value::Null);
        let level = |skeleton: &str, wordings: &[&str], files: &[&Value]| {
            let files: Vec<Value> = files.iter().copied().cloned().collect();
            level(&task(skeleton, wordings, &files)).unwrap()
        };
        assert_eq!(level("a>b", &["a/en/1"], &[&plain]), 1);
        assert_eq!(level("a>b>c", &[], &[&plain]), 1);
        assert_eq!(level("a>b>c>d", &[], &[&plain]), 2);
        assert_eq!(level("a>b>c>d", &["imprecise/en/0"], &[&plain]), 3);
        assert_eq!(level("a>b>c", &[], &[&plain, &plain, &plain]), 3);
        let encoded = file(&json!({"encoding": "utf-16"}));
        let comma = file(&json!({"read": {"decimal_comma": ["price"]}}));
        for messy in [&encoded, &comma] {
            assert_eq!(level("a>b>c>d", &[], &[messy]), 3);
        }
        assert_eq!(level("a>b>c>d>e>f>g>h", &[], &[&plain]), MAX_LEVEL);
    }

    #[test]
    fn levels_have_names() {
        let plain = [file(&Value::Null)];
        let of = |skeleton: &str| of_task(&task(skeleton, &[], &plain));
        assert_eq!(of("a>b>c"), Some(Difficulty::Easy));
        assert_eq!(of("a>b>c>d"), Some(Difficulty::Medium));
        assert_eq!(of("a>b>c>d>e"), Some(Difficulty::Medium));
        assert_eq!(of("a>b>c>d>e>f"), Some(Difficulty::Hard));
        assert_eq!(of("a>b>c>d>e>f>g"), Some(Difficulty::Hard));
        for difficulty in Difficulty::ALL {
            assert_eq!(serde_json::to_value(difficulty).unwrap(), difficulty.name());
        }
    }
}
