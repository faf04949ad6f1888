//! Proposed checks: the schema that the generator sees, and static validation of a proposal.

use std::path::Path;

use pybench_types::check::CheckSpec;
use pybench_types::task::Task;
use serde_json::Value;

use super::answer::{ModelAnswer, Proposal};

/// Words that a reference must not contain: they refer to the agent's files or to the checker.
const FORBIDDEN: [&str; 4] = ["candidate", "output/", "task.json", "checker"];

/// Maximum tolerances of a proposed check. The audit creates wrong results just beyond a check's own
/// tolerance, so it would not notice a tolerance that accepts everything.
const MAX_TOLERANCES: [(&str, f64); 6] = [
    ("rtol", 0.02),
    ("atol", 0.05),
    ("mean_difference", 8.0),
    ("duration", 0.5),
    ("shift", 0.1),
    ("level", 3.0),
];

/// The kinds of check that fit an output, by file extension. `property` (code that judges) and `model`
/// (held-out rows) are not offered.
fn kinds(path: &str) -> &'static [&'static str] {
    let ending = Path::new(path).extension().and_then(|end| end.to_str());
    match ending.unwrap_or_default().to_ascii_lowercase().as_str() {
        "csv" | "tsv" | "xlsx" | "parquet" | "jsonl" | "sqlite" | "db" => &["table"],
        "json" => &["json", "table"],
        "png" | "jpg" | "jpeg" | "webp" | "bmp" => &["image", "plot", "qr"],
        "gif" => &["frames", "image"],
        "svg" => &["plot"],
        "wav" | "mp3" | "flac" | "ogg" => &["audio"],
        "pdf" => &["pdf"],
        "docx" => &["docx"],
        "html" | "htm" => &["html"],
        "py" => &["program"],
        _ => &["text"],
    }
}

/// One output path per kind of file.
pub(super) const EVERY_KIND: [&str; 11] = [
    "a.csv", "a.json", "a.png", "a.gif", "a.svg", "a.wav", "a.pdf", "a.docx", "a.html", "a.py",
    "a.txt",
];

fn allowed<P: AsRef<str>>(outputs: &[P]) -> Vec<&'static str> {
    let of_outputs = outputs.iter().flat_map(|path| kinds(path.as_ref()));
    let mut allowed: Vec<_> = ["number", "values"]
        .iter()
        .chain(of_outputs)
        .copied()
        .collect();
    allowed.sort_unstable();
    allowed.dedup();
    allowed
}

/// The JSON Schema of proposals for a task with these outputs, limited to the kinds of check that fit them.
pub(super) fn schema<P: AsRef<str>>(outputs: &[P]) -> Value {
    let allowed = allowed(outputs);
    let mut schema = Proposal::schema();
    let variants = schema.pointer_mut("/properties/checks/items/oneOf");
    if let Some(Value::Array(variants)) = variants {
        variants.retain(|variant| {
            let kind = variant["properties"]["check"]["const"].as_str();
            kind.is_some_and(|kind| allowed.contains(&kind))
        });
    }
    schema
}

/// The first problem of a proposal that shows without running it. The text is sent to the generator.
pub(super) fn problem(task: &Task, proposal: &Proposal) -> Option<String> {
    let code = &proposal.reference;
    if let Some(word) = FORBIDDEN.into_iter().find(|word| code.contains(word)) {
        return Some(format!(
            "the reference speaks of `{word}`: it computes from ./data alone, and other names will do"
        ));
    }
    let allowed = allowed(&task.outputs);
    let mut checked_paths = Vec::new();
    for check in &proposal.checks {
        let CommonFields {
            kind,
            path,
            marker,
            wide,
        } = CommonFields::of(check);
        if !allowed.contains(&kind.as_str()) {
            let allowed = allowed.join(", ");
            return Some(format!(
                "a check `{kind}` does not fit this task: one of {allowed}"
            ));
        }
        if let Some((name, limit)) = wide {
            return Some(format!(
                "`{name}` of the check `{kind}` is more than {limit}: wrong results would pass; a task says \
                 how to round"
            ));
        }
        match path {
            Some(path) if !task.outputs.contains(&path) => {
                return Some(format!("the task asks for no file `{path}`"));
            }
            Some(path) => checked_paths.push(path),
            None => {}
        }
        if let Some(marker) = marker.filter(|marker| !task.query.contains(marker.as_str())) {
            return Some(format!("the task asks for no label `{marker}`"));
        }
    }
    let unchecked = task
        .outputs
        .iter()
        .find(|path| !checked_paths.contains(path))?;
    Some(format!("no check looks at `{unchecked}`"))
}

/// The fields that kinds of check have in common.
struct CommonFields {
    kind: String,
    path: Option<String>,
    marker: Option<String>,
    /// A tolerance that is too wide, and its maximum.
    wide: Option<(&'static str, f64)>,
}

impl CommonFields {
    fn of(check: &CheckSpec) -> Self {
        let value = serde_json::to_value(check).unwrap_or_default();
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        Self {
            kind: text("check").unwrap_or_default(),
            path: text("path"),
            marker: text("marker"),
            wide: MAX_TOLERANCES.into_iter().find(|(name, limit)| {
                let tolerance = value[*name].as_f64();
                tolerance.is_some_and(|tolerance| tolerance.abs() > *limit)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn task(outputs: &[&str]) -> Task {
        let mut task = pybench_testing::task::task();
        task.query = "Save ./output/a.csv and state `Mean: `.".to_owned();
        task.outputs = outputs.iter().map(|path| (*path).to_owned()).collect();
        task
    }

    fn proposal(reference: &str, checks: Value) -> Proposal {
        serde_json::from_value(json!({"reference": reference, "checks": checks})).unwrap()
    }

    #[test]
    fn the_schema_offers_only_fitting_checks() {
        let text = schema(&["output/a.csv"]).to_string();
        for (kind, fits) in [
            ("table", true),
            ("number", true),
            ("audio", false),
            ("property", false),
        ] {
            assert_eq!(
                text.contains(&format!("\"const\":\"{kind}\"")),
                fits,
                "{kind}: {text}"
            );
        }
    }

    #[test]
    fn a_proposal_is_validated_before_it_runs() {
        let table = json!({"check": "table", "path": "output/a.csv", "expected": "rows"});
        let mean = json!({"check": "number", "marker": "Mean", "expected": "mean"});
        let with =
            |code: &str, checks: Value| problem(&task(&["output/a.csv"]), &proposal(code, checks));
        assert_eq!(with("rows = []", json!([table, mean])), None);
        for (code, checks, expected) in [
            ("rows = open('candidate/x')", json!([table]), "`candidate`"),
            ("x = 1", json!([mean]), "no check looks at `output/a.csv`"),
            (
                "x = 1",
                json!([{"check": "table", "path": "output/b.csv", "expected": "r"}]),
                "`output/b.csv`",
            ),
            (
                "x = 1",
                json!([table, {"check": "number", "marker": "Sum", "expected": "s"}]),
                "no label `Sum`",
            ),
            (
                "x = 1",
                json!([{"check": "table", "path": "output/a.csv", "expected": "r", "rtol": 1e9}]),
                "`rtol` of the check `table` is more than 0.02",
            ),
            (
                "x = 1",
                json!([{"check": "property", "holds": "f"}]),
                "`property` does not fit",
            ),
        ] {
            let problem_text = with(code, checks).unwrap();
            assert!(problem_text.contains(expected), "{problem_text}");
        }
    }
}
