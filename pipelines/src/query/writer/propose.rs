//! A check as the generator may propose it: what it is shown, and what is wrong with a proposal on its face.

use std::path::Path;

use pybench::grade::CheckSpec;
use pybench::task::Task;
use serde_json::Value;

use super::answer::{Answer, Proposal};

/// What a reference has no business with: the agent's files lie there, and the checker.
const FORBIDDEN: [&str; 4] = ["candidate", "output/", "task.json", "checker"];

/// The widest tolerances that may be proposed. Wrong results for an audit are made just beyond a check's own
/// tolerance, so that the audit does not see one that lets everything pass.
const WIDEST: [(&str, f64); 5] = [
    ("rtol", 0.02),
    ("atol", 0.05),
    ("mean_difference", 8.0),
    ("duration", 0.5),
    ("level", 3.0),
];

/// Checks that fit an output, by its ending. Those with code that judges (`property`) and with rows held
/// out (`model`) are not proposed.
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

/// Outputs of every kind.
pub(super) const EVERY_KIND: [&str; 11] = [
    "a.csv", "a.json", "a.png", "a.gif", "a.svg", "a.wav", "a.pdf", "a.docx", "a.html", "a.py",
    "a.txt",
];

fn allowed(task: &Task) -> Vec<&'static str> {
    let of_outputs = task.outputs.iter().flat_map(|path| kinds(path));
    let mut allowed: Vec<_> = ["number", "values"]
        .iter()
        .chain(of_outputs)
        .copied()
        .collect();
    allowed.sort_unstable();
    allowed.dedup();
    allowed
}

/// The schema of proposals for that task: of the specification language what fits its outputs.
pub(super) fn schema(task: &Task) -> Value {
    let allowed = allowed(task);
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

/// What is wrong with a proposal before anything is run, for its writer.
pub(super) fn problem(task: &Task, proposal: &Proposal) -> Option<String> {
    let code = &proposal.reference;
    if let Some(word) = FORBIDDEN.into_iter().find(|word| code.contains(word)) {
        return Some(format!(
            "the reference speaks of `{word}`: it computes from ./data alone, and other names will do"
        ));
    }
    let allowed = allowed(task);
    let mut seen = Vec::new();
    for check in &proposal.checks {
        let Faces {
            kind,
            path,
            marker,
            wide,
        } = Faces::of(check);
        if !allowed.contains(&kind.as_str()) {
            let allowed = allowed.join(", ");
            return Some(format!(
                "a check `{kind}` does not fit this task: one of {allowed}"
            ));
        }
        if let Some((name, most)) = wide {
            return Some(format!(
                "`{name}` of the check `{kind}` is more than {most}: wrong results would pass; a task says \
                 how to round"
            ));
        }
        match path {
            Some(path) if !task.outputs.contains(&path) => {
                return Some(format!("the task asks for no file `{path}`"));
            }
            Some(path) => seen.push(path),
            None => {}
        }
        if let Some(marker) = marker.filter(|marker| !task.query.contains(marker.as_str())) {
            return Some(format!("the task asks for no label `{marker}`"));
        }
    }
    let unseen = task.outputs.iter().find(|path| !seen.contains(path))?;
    Some(format!("no check looks at `{unseen}`"))
}

/// What every kind of check has in common.
struct Faces {
    kind: String,
    path: Option<String>,
    marker: Option<String>,
    /// A tolerance that is too wide, and what is allowed.
    wide: Option<(&'static str, f64)>,
}

impl Faces {
    fn of(check: &CheckSpec) -> Self {
        let value = serde_json::to_value(check).unwrap_or_default();
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        Self {
            kind: text("check").unwrap_or_default(),
            path: text("path"),
            marker: text("marker"),
            wide: WIDEST.into_iter().find(|(name, most)| {
                let tolerance = value[*name].as_f64();
                tolerance.is_some_and(|tolerance| tolerance.abs() > *most)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::eval::bare::bare_task;

    fn task(outputs: &[&str]) -> Task {
        let mut task = bare_task("q", pybench::task::Category::Chart, "query");
        task.query = "Save ./output/a.csv and state `Mean: `.".to_owned();
        task.outputs = outputs.iter().map(|path| (*path).to_owned()).collect();
        task
    }

    fn proposal(reference: &str, checks: Value) -> Proposal {
        serde_json::from_value(json!({"reference": reference, "checks": checks})).unwrap()
    }

    #[test]
    fn the_schema_shows_what_fits() {
        let text = schema(&task(&["output/a.csv"])).to_string();
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
    fn a_proposal_is_looked_at_before_it_is_run() {
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
            let said = with(code, checks).unwrap();
            assert!(said.contains(expected), "{said}");
        }
    }
}
