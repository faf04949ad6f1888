//! Every template proves its check, with the real interpreter and the real checker.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pybench_checks::Checker;
use pybench_library::Library;
use pybench_library::audit::fixtures::Fixtures;
use pybench_library::audit::{AuditEnv, AuditOptions, audit, matrix, summary, table};
use pybench_types::id::Digest;

fn bench(library: Library) -> Option<AuditEnv> {
    let interpreter = pybench_testing::sessions::default_interpreter()?;
    let samples = Path::new(pybench_testing::ROOT).join("data/samples");
    Some(AuditEnv {
        library: Arc::new(library),
        checker: Checker::new(interpreter.clone()).unwrap(),
        interpreter,
        fixtures: Fixtures::read(&samples).unwrap(),
    })
}

fn options() -> AuditOptions {
    AuditOptions {
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        ..AuditOptions::default()
    }
}

/// Templates audited beside those that changed.
const SAMPLE: usize = 8;

/// Templates that changed since the last full audit, which `just audit` records, and a sample of the
/// others: another checker draws another sample.
fn due(checker: &str) -> Vec<String> {
    let path = Path::new(pybench_testing::ROOT).join("pipelines/library/audited.toml");
    let record = std::fs::read_to_string(&path).unwrap();
    let record: BTreeMap<String, String> = toml::from_str(&record).unwrap();
    let (same, mut due): (Vec<String>, Vec<String>) = pybench_library::digests()
        .unwrap()
        .into_iter()
        .map(|(template, digest)| (record.get(&template) == Some(&digest), template))
        .fold(
            (Vec::new(), Vec::new()),
            |(mut same, mut due), (equal, template)| {
                if equal {
                    same.push(template)
                } else {
                    due.push(template)
                }
                (same, due)
            },
        );
    let mut drawn: Vec<_> = same
        .into_iter()
        .map(|template| (Digest::of_json(&(checker, &template)), template))
        .collect();
    drawn.sort();
    due.extend(drawn.into_iter().take(SAMPLE).map(|(_, template)| template));
    due
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn templates_that_changed_and_a_sample_are_sound() {
    let library = Library::embedded().unwrap();
    let Some(bench) = bench(library) else { return };
    let due = due(&bench.checker.digest());
    let options = AuditOptions {
        templates: due.clone(),
        ..options()
    };
    let rows = audit(&bench, &options, |_| ()).await.unwrap();
    assert!(
        rows.iter().all(|row| row.sound()),
        "{}\n{}",
        table(&rows),
        summary(&rows)
    );
    assert!(rows.len() >= due.len());
}

/// The audit finds a check that accepts what is wrong.
#[tokio::test]
async fn a_weak_check_is_found() {
    let root = Path::new(pybench_testing::ROOT).join("pipelines/library");
    let text = std::fs::read_to_string(root.join("templates/math/math-derivative.toml")).unwrap();
    let weak = text.replace(
        "expected = \"expected\"",
        "expected = \"expected\"\nrtol = 100.0",
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("templates/math/math-derivative.toml");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, weak).unwrap();
    let Some(bench) = bench(Library::read(folder.path()).unwrap()) else {
        return;
    };
    let rows = audit(&bench, &options(), |_| ()).await.unwrap();
    assert!(!rows[0].sound());
    assert!(table(&rows).contains("passes, though it is wrong: own: the second derivative"));
}

/// The text of a new template, as `pybench library new` writes it, in a folder of its own.
fn new_template() -> (tempfile::TempDir, std::path::PathBuf, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut new = crate::support::pybench("library");
    new.arg("--library").arg(folder.path());
    assert!(new.args(["new", "my-own"]).status().unwrap().success());
    let path = folder.path().join("templates/chart/my-own.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    (folder, path, text)
}

/// A mutant of a requirement counts only if it runs, changes the result, fails by a check of its requirement,
/// and by no other.
#[tokio::test]
async fn a_violation_must_be_decided_by_its_checks_alone() {
    let (folder, path, mut text) = new_template();
    for (from, to) in [
        ("also = [\"range\"]\n", ""),
        (
            "replace = '{\"min\": least, \"max\": largest}'",
            "replace = '{ \"least\": least, \"largest\": largest}'",
        ),
        (
            "replace = 'least - largest)'",
            "replace = 'least - largest); 1 / 0'",
        ),
        (
            "replace = '\"least\": round(least),'",
            "replace = '\"least\": least + 1e-12 * abs(least),'",
        ),
    ] {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text = text.replace(from, to);
    }
    std::fs::write(path, text).unwrap();
    let Some(bench) = bench(Library::read(folder.path()).unwrap()) else {
        return;
    };
    let rows = audit(&bench, &options(), |_| ()).await.unwrap();
    let table = table(&rows);
    for problem in [
        "`mean instead of largest` violates `extremes` alone, but failed also by number Range: ",
        "`other keys` violates `keys` alone, but left the same result on these files",
        "`difference with the wrong sign` violates `difference` alone, but raised ZeroDivisionError: ",
        "`rounded in the file` violates `unrounded` alone, but failed by none of the checks that decide it",
        "no mutant that violates `unrounded` fails by check `file`, which is to decide it",
    ] {
        assert!(table.contains(problem), "{problem}\n{table}");
    }
    assert!(
        table.contains("unrounded (precision): 1/2 violations fail by file, range"),
        "{table}"
    );
    let matrix = matrix(&rows);
    assert!(
        matrix.contains("content               1             2         0/2"),
        "{matrix}"
    );
}

/// Files on which a violation leaves the same result are refused, and counted by reason.
#[tokio::test]
async fn files_that_hide_a_violation_are_refused() {
    let (folder, _, _) = new_template();
    let Some(mut bench) = bench(Library::read(folder.path()).unwrap()) else {
        return;
    };
    let data = tempfile::tempdir().unwrap();
    let rows = |step: f64| {
        (0..12)
            .map(|i| format!("a{i},{:?}\n", f64::from(i) * step))
            .collect::<String>()
    };
    std::fs::write(
        data.path().join("whole.csv"),
        format!("name,amount\n{}", rows(1.0)),
    )
    .unwrap();
    bench.fixtures = Fixtures::read(data.path()).unwrap();
    let refused = &audit(&bench, &options(), |_| ()).await.unwrap()[0];
    assert!(!refused.sound() && !refused.expert, "{refused:?}");
    assert_eq!(
        refused.refused.keys().collect::<Vec<_>>(),
        ["a violation of `unrounded` gives the same result"]
    );
    let whole = data.path().join("fraction.csv");
    std::fs::write(
        whole,
        format!("name,amount\n{}", rows(1.3).replace("a0,0.0", "a0,0.7")),
    )
    .unwrap();
    bench.fixtures = Fixtures::read(data.path()).unwrap();
    let rows = audit(&bench, &options(), |_| ()).await.unwrap();
    assert!(
        rows[0].sound() && rows[0].files == ["fraction.csv"],
        "{}",
        table(&rows)
    );
}

/// What `pybench library new` writes is sound before anything is changed.
#[tokio::test]
async fn a_new_template_is_sound() {
    let (folder, _, _) = new_template();
    let Some(bench) = bench(Library::read(folder.path()).unwrap()) else {
        return;
    };
    let rows = audit(&bench, &options(), |_| ()).await.unwrap();
    assert!(rows.iter().all(|row| row.sound()), "{}", table(&rows));
    assert_eq!(rows.len(), 1);
}
