//! Sets as a whole: which lines are used, what is refused, and the tasks that are made.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pybench_run::artifacts::{FILES, TASKS};
use pybench_run::{Recipe, RunContext, RunError, RunFolder};
use pybench_types::check::CheckSpec;
use pybench_types::task::{Category, SourceFile, Task, TaskOrigin};

const TEACHER: &str =
    "teacher = { kind = 'openai', model = 'm', base_url = 'http://127.0.0.1:9/v1' }";
/// Keys of a set beside its name, path and check.
const PLACE: &str = "license = 'CC0-1.0'\nsource = 'https://example.org/set'\n";

/// A project with the file `set.jsonl`.
fn project(list: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("set.jsonl"), list).unwrap();
    root
}

fn context(root: &Path, tasks: usize, sets: &str) -> RunContext {
    let text = format!("name = 't'\n{TEACHER}\n[query]\ntasks = {tasks}\n{sets}");
    let recipe = Recipe::parse("t.toml", &text, &[]).unwrap();
    let folder = RunFolder::open(&root.join("run"), &recipe.to_toml().unwrap()).unwrap();
    FILES
        .write(&folder, std::iter::empty::<Result<SourceFile, RunError>>())
        .unwrap();
    RunContext {
        project_root: root.to_owned(),
        cache_dir: root.join("cache"),
        ..RunContext::new(Arc::new(folder), recipe)
    }
}

fn set(check: &str, more: &str) -> String {
    format!(
        "[[query.task_sets]]\nset = 'jsonl'\nname = 'mine'\npath = 'set.jsonl'\ncheck = '{check}'\n{PLACE}{more}"
    )
}

async fn tasks(root: &Path, count: usize, sets: &str) -> Result<Vec<Task>, RunError> {
    let context = context(root, count, sets);
    crate::run(&context).await?;
    TASKS.read_all(context.folder.root())
}

async fn refused(list: &str, sets: &str) -> String {
    let root = project(list);
    match tasks(root.path(), 2, sets).await.unwrap_err() {
        RunError::BadInput(text) => text,
        other => panic!("{other}"),
    }
}

fn numbers(count: usize) -> String {
    let line = |n: usize| {
        format!(
            "{{\"question\": \"What is {n} + 1?\", \"answer\": \"#### {}\"}}\n",
            n + 1
        )
    };
    (0..count).map(line).collect()
}

#[tokio::test]
async fn rows_become_tasks_with_check_license_and_source() {
    let list = "\u{feff}{\"q\": \"Who won?\", \"a\": [\"Ada\", 3], \"f\": \"t.csv\", \"n\": \"r1\", \"l\": \"MIT\"}\n\n";
    let root = project(list);
    fs::create_dir(root.path().join("tables")).unwrap();
    fs::write(root.path().join("tables/t.csv"), "name,n\nAda,3\nBo,1\n").unwrap();
    let more = "folder = 'tables'\n[query.task_sets.fields]\nquestion = 'q'\nanswer = 'a'\nfiles = 'f'\nid = 'n'\n\
                license = 'l'\n";
    let made = tasks(root.path(), 1, &set("denotation", more))
        .await
        .unwrap();
    let [task] = made.as_slice() else {
        panic!("{made:?}")
    };
    assert_eq!(task.category, Category::Chart);
    assert!(
        task.query
            .starts_with("Who won?\n\nThe file is ./data/t.csv. End your"),
        "{}",
        task.query
    );
    assert_eq!(task.reference, "expected = [\"Ada\",\"3\"]\n");
    assert!(matches!(&task.checks[..], [CheckSpec::Denotation { .. }]));
    let TaskOrigin::TaskSet {
        set,
        row,
        license,
        source,
    } = &task.origin
    else {
        panic!("{:?}", task.origin)
    };
    let found = [set, row, license, source].map(String::as_str);
    assert_eq!(found, ["mine", "r1", "MIT", "https://example.org/set"]);
    let file = &task.files[0];
    assert_eq!(file.origin, "https://example.org/set#t.csv");
    assert_eq!(file.license.as_deref(), Some("MIT"));
    assert_eq!(task.id, task.compute_id());
}

#[tokio::test]
async fn the_seed_draws_rows_and_shares_divide_the_tasks() {
    let root = project(&numbers(30));
    let halves = format!(
        "{}share = 0.5\n{}",
        set("numeric", ""),
        set("numeric", "share = 0.5\n").replace("'mine'", "'other'")
    );
    let made = tasks(root.path(), 7, &halves).await.unwrap();
    let of = |name: &str| {
        let own =
            |task: &&Task| matches!(&task.origin, TaskOrigin::TaskSet { set, .. } if set == name);
        made.iter().filter(own).count()
    };
    // Rows of both are the same file, so a row that both draw is one task.
    assert!((5..=7).contains(&made.len()), "{}", made.len());
    assert!(
        of("mine") == 4 && of("other") >= 1,
        "{} {}",
        of("mine"),
        of("other")
    );
    let again = project(&numbers(30));
    assert_eq!(tasks(again.path(), 7, &halves).await.unwrap(), made);
}

#[tokio::test]
async fn a_row_that_gives_no_task_is_followed_by_another() {
    let line =
        |n: usize| format!("{{\"question\": \"q{n}\", \"answer\": {n}, \"f\": \"{n}.csv\"}}\n");
    let root = project(&(0..6).map(line).collect::<String>());
    for n in 0..6 {
        // Half of the files are of no known type.
        let bytes: &[u8] = if n % 2 == 0 {
            b"a,b\n1,2\n"
        } else {
            b"\x00\x01\x02\x03"
        };
        fs::write(root.path().join(format!("{n}.csv")), bytes).unwrap();
    }
    let sets = set("numeric", "fields = { files = 'f' }\n");
    assert_eq!(tasks(root.path(), 3, &sets).await.unwrap().len(), 3);
}

#[tokio::test]
async fn bad_lines_are_named_with_the_way_out() {
    let list = numbers(2) + "{\"question\": \"q\"}\n{\"question\": \"q\", \"answer\": \"many\"}\n";
    let error = refused(&list, &set("numeric", "")).await;
    for part in [
        "query.task_sets, `mine`: 2 of 4 lines cannot be used, `max_bad_lines` allows 0:",
        "set.jsonl:3: the field `answer` is missing (the row has question)",
        "set.jsonl:4: `answer`: \"many\" is no number",
        "set `max_bad_lines` to 2 or more",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let root = project(&list);
    let allowed = set("numeric", "max_bad_lines = 2\n");
    assert_eq!(tasks(root.path(), 2, &allowed).await.unwrap().len(), 2);
    let missing = "{\"question\": \"q\", \"answer\": 1, \"f\": \"no.csv\"}";
    let error = refused(missing, &set("numeric", "fields = { files = 'f' }\n")).await;
    assert!(error.contains("set.jsonl:1: there is no file"), "{error}");
    assert!(error.contains("set `folder`"), "{error}");
    let twice = "{\"question\": \"q\", \"answer\": 1, \"n\": 7}\n".repeat(2);
    let error = refused(&twice, &set("numeric", "fields = { id = 'n' }\n")).await;
    assert!(
        error.contains("set.jsonl:2: the id `7` is that of line 1 too"),
        "{error}"
    );
    let error = refused("", &set("numeric", "")).await;
    assert!(error.contains("has no usable line"), "{error}");
    let error = refused("", &set("numeric", "").replace("set.jsonl", "no.jsonl")).await;
    assert!(error.contains("no.jsonl cannot be read"), "{error}");
}

/// First turns of conversations, in the forms of OpenAI and ShareGPT.
#[tokio::test]
async fn conversations_become_tasks_that_a_judge_decides() {
    let list = "{\"id\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"Sort a list by hand.\"}, {\"role\": \"assistant\", \"content\": \"Done.\"}]}\n\
                {\"id\": 2, \"messages\": [{\"from\": \"system\", \"value\": \"Be exact.\"}, {\"from\": \"human\", \"value\": \"Count the words.\"}]}\n";
    let root = project(list);
    let sets = format!(
        "{}[grade]\nfilters = ['finished', 'judge']\n[grade.judge]\n{TEACHER}\n",
        set(
            "judge",
            "fields = { conversation = 'messages', id = 'id' }\n"
        )
    );
    let mut made = tasks(root.path(), 2, &sets).await.unwrap();
    made.sort_by(|a, b| a.query.cmp(&b.query));
    let queries: Vec<&str> = made.iter().map(|task| &*task.query).collect();
    assert_eq!(queries, ["Count the words.", "Sort a list by hand."]);
    assert!(made.iter().all(|task| task.checks.is_empty()));
    let error = refused("{\"messages\": []}", &sets).await;
    let part = "set.jsonl:1: `messages`: it has no message of the user";
    assert!(error.contains(part), "{error}");
}

/// The recipe of a set on the page about published sets.
fn documented(name: &str) -> &'static str {
    let page = include_str!("../../../../docs/published-task-sets.md");
    let blocks = page.split("```toml\n").skip(1);
    let mut blocks = blocks.filter_map(|text| text.split("```").next());
    let named = format!("name = \"{name}\"\n");
    blocks.find(|block| block.contains(&named)).unwrap()
}

/// The recipes for lists that the user downloads, with rows of our own in the form of these lists.
#[tokio::test]
async fn documented_recipes_read_lists_as_they_are_published() {
    let math = r#"{"problem": "What is $1 + 1$?", "level": "Level 1", "type": "Algebra", "solution": "It is $\\boxed{2}$."}"#;
    let apps = r#"{"problem_id": 7, "question": "Read integers and print their sum.", "solutions": "", "input_output": "{\"inputs\": [\"1 2\\n\"], \"outputs\": [\"3\\n\"]}", "difficulty": "interview", "url": "", "starter_code": ""}
{"problem_id": 8, "question": "Print nothing.", "solutions": "", "input_output": "", "difficulty": "interview", "url": "", "starter_code": ""}"#;
    let feedback = r#"{"id": 1, "messages": [{"role": "user", "content": "Sort a list."}, {"role": "assistant", "content": "Done."}]}"#;
    for (name, path, rows, license) in [
        ("math-train", "math-train.jsonl", math, "MIT"),
        ("apps-train", "train.jsonl", apps, "MIT"),
        (
            "code-feedback",
            "Code-Feedback.jsonl",
            feedback,
            "Apache-2.0",
        ),
    ] {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(path), rows).unwrap();
        let made = tasks(root.path(), 1, documented(name)).await.unwrap();
        let [task] = made.as_slice() else {
            panic!("{name}: {made:?}")
        };
        let TaskOrigin::TaskSet {
            set,
            license: stated,
            ..
        } = &task.origin
        else {
            panic!("{:?}", task.origin)
        };
        assert_eq!((set.as_str(), stated.as_str()), (name, license));
    }
}

/// PRM800K's list for training holds problems of MATH's test split, which their ids tell.
#[tokio::test]
async fn test_problems_in_a_list_for_training_are_left_out() {
    let row = |id: &str, sum: usize| {
        format!(
            r#"{{"problem": "What is 1 + {sum}?", "solution": "$\\boxed{{{}}}$", "unique_id": "{id}"}}"#,
            sum + 1
        )
    };
    let rows = [
        row("test/algebra/1.json", 1),
        row("train/algebra/1.json", 2),
    ];
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("math-train.jsonl"), rows.join("\n")).unwrap();
    let sets = documented("math-train");
    let sets = sets.replace("\"solution\"", "\"solution\", id = \"unique_id\"");
    let made = tasks(root.path(), 2, &sets).await.unwrap();
    assert_eq!(made.len(), 1);
    assert!(made[0].query.starts_with("What is 1 + 2?"));
}

#[tokio::test]
async fn evaluation_data_are_refused() {
    let row = "{\"question\": \"q\", \"answer\": \"a\", \"n\": \"nu-12\"}";
    let error = refused(row, &set("denotation", "fields = { id = 'n' }\n")).await;
    assert!(
        error.contains("a test question of WikiTableQuestions"),
        "{error}"
    );
    let error = refused(row, &set("denotation", "").replace("'mine'", "'pybench'")).await;
    assert!(
        error.contains("a benchmark without a training split"),
        "{error}"
    );
}

/// A checkout of WikiTableQuestions' form in the evaluation's place of the cache: its test tables are refused in any set.
#[tokio::test]
async fn tables_of_the_test_split_are_never_used() {
    let list = "{\"question\": \"a\", \"answer\": \"x\", \"f\": \"seen.csv\"}\n\
                {\"question\": \"b\", \"answer\": \"x\", \"f\": \"raw.csv\"}\n\
                {\"question\": \"c\", \"answer\": \"x\", \"f\": \"standard.csv\"}\n";
    let root = project(list);
    let raw = "\"a\",\"b\"\n\"x \\\"y\\\"\",\"2\"\n";
    let standard = "\"a\",\"b\"\n\"x \"\"y\"\"\",\"2\"\n";
    let checkout = root
        .path()
        .join("cache/suites/wikitablequestions/7d455a5a707b96341ef72aff9428749d443d8aa9");
    fs::create_dir_all(checkout.join("tagged/data")).unwrap();
    fs::create_dir_all(checkout.join("csv/9-csv")).unwrap();
    let questions = "id\tcontext\nnu-0\tcsv/9-csv/1.csv\n";
    fs::write(
        checkout.join("tagged/data/pristine-unseen-tables.tagged"),
        questions,
    )
    .unwrap();
    fs::write(checkout.join("csv/9-csv/1.csv"), raw).unwrap();
    fs::write(root.path().join("seen.csv"), "a,b\n1,2\n").unwrap();
    fs::write(root.path().join("raw.csv"), raw).unwrap();
    fs::write(root.path().join("standard.csv"), standard).unwrap();
    let sets = set("text", "fields = { files = 'f' }\n");
    let made = tasks(root.path(), 3, &sets).await.unwrap();
    assert_eq!(made.len(), 1);
    assert!(made[0].query.starts_with("a\n"), "{}", made[0].query);
}

/// The built-in set, from a checkout of the same form in the cache with questions of our own.
#[tokio::test]
async fn a_checkout_of_another_commit_is_refused() {
    let root = project("");
    let checkout = root
        .path()
        .join("cache/task-sets/wikitablequestions/7d455a5a707b96341ef72aff9428749d443d8aa9");
    fs::create_dir_all(checkout.join(".git")).unwrap();
    let sets = "[[query.task_sets]]\nset = 'wikitablequestions-train'\n";
    let error = tasks(root.path(), 1, sets).await.unwrap_err();
    assert!(
        matches!(error, RunError::Environment(_) | RunError::BadInput(_)),
        "{error}"
    );
}

#[tokio::test]
async fn a_list_elsewhere_is_fetched_or_refused_with_the_expected_form() {
    let at = |path: &str| set("numeric", "").replace("'set.jsonl'", &format!("'{path}'"));
    let error = refused("", &at("hf://datasets/o/n@main/a.jsonl")).await;
    assert!(
        error.contains("expected hf://[datasets/]OWNER/NAME@REVISION/PATH#sha256=DIGEST"),
        "{error}"
    );
    let error = refused("", &at("s3://bucket")).await;
    assert!(error.contains("expected s3://BUCKET/PATH"), "{error}");
    // What the cache has under its digest is not fetched.
    let root = project("");
    let digest = "0".repeat(64);
    let cached = root.path().join("cache/hub").join(&digest).join("a.jsonl");
    fs::create_dir_all(cached.parent().unwrap()).unwrap();
    fs::write(&cached, numbers(2)).unwrap();
    let sets = at(&format!("hf://datasets/o/n@main/a.jsonl#sha256={digest}"));
    assert_eq!(tasks(root.path(), 2, &sets).await.unwrap().len(), 2);
}
