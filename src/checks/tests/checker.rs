//! Tests the checker in real sessions with real files, and runs the Python tests of
//! `src/checks/tests/python`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pybench_checks::{Candidate, CheckError, Checker, Claim};
use pybench_interpreter::{Interpreter, Limits, Session, SessionSpec};
use pybench_run::ContentStore;
use pybench_testing::ROOT;
use pybench_testing::sessions::interpreter;
use pybench_types::check::CheckSpec;
use pybench_types::id::Digest;
use pybench_types::observation::Output;
use pybench_types::task::{Category, FileKind, Language, Task, TaskFile, TaskOrigin};
use pybench_types::trajectory::{Finding, Outcome};
use serde_json::json;
use tempfile::TempDir;

/// A checker and a content store for the files of test tasks.
struct CheckerEnv {
    interpreter: Arc<dyn Interpreter>,
    checker: Checker,
    store: ContentStore,
    _folder: TempDir,
}

impl CheckerEnv {
    fn new() -> Option<Self> {
        let interpreter = interpreter()?;
        let folder = TempDir::new().unwrap();
        Some(Self {
            checker: Checker::new(interpreter.clone()).unwrap(),
            interpreter,
            store: ContentStore::open(folder.path()).unwrap(),
            _folder: folder,
        })
    }

    fn file(&self, name: &str, text: &str) -> TaskFile {
        TaskFile {
            name: name.into(),
            id: self.store.put(text.as_bytes()).unwrap(),
            kind: FileKind::Csv,
            origin: "test".into(),
            license: None,
            derived_from: None,
            format: None,
        }
    }

    fn task(&self, files: Vec<TaskFile>, reference: &str, check: serde_json::Value) -> Task {
        let check: CheckSpec = serde_json::from_value(check).unwrap();
        let path = serde_json::to_value(&check).unwrap()["path"]
            .as_str()
            .map(str::to_owned);
        Task {
            id: Digest::of_bytes(reference.as_bytes()),
            category: Category::Text,
            subcategory: "test".into(),
            keyword: "test".into(),
            language: Language::En,
            query: "Please do it.".into(),
            files,
            held_out: Vec::new(),
            outputs: path.into_iter().collect(),
            reference: reference.into(),
            checks: vec![check],
            origin: TaskOrigin::Library {
                template: "test".into(),
                slots: Default::default(),
                phrasing: 0,
            },
        }
    }

    fn candidate(&self, path: &str, bytes: &[u8]) -> Candidate {
        let id = self.store.put(bytes).unwrap();
        Candidate {
            outputs: vec![(path.into(), self.store.path(&id))],
            ..Candidate::default()
        }
    }
}

fn outcome(findings: &[Finding]) -> Outcome {
    let worst = findings
        .iter()
        .map(|f| f.outcome)
        .find(|o| *o != Outcome::Pass);
    worst.unwrap_or(Outcome::Pass)
}

/// Asserts that the original passes, every other row fails, and there are more than `least` rows.
fn all_killed(rows: &[(String, Vec<Finding>)], least: usize) {
    for (name, findings) in rows {
        let passed = outcome(findings) == Outcome::Pass;
        assert_eq!(passed, name == "original", "{name}: {findings:#?}");
    }
    assert!(rows.len() > least, "only {} mutants", rows.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correct_table_passes_and_a_wrong_one_is_explained() {
    let Some(env) = CheckerEnv::new() else { return };
    let reference = "expected = [{'a': r['a'] * 2} for r in ref.rows('data/in.csv')]";
    let check = json!({"check": "table", "path": "output/out.csv", "expected": "expected"});
    let task = env.task(vec![env.file("in.csv", "a\n1\n2\n3\n")], reference, check);
    let right = env.candidate("output/out.csv", b"a\n2\n4\n6.0\n");
    let findings = env.checker.check(&task, &env.store, &right).await.unwrap();
    assert_eq!(outcome(&findings), Outcome::Pass, "{findings:#?}");
    assert_eq!(findings.len(), 2);
    let wrong = env.candidate("output/out.csv", b"a\n2\n4\n7\n");
    let findings = env.checker.check(&task, &env.store, &wrong).await.unwrap();
    assert_eq!(findings[1].outcome, Outcome::Fail);
    assert!(
        findings[1].detail.contains("expected 6, found 7"),
        "{findings:#?}"
    );
    let values = findings[1].mismatch.as_ref().unwrap();
    let values = [&values.place, &values.expected, &values.found];
    let place = "output/out.csv: row 3, column a";
    assert_eq!(values, [place, "6", "7"], "{findings:#?}");
    let rows = env.checker.audit(&task, &env.store, &right).await.unwrap();
    all_killed(&rows, 8);
    // A damaged input is neither the candidate's failure nor a wrong task.
    let input = env.store.path(&task.files[0].id);
    std::fs::write(&input, "a\n1\n2\n4\n").unwrap();
    let error = env
        .checker
        .check(&task, &env.store, &right)
        .await
        .unwrap_err();
    assert!(matches!(error, CheckError::File(_)), "{error}");
    let name = task.files[0].id.as_str();
    assert!(
        error.to_string().contains(name) && error.to_string().contains("is damaged"),
        "{error}"
    );
}

/// "Köln" is also valid GB18030, and only a profile can tell that the file is in Latin-1.
#[tokio::test(flavor = "multi_thread")]
async fn a_reference_reads_a_file_as_its_profile_says() {
    let Some(env) = CheckerEnv::new() else { return };
    let text =
        "Straße;Stadt;Nr\nAm Bühl;Köln;007\nGroße Bleiche;Mainz;7\nÜber den Höfen;Düsseldorf;x\n";
    let latin: Vec<u8> = text.chars().map(|c| c as u8).collect();
    let profile = pybench_profile::profile(FileKind::Csv, &latin);
    let mut file = env.file("in.csv", "");
    file.id = env.store.put(&latin).unwrap();
    file.format = profile.format();
    let reference =
        "expected = [{'Stadt': r['Stadt'], 'Nr': r['Nr']} for r in ref.rows('./data/in.csv')]";
    let check = json!({"check": "json", "path": "output/out.json", "expected": "expected"});
    let mut task = env.task(vec![file], reference, check);
    let right = r#"[{"Stadt":"Köln","Nr":"007"},{"Stadt":"Mainz","Nr":"7"},{"Stadt":"Düsseldorf","Nr":"x"}]"#;
    let right = env.candidate("output/out.json", right.as_bytes());
    let findings = env.checker.check(&task, &env.store, &right).await.unwrap();
    assert_eq!(outcome(&findings), Outcome::Pass, "{findings:#?}");
    // A reference that reads otherwise than the profile is no reference.
    let format = task.files[0].format.as_mut().unwrap();
    format.columns.as_mut().unwrap()[2].nulls = 1;
    let error = env
        .checker
        .check(&task, &env.store, &right)
        .await
        .unwrap_err();
    let CheckError::Task(why) = error else {
        panic!("{error}");
    };
    assert!(
        why.contains("column Nr of ./data/in.csv is text with 0 missing values"),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_reference_is_an_error_and_not_a_verdict() {
    let Some(env) = CheckerEnv::new() else { return };
    let candidate = env.candidate("output/out.txt", b"x\n");
    let check = json!({"check": "text", "path": "output/out.txt", "expected": "expected"});
    for (reference, word) in [
        ("\n1 / 0", "line 2"),
        ("other = 'x'", "does not define"),
        ("expected = 3", "no string"),
    ] {
        let task = env.task(Vec::new(), reference, check.clone());
        let found = env.checker.check(&task, &env.store, &candidate).await;
        let Err(CheckError::Task(why)) = found else {
            panic!("{reference}: {found:?}");
        };
        assert!(why.contains(word), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_runs_in_its_own_session_and_its_mutants_fail() {
    let Some(env) = CheckerEnv::new() else { return };
    let reference =
        "expected = [{'stdin': f'{n}\\n', 'stdout': f'twice {2 * n}\\nend\\n'} for n in (3, 14)]";
    let check = json!({"check": "program", "path": "output/p.py", "expected": "expected"});
    let task = env.task(Vec::new(), reference, check);
    let right = env.candidate(
        "output/p.py",
        b"n = int(input())\nprint('twice', n + n)\nprint('end')\n",
    );
    let rows = env.checker.audit(&task, &env.store, &right).await.unwrap();
    all_killed(&rows, 8);
    // The program can read neither the checker nor the expected results.
    let spy = b"import os\nprint([f for _, _, fs in os.walk('..') for f in fs if f in ('task.json', 'checker.py')])\n";
    let findings = env
        .checker
        .check(&task, &env.store, &env.candidate("output/p.py", spy))
        .await
        .unwrap();
    assert!(findings[1].detail.contains("found []"), "{findings:#?}");
}

/// Looks for the checker's files wherever there is anything but the system and the packages, which take long to list.
const SPY: &[u8] = b"import os

LARGE = ('/proc', '/sys', '/usr', '/opt/env')

def half(x):
    found = []
    for folder, below, files in os.walk('/'):
        below[:] = [name for name in below if os.path.join(folder, name) not in LARGE]
        found += [name for name in files if name in ('task.json', 'function_tests.py')]
    return found
";

#[tokio::test(flavor = "multi_thread")]
async fn functions_are_called_in_their_own_session_and_mutants_fail() {
    let Some(env) = CheckerEnv::new() else { return };
    let reference = "expected = ref.assertions('import math', ['assert math.isclose(half(7), 3.5)', 'assert [half(2)] == [1]'])";
    let path = "output/solution.py";
    let check = json!({"check": "calls", "path": path, "expected": "expected"});
    let task = env.task(Vec::new(), reference, check.clone());
    let right = env.candidate(path, b"def half(x):\n    return x / 2\n");
    let rows = env.checker.audit(&task, &env.store, &right).await.unwrap();
    all_killed(&rows, 12);
    // The functions can read neither the checker nor what is expected.
    let spy = env.candidate(path, SPY);
    let findings = env.checker.check(&task, &env.store, &spy).await.unwrap();
    assert_eq!(findings[1].outcome, Outcome::Fail);
    assert!(
        findings[1]
            .detail
            .contains("the result [] cannot be compared"),
        "{findings:#?}"
    );
    // What cannot be tested is refused before anybody solves it.
    let unfit = env.task(
        Vec::new(),
        "expected = ref.assertions('', ['assert 1 == 1'])",
        check,
    );
    let error = env.checker.check_fit(&unfit, &env.store).await.unwrap_err();
    assert!(
        error.to_string().contains("uses nothing of the program"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_scored_on_held_out_rows() {
    let Some(env) = CheckerEnv::new() else { return };
    let rows = |from: usize, to: usize| -> String {
        let row = |i: usize| {
            format!(
                "{},{},{}\n",
                i % 7,
                (i * 5) % 11,
                if (i % 7) + (i * 5) % 11 > 8 {
                    "yes"
                } else {
                    "no"
                }
            )
        };
        (from..to)
            .map(row)
            .fold("x,y,label\n".into(), |text, row| text + &row)
    };
    let check = json!({"check": "model", "path": "output/m.pkl", "held_out": "t.csv", "target": "label", "metric": "accuracy", "least": "least"});
    let mut task = env.task(vec![env.file("t.csv", &rows(0, 200))], "least = 0.9", check);
    task.held_out = vec![env.file("t.csv", &rows(200, 280))];
    let train = "import pandas, pickle\nfrom sklearn.tree import DecisionTreeClassifier\nd = pandas.read_csv('data/t.csv')\n\
        m = DecisionTreeClassifier(random_state=0).fit(d[['x', 'y']], d['label'])\npickle.dump(m, open('output/m.pkl', 'wb'))";
    let right = agent(&env, &task, train).await;
    let rows = env.checker.audit(&task, &env.store, &right).await.unwrap();
    all_killed(&rows, 8);
    let spy = "import os\nclass Spy:\n    def __reduce__(self):\n        return (os._exit, (0,))\nimport pickle\npickle.dump(Spy(), open('output/m.pkl', 'wb'))";
    let spy = agent(&env, &task, spy).await;
    let findings = env.checker.check(&task, &env.store, &spy).await.unwrap();
    assert_eq!(outcome(&findings), Outcome::Fail, "{findings:#?}");
}

/// Runs one cell in an agent's session and returns its result.
async fn agent(env: &CheckerEnv, task: &Task, cell: &str) -> Candidate {
    let inputs = task
        .files
        .iter()
        .map(|f| (format!("data/{}", f.name), env.store.path(&f.id)));
    let spec = SessionSpec {
        inputs: inputs.collect(),
        ..SessionSpec::default()
    };
    let mut session = env.interpreter.start(spec).await.unwrap();
    let seen = session.execute(cell).await.unwrap();
    assert!(seen.error.is_none(), "{seen:?}");
    let collected = session.read_outputs().await.unwrap();
    session.close().await.unwrap();
    let outputs = collected.files.iter().map(|file| {
        let id = env.store.put(&file.bytes).unwrap();
        (file.path.clone(), env.store.path(&id))
    });
    let charts = seen.outputs.into_iter().filter_map(|output| match output {
        // An open figure is displayed too; only saved charts count.
        Output::Chart {
            path: Some(path),
            figure,
        } => Some(Claim {
            path: Some(path),
            figure,
        }),
        _ => None,
    });
    Candidate {
        outputs: outputs.collect(),
        claims: charts.collect(),
        ..Candidate::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_from_a_session_is_proven_and_forgeries_are_not() {
    let Some(env) = CheckerEnv::new() else { return };
    let reference = "expected = [{'name': None, 'x': ['a', 'b', 'c'], 'y': [3, 1, 2]}]";
    let check = json!({"check": "plot", "path": "output/c.png", "kind": "bar", "expected": "expected", "title": "Sales", "y_label": "euro"});
    let task = env.task(Vec::new(), reference, check);
    let draw = |values: &str| {
        format!(
            "import matplotlib.pyplot as plt\nplt.bar(['a', 'b', 'c'], {values})\nplt.title('Sales 2024')\nplt.ylabel('Euro')\nplt.savefig('output/c.png', bbox_inches='tight')"
        )
    };
    let right = agent(&env, &task, &draw("[3, 1, 2]")).await;
    assert_eq!(right.claims.len(), 1);
    let rows = env.checker.audit(&task, &env.store, &right).await.unwrap();
    all_killed(&rows, 8);
    let other = agent(&env, &task, &draw("[3, 1, 2.1]")).await;
    let findings = env.checker.check(&task, &env.store, &other).await.unwrap();
    assert_eq!(findings[1].outcome, Outcome::Fail, "{findings:#?}");
    let forged = Candidate {
        claims: right.claims.clone(),
        ..other
    };
    let findings = env.checker.check(&task, &env.store, &forged).await.unwrap();
    assert_eq!(findings[1].outcome, Outcome::Unproven, "{findings:#?}");
}

/// Runs a Python test suite inside a session, in a separate process. The suite installs its own chart
/// recorder, which must not run inside the recorder of the session.
async fn suite(code: &str) {
    let Some(interpreter) = interpreter() else {
        return;
    };
    let inputs = test_sources();
    let limits = Limits {
        cell_seconds: 3000,
        memory_mib: 6144,
        output_chars: 200_000,
        ..Limits::default()
    };
    let spec = SessionSpec {
        inputs,
        limits,
        ..SessionSpec::default()
    };
    let mut session = interpreter.start(spec).await.unwrap();
    let cell = format!(
        "import subprocess, sys\nassert subprocess.run([sys.executable, '-c', {}]).returncode == 0",
        json!(code)
    );
    let seen = session.execute(&cell).await.unwrap();
    session.close().await.unwrap();
    let text: String = seen
        .outputs
        .iter()
        .filter_map(|o| match o {
            Output::Stream { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    println!("{text}");
    assert!(seen.error.is_none() && seen.stopped.is_none(), "{seen:?}");
}

/// The Python files that the suites import: path in the session's workspace → host file.
fn test_sources() -> BTreeMap<String, PathBuf> {
    let root = Path::new(ROOT);
    let folders = [
        "src/checks/tests/python",
        "src/checks/python",
        "src/interpreter/python",
    ];
    let files = folders
        .iter()
        .flat_map(|folder| python_files(&root.join(folder)));
    let named = files.map(|file| {
        let name = file.strip_prefix(root).unwrap().to_str().unwrap();
        (name.to_owned(), file)
    });
    named.collect()
}

fn python_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(python_files(&path));
        } else if path.extension().is_some_and(|e| e == "py") {
            found.push(path);
        }
    }
    found
}

/// Runs some of the cases of `checks_test.py`; `names` is a Python expression.
async fn cases(names: &str) {
    let path =
        "import sys\nsys.path.insert(0, 'src/checks/tests/python')\nimport checks_test, right";
    suite(&format!("{path}\nassert checks_test.main({names}) == 0")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_check_passes_correct_results_and_fails_wrong_ones() {
    cases("[kind for kind in right.KINDS if kind != 'plot']").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plots_pass_and_wrong_ones_fail() {
    cases("['plot/4']").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; `just audit` runs it"]
async fn all_plots_pass_and_wrong_ones_fail() {
    cases("['plot']").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_files_and_random_damage_fail_the_candidate() {
    cases("['hostile', 'fuzz', 'bounds', 'hostile-json', 'round', 'radar', 'videos', 'no-rows', 'codes', 'values-match', 'points']")
        .await;
}

/// Measures every so many of the 570 charts; `holds` is a Python condition on the counts of honest ones and the
/// list of forgeries that pass.
async fn charts(every: u32, holds: &str) {
    let code = format!(
        "import sys\nsys.path.insert(0, 'src/checks/tests/python')\nimport charts_measure\n\
         honest, through = charts_measure.main('all', {every})\nassert {holds}, (honest, through)"
    );
    suite(&code).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_violates_one_requirement_fails() {
    cases("['violations']").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn formulas_are_compared_by_value_and_functions_by_what_they_return() {
    cases("['formulas', 'functions']").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn honest_charts_are_proven_and_forged_ones_are_not() {
    charts(58, "set(honest) == {'pass'} and not through").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes half an hour; `just audit` runs it"]
async fn of_all_charts_99_percent_are_proven_and_at_most_one_forgery_is() {
    charts(
        1,
        "honest['pass'] >= 0.99 * honest.total() and len(through) <= 1",
    )
    .await;
}

/// Number of generated tables per round of the next test.
const TABLES: usize = 150;

/// Profiles, references and pandas read generated tables alike. One round, or as many as a fuzz target may take.
#[tokio::test(flavor = "multi_thread")]
async fn fuzz_tables_are_read_as_pandas_reads_them() {
    let Some(interpreter) = interpreter() else {
        return;
    };
    let limits = Limits {
        output_files: TABLES,
        ..Limits::default()
    };
    let spec = SessionSpec {
        inputs: test_sources(),
        limits,
        ..SessionSpec::default()
    };
    let mut session = interpreter.start(spec).await.unwrap();
    let import = "import sys\nsys.path.insert(0, 'src/checks/tests/python')\nimport reading_test";
    run_cell(session.as_mut(), import).await;
    let limit = std::env::var("BOLERO_RANDOM_TEST_TIME_MS").ok();
    let limit = Duration::from_millis(limit.and_then(|limit| limit.parse().ok()).unwrap_or(0));
    let (start, mut seed) = (Instant::now(), 0);
    loop {
        run_cell(
            session.as_mut(),
            &format!("reading_test.write({seed}, {TABLES})"),
        )
        .await;
        let written = session.read_outputs().await.unwrap().files;
        assert_eq!(written.len(), TABLES);
        let formats = written.iter().filter_map(|file| {
            let kind = match file.path.ends_with(".tsv") {
                true => FileKind::Tsv,
                false => FileKind::Csv,
            };
            let format = pybench_profile::profile(kind, &file.bytes).format()?;
            Some((file.path.strip_prefix("output/")?, format))
        });
        let formats = json!(formats.collect::<BTreeMap<_, _>>());
        let compare = format!(
            "import json\nread, agreed = reading_test.compare({seed}, {TABLES}, json.loads({}))\n\
             assert min(read, agreed) > {TABLES} / 4, (read, agreed)",
            json!(formats.to_string())
        );
        run_cell(session.as_mut(), &compare).await;
        if start.elapsed() >= limit {
            break;
        }
        seed = rand::random::<u32>();
    }
    session.close().await.unwrap();
}

async fn run_cell(session: &mut dyn Session, cell: &str) {
    let seen = session.execute(cell).await.unwrap();
    assert!(seen.error.is_none() && seen.stopped.is_none(), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_checker_cannot_read_fails_and_costs_no_other_candidate() {
    let Some(env) = CheckerEnv::new() else { return };
    let check = json!({"check": "json", "path": "output/sum.json", "expected": "expected"});
    let task = env.task(Vec::new(), "expected = {'total': 3}", check);
    let right = || env.candidate("output/sum.json", br#"{"total": 3}"#);
    let deep = "[".repeat(100_000);
    let hostile: [&[u8]; 3] = [
        br#"{"total": "\ud800"}"#,
        br#"{"\udfff": 3}"#,
        deep.as_bytes(),
    ];
    let mut candidates = vec![right()];
    for bytes in hostile {
        let candidate = env.candidate("output/sum.json", bytes);
        let findings = env.checker.check(&task, &env.store, &candidate).await;
        assert_eq!(outcome(&findings.unwrap()), Outcome::Fail);
        candidates.extend([candidate, right()]);
    }
    let found = env.checker.check_many(&task, &env.store, &candidates).await;
    for (number, findings) in found.unwrap().iter().enumerate() {
        let expected = [Outcome::Pass, Outcome::Fail][number % 2];
        assert_eq!(outcome(findings), expected, "{number}: {findings:#?}");
    }
}
