//! `pybench verify` on a real dataset: an unchanged dataset is identical, and all changes are detected.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::fixture::{RunFixture, code, interpreter_is_here};
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use pybench_datasets::shards::{self, ShardSettings};
use pybench_datasets::{Row, read, row_hashes};
use pybench_run::ExitCode;
use pybench_types::trajectory::Role;
use serde_json::Value;

const RECIPE: &str = "name = 't'\nseed = 7\nteacher = { kind = 'expert' }\n\n\
    [[crawl.sources]]\nsource = 'local'\npath = 'files'\nlicense = 'CC0-1.0'\n\n\
    [query]\ntasks = 6\ntemplate_share = 0.5\nkeywords = ['rotate image', 'derivative', 'integral']\n\n\
    [shard]\nheld_out_templates = 0\ntest_fraction = 0.0\n";

/// A dataset of six rows, far from the run that made it.
struct Dataset {
    root: tempfile::TempDir,
}

impl Dataset {
    fn make() -> Self {
        let fixture = RunFixture::bare(RECIPE);
        let mut command = fixture.program("synthesize", &[]);
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(&output), Some(0), "{stderr}");
        let root = tempfile::tempdir().unwrap();
        copy(&fixture.folder().join("dataset"), &root.path().join("made"));
        Self { root }
    }

    /// A copy to change.
    fn copy(&self, name: &str) -> PathBuf {
        let to = self.root.path().join(name);
        copy(&self.root.path().join("made"), &to);
        to
    }

    /// Exit code, report and log of a verification with an empty state.
    fn verify(&self, dataset: &Path, more: &[&str]) -> (Option<i32>, Value, String) {
        let state = self
            .root
            .path()
            .join("state")
            .join(dataset.file_name().unwrap());
        let mut command = crate::support::pybench("verify");
        command
            .arg(dataset)
            .args(["--json", "--offline", "--state"])
            .arg(state)
            .args(more)
            .current_dir(self.root.path())
            .env_remove("PYBENCH_ROOT");
        let output = command.output().unwrap();
        let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (code(&output), report, stderr)
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(fs::copy(&path, &to).unwrap()),
        }
    }
}

/// Change rows and update their hashes, like a careful forger.
fn forge(dataset: &Path, change: impl Fn(&mut Row)) {
    let rows = read::dataset(dataset).unwrap();
    let mut rows: Vec<Row> = rows.map(|row| row.unwrap().1).collect();
    rows.iter_mut().for_each(change);
    for shard in read::shards(dataset).unwrap() {
        fs::remove_file(shard.path).unwrap();
    }
    shards::write(
        &dataset.join("data"),
        "train",
        &rows,
        &ShardSettings::default(),
    )
    .unwrap();
}

/// Change one character of one text column of the first row, and nothing else.
fn scratch(dataset: &Path, column: &str) {
    let path = read::shards(dataset).unwrap().remove(0).path;
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
    let batch: RecordBatch = reader
        .with_batch_size(1000)
        .build()
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let at = batch.schema().index_of(column).unwrap();
    let texts = batch.column(at).as_string::<i32>();
    let mut texts: Vec<String> = texts.iter().map(|text| text.unwrap().to_owned()).collect();
    texts[0].push('.');
    let mut columns = batch.columns().to_vec();
    columns[at] = Arc::new(StringArray::from(texts)) as ArrayRef;
    let batch = RecordBatch::try_new(batch.schema(), columns).unwrap();
    let mut writer =
        ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn only_reason(report: &Value) -> String {
    let reasons: Vec<_> = report["reasons"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    assert_eq!(reasons.len(), 1, "{report}");
    reasons[0].clone()
}

#[test]
fn a_dataset_is_verified_and_all_changes_are_detected() {
    if !interpreter_is_here() {
        return;
    }
    let dataset = Dataset::make();
    all_is_the_same(&dataset);
    a_sample_is_enough_to_look_at(&dataset);
    changed_by_one_character(&dataset);
    other_tools(&dataset);
    forged(&dataset);
    made_elsewhere(&dataset);
    other_files(&dataset);
    special_files(&dataset);
    leaking_split(&dataset);
}

fn all_is_the_same(dataset: &Dataset) {
    let path = dataset.copy("same");
    let (code, report, log) = dataset.verify(&path, &[]);
    assert_eq!(code, Some(0), "{report:#} {log}");
    assert_eq!(
        (&report["rows"], &report["identical"]),
        (&6.into(), &6.into()),
        "{report:#}"
    );
    let card = fs::read_to_string(path.join("README.md")).unwrap();
    let stamp =
        "**100 % of rows re-executed identically, 0 % differ for a stated reason** (6 of 6 rows";
    assert!(card.contains(stamp), "{card}");
    let kept: Value = serde_json::from_slice(&fs::read(path.join("proof.json")).unwrap()).unwrap();
    assert_eq!(kept, report);
    // The second time nothing is executed, and the report and the card are identical.
    let (code, again, _) = dataset.verify(&path, &[]);
    assert_eq!((code, again), (Some(0), report));
    assert_eq!(fs::read_to_string(path.join("README.md")).unwrap(), card);
}

fn a_sample_is_enough_to_look_at(dataset: &Dataset) {
    let path = dataset.copy("sample");
    let (code, report, log) = dataset.verify(&path, &["--sample", "20%", "--no-stamp"]);
    assert_eq!(code, Some(0), "{report:#} {log}");
    assert_eq!(
        (&report["rows"], &report["examined"]),
        (&6.into(), &2.into())
    );
    let card = fs::read_to_string(path.join("README.md")).unwrap();
    assert!(card.contains("Not verified yet"));
}

fn changed_by_one_character(dataset: &Dataset) {
    for column in ["query", "template", "grading", "checker"] {
        let path = dataset.copy(&format!("scratched-{column}"));
        scratch(&path, column);
        let (code, report, log) = dataset.verify(&path, &["--sample", "1%"]);
        if column == "grading" {
            // The value is no longer valid JSON.
            assert_eq!(code, Some(ExitCode::BadInput as i32), "{log}");
            assert!(log.contains("column grading, row 1"), "{log}");
            continue;
        }
        assert_eq!(
            code,
            Some(ExitCode::Incomplete as i32),
            "{column}: {report:#} {log}"
        );
        assert_eq!(report["reasons"]["changed"], 1, "{column}: {report:#}");
        let card = fs::read_to_string(path.join("README.md")).unwrap();
        assert!(
            card.contains("**not the rows that this card describes**"),
            "{card}"
        );
    }
}

/// Tool definitions and choices that the rows were not made with.
fn other_tools(dataset: &Dataset) {
    let path = dataset.copy("scratched-tool-choices");
    scratch(&path, "tool_choices");
    let (_, report, _) = dataset.verify(&path, &["--sample", "1%"]);
    assert_eq!(report["reasons"]["changed"], 1, "{report:#}");
    // With hashes that match.
    let path = dataset.copy("forged-tools");
    forge(&path, |row| row.tools = Some("[]".into()));
    let (_, report, _) = dataset.verify(&path, &[]);
    assert_eq!(only_reason(&report), "prompts", "{report:#}");
}

type Forgery = fn(&mut Row);

fn forged(dataset: &Dataset) {
    let forgeries: [(&str, Forgery); 5] = [
        ("observations", |row| {
            let seen = row.messages.iter_mut().filter(|m| m.role == Role::User);
            seen.last().unwrap().content.push_str("\n42");
        }),
        ("pictures", |row| {
            row.observed[0] = pybench_types::id::Digest::of_bytes(b"another picture")
        }),
        ("outputs", |row| {
            for output in &mut row.outputs {
                output.blake3 = pybench_types::id::Digest::of_bytes(b"other");
                output.content = output.blake3.clone();
            }
        }),
        ("checks", |row| row.checks[0].outcome = "fail"),
        ("replies", |row| {
            row.cells[0] = pybench_types::id::Digest::of_bytes(b"other")
        }),
    ];
    for (reason, forgery) in forgeries {
        let path = dataset.copy(&format!("forged-{reason}"));
        forge(&path, forgery);
        let (code, report, log) = dataset.verify(&path, &[]);
        // The hashes of the rows match; the digest of the dataset, which the card states, does not.
        assert_eq!(
            code,
            Some(ExitCode::Incomplete as i32),
            "{reason}: {report:#} {log}"
        );
        assert!(log.contains("the card states another digest"), "{log}");
        assert_eq!(report["reasons"].get("changed"), None, "{report:#}");
        assert_eq!(only_reason(&report), reason, "{report:#}");
    }
    // A changed thought does not affect the execution; only the digest of the dataset shows it.
    let path = dataset.copy("forged-thought");
    forge(&path, |row| {
        row.messages.last_mut().unwrap().content.insert(0, ' ')
    });
    let (code, _, log) = dataset.verify(&path, &[]);
    assert_eq!(code, Some(ExitCode::Incomplete as i32));
    assert!(log.contains("the card states another digest"), "{log}");
    // Without checks there is nothing to compare; only the digest of the dataset shows the change.
    let path = dataset.copy("forged-unchecked");
    forge(&path, |row| row.checks.clear());
    let (code, report, log) = dataset.verify(&path, &[]);
    assert_eq!(code, Some(ExitCode::Incomplete as i32));
    assert_eq!(report["identical"], 6, "{report:#}");
    assert!(log.contains("the card states another digest"), "{log}");
    // A row that states removed secrets could show anything: it is never identical.
    let path = dataset.copy("forged-scrubbed");
    forge(&path, |row| {
        row.scrubbed = 1;
        let seen = row.messages.iter_mut().filter(|m| m.role == Role::User);
        seen.last().unwrap().content.push_str("\n[KEY]");
    });
    let (_, report, _) = dataset.verify(&path, &[]);
    assert_eq!(only_reason(&report), "scrubbed", "{report:#}");
    assert_eq!(
        (&report["identical"], &report["unverifiable"]),
        (&0.into(), &6.into()),
        "{report:#}"
    );
    // Limits that no machine has.
    let path = dataset.copy("forged-limits");
    forge(&path, |row| {
        row.interpreter.limits.memory_mib = 4_000_000;
        row.interpreter.limits.output_mib = 1_000_000;
    });
    let (code, report, log) = dataset.verify(&path, &[]);
    assert_eq!(code, Some(ExitCode::Incomplete as i32), "{log}");
    assert_eq!(report["identical"], 6, "{report:#}");
    // A task that does not match its id.
    let path = dataset.copy("forged-task");
    forge(&path, |row| row.grading.reference.push('\n'));
    let (_, report, _) = dataset.verify(&path, &[]);
    assert_eq!(only_reason(&report), "changed");
}

/// Rows are re-executed even if the Python version differs, and differences get the reason `environment`.
fn made_elsewhere(dataset: &Dataset) {
    let path = dataset.copy("elsewhere");
    forge(&path, |row| row.environment = "python-2.7+lock-0".into());
    let (_, report, log) = dataset.verify(&path, &[]);
    assert_eq!(report["identical"], 6, "{report:#}");
    assert_eq!(report["elsewhere"], 6, "{report:#}");
    let told = "6 of the identical rows were made with another version of Python";
    let card = fs::read_to_string(path.join("README.md")).unwrap();
    assert!(card.contains(told), "{card} {log}");
    let path = dataset.copy("elsewhere-otherwise");
    forge(&path, |row| {
        row.environment = "python-2.7+lock-0".into();
        row.checks[0].outcome = "fail";
    });
    let (_, report, _) = dataset.verify(&path, &[]);
    assert_eq!(only_reason(&report), "environment", "{report:#}");
    let (_, differing) = report["differing"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    let evidence = differing["evidence"].to_string();
    assert!(evidence.contains("made in python-2.7"), "{evidence}");
    assert!(evidence.contains("fail, now "), "{evidence}");
}

/// A shard, a file or a card that is a device or a pipe is refused and does not block.
fn special_files(dataset: &Dataset) {
    let zero = |path: &Path| std::os::unix::fs::symlink("/dev/zero", path).unwrap();
    let path = dataset.copy("zero-card");
    fs::remove_file(path.join("README.md")).unwrap();
    zero(&path.join("README.md"));
    fs::create_dir_all(path.join("files/ab")).unwrap();
    zero(&path.join("files/ab/zero"));
    let (code, report, log) = dataset.verify(&path, &[]);
    assert_eq!(code, Some(ExitCode::Incomplete as i32), "{log}");
    assert_eq!(report["changed_files"], serde_json::json!(["zero"]));
    let path = dataset.copy("zero-shard");
    zero(&path.join("data/train-99999.parquet"));
    let (code, _, log) = dataset.verify(&path, &[]);
    assert_eq!(code, Some(ExitCode::BadInput as i32), "{log}");
    assert!(log.contains("not a regular file"), "{log}");
}

/// A row of the training split, in the test split too.
fn leaking_split(dataset: &Dataset) {
    let path = dataset.copy("leaking");
    fs::remove_file(path.join("README.md")).unwrap();
    let rows = read::dataset(&path).unwrap().map(|row| row.unwrap().1);
    let row = rows.into_iter().find(|row| !row.files.is_empty()).unwrap();
    shards::write(
        &path.join("data"),
        "test",
        std::slice::from_ref(&row),
        &ShardSettings::default(),
    )
    .unwrap();
    let (code, report, log) = dataset.verify(&path, &["--sample", "1%"]);
    assert_eq!(code, Some(ExitCode::Incomplete as i32), "{report:#} {log}");
    let leaks = &report["leaks"];
    let named = [&row.files[0].blake3.to_string(), &row.files[0].origin];
    for name in named {
        assert!(leaks["files"].to_string().contains(name), "{leaks:#}");
        assert!(log.contains("a split leaks into another"), "{log}");
    }
    assert_eq!(leaks["pictures"].as_array().unwrap().len(), 1, "{leaks:#}");
    let near = leaks["near_duplicates"].as_array().unwrap();
    assert_eq!(near.len(), 1, "{leaks:#}");
}

fn other_files(dataset: &Dataset) {
    let is_used = |row: &Row| !row.files.is_empty();
    // Included files with other contents.
    let path = dataset.copy("other-file");
    let rows: Vec<Row> = read::dataset(&path)
        .unwrap()
        .map(|row| row.unwrap().1)
        .collect();
    let used = rows.iter().filter(|row| is_used(row)).count();
    assert!(used > 0 && rows.iter().all(|row| row_hashes::problems(row).is_empty()));
    for part in fs::read_dir(path.join("files")).unwrap() {
        for file in fs::read_dir(part.unwrap().path()).unwrap() {
            let file = file.unwrap().path();
            let mut bytes = fs::read(&file).unwrap();
            bytes[40] ^= 1;
            fs::remove_file(&file).unwrap();
            fs::write(&file, bytes).unwrap();
        }
    }
    let (code, report, log) = dataset.verify(&path, &[]);
    assert_eq!(code, Some(ExitCode::Incomplete as i32), "{report:#} {log}");
    assert_eq!(report["reasons"]["files"], used, "{report:#}");
    assert!(!report["changed_files"].as_array().unwrap().is_empty());
    // Without the files, and then with another folder that has them.
    let path = dataset.copy("no-file");
    let kept = dataset.root.path().join("kept");
    fs::rename(path.join("files"), &kept).unwrap();
    let (_, report, _) = dataset.verify(&path, &[]);
    assert_eq!(report["reasons"]["files"], used, "{report:#}");
    let (code, report, log) = dataset.verify(&path, &["--files", kept.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{report:#} {log}");
    assert_eq!(report["identical"], 6, "{report:#}");
}
