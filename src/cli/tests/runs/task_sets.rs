//! From a list of questions with answers to Parquet: the real program, with an endpoint on this machine as teacher.

use crate::support::endpoint::{Answer, Endpoint};
use crate::support::fixture::{FREE, RunFixture, code, interpreter_is_here, openai};
use pybench_run::ExitCode;
use pybench_types::task::{Task, TaskOrigin};
use serde_json::Value;

/// Four sets in one run, each with its check.
const SETS: &str = r#"
[query]
tasks = 8

[[query.task_sets]]
set = "jsonl"
name = "boats"
path = "boats.jsonl"
share = 0.375
check = "denotation"
license = "CC-BY-4.0"
source = "https://example.org/boats"
fields = { files = "table", id = "id" }

[[query.task_sets]]
set = "jsonl"
name = "sums"
path = "sums.jsonl"
share = 0.25
check = "numeric"
license = "MIT"
source = "https://example.org/sums"

[[query.task_sets]]
set = "jsonl"
name = "words"
path = "words.jsonl"
share = 0.125
check = "text"
source = "our own"
fields = { question = "/messages/0", license = "license" }

[[query.task_sets]]
set = "jsonl"
name = "programs"
path = "programs.jsonl"
share = 0.25
check = "tests"
license = "MIT"
source = "https://example.org/programs"

[shard]
test_fraction = 0.25
held_out_templates = 3
"#;

fn recipe(teacher: &str, sets: &str) -> String {
    format!("name = 't'\nseed = 7\nteacher = {teacher}\n{sets}")
}

/// A project with a recipe of these sets and their files.
fn project(teacher: &str, sets: &str, files: &[(&str, &str)]) -> RunFixture {
    let valid = "{ kind = 'openai', model = 'm', base_url = 'http://127.0.0.1:9/v1' }";
    let fixture = RunFixture::bare(&recipe(valid, sets));
    std::fs::write(fixture.path("t.toml"), recipe(teacher, sets)).unwrap();
    for (name, text) in files {
        std::fs::write(fixture.path(name), text).unwrap();
    }
    fixture
}

fn fixture(teacher: &str) -> RunFixture {
    let files = [
        (
            "fleet.csv",
            "boat,knots,built\nGull,7,1995\nTern,9,2001\nAuk,7,1988\n",
        ),
        (
            "boats.jsonl",
            "{\"id\": 1, \"question\": \"Which boats do 7 knots?\", \"answer\": [\"Gull\", \"Auk\"], \"table\": \"fleet.csv\"}\n\
             {\"id\": 2, \"question\": \"When was Tern built?\", \"answer\": 2001, \"table\": [\"fleet.csv\"]}\n\
             {\"id\": 3, \"question\": \"Which boat is the oldest?\", \"answer\": \"Auk\", \"table\": \"fleet.csv\"}\n",
        ),
        (
            "sums.jsonl",
            "{\"question\": \"A box holds 12 eggs. How many do 4 boxes hold?\", \"answer\": \"4 * 12 = 48\\n#### 48\"}\n\
             {\"question\": \"What is 1000 + 234?\", \"answer\": \"#### 1,234\"}\n",
        ),
        (
            "words.jsonl",
            "{\"messages\": [\"Which word is the longest: ant, beetle, bee?\"], \"answer\": \"beetle\", \"license\": \"CC0 1.0\"}\n",
        ),
        (
            "programs.jsonl",
            "{\"question\": \"Read integers and print their sum.\", \"answer\": {\"inputs\": [\"1 2\\n\", \"5\\n\"], \"outputs\": [\"3\\n\", \"5\\n\"]}}\n\
             {\"question\": \"Read a line and print it in reverse.\", \"answer\": [{\"stdin\": \"abc\", \"stdout\": \"cba\"}]}\n",
        ),
    ];
    project(teacher, SETS, &files)
}

/// Solves all tasks but two: one number is wrong, and one program passes only the first test.
fn solve(request: &Value) -> String {
    let messages = request["messages"].as_array().unwrap();
    let spoken = messages.iter().filter(|m| m["role"] == "assistant").count();
    let asked = |words: &str| {
        let mut texts = messages.iter().filter_map(|m| m["content"].as_str());
        texts.any(|text| text.contains(words))
    };
    let program =
        |source: &str| format!("open('output/solution.py', 'w').write({source:?})\nprint('saved')");
    let table =
        |code: &str| format!("import pandas as pd\nt = pd.read_csv('data/fleet.csv')\n{code}");
    let (code, answer) = if asked("7 knots") {
        (
            table("print(list(t.boat[t.knots == 7]))"),
            "Answer: auk | Gull",
        )
    } else if asked("Tern built") {
        (table("print(t.built[t.boat == 'Tern'])"), "Answer: 2001")
    } else if asked("the oldest") {
        (table("print(t.boat[t.built.idxmin()])"), "**Answer:** Auk")
    } else if asked("12 eggs") {
        ("print(4 * 12)".to_owned(), "Answer: 48")
    } else if asked("1000 + 234") {
        ("print(1000 + 235)".to_owned(), "Answer: 1235")
    } else if asked("the longest") {
        (
            "print(max(['ant', 'beetle', 'bee'], key=len))".to_owned(),
            "Answer: Beetle",
        )
    } else if asked("print their sum") {
        (
            program("print(sum(map(int, input().split())))"),
            "The program is saved.",
        )
    } else {
        assert!(asked("in reverse"), "{request}");
        (program("print(input())"), "The program is saved.")
    };
    match spoken {
        0 => format!(
            "Analyse: a question.\nThis Step Todo: all of it.\n<|execute_start|>\n```python\n{code}\n```\n<|execute_end|>"
        ),
        _ => format!("Finished: this is done.\n{answer}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_become_a_dataset_that_states_licenses_and_sources() {
    if !interpreter_is_here() {
        return;
    }
    let server =
        Endpoint::start(|request| std::future::ready(Answer::Content(solve(&request)))).await;
    let fixture = fixture(&openai(&server.base_url(), FREE));
    let output = fixture.program("synthesize", &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(0), "{text}\n{error}");
    assert!(
        text.contains("0 files → 8 tasks → 8 trajectories → 6 accepted"),
        "{text}"
    );

    let mut rows = Vec::new();
    let dataset = fixture.folder().join("dataset");
    for shard in pybench_datasets::read::shards(&dataset).unwrap() {
        let found = pybench_datasets::read::rows(&shard.path).unwrap();
        rows.extend(found.map(|row| row.unwrap()));
    }
    let mut found: Vec<_> = rows
        .iter()
        .map(|row| {
            let license = row.task_license.as_deref().unwrap();
            (
                row.template.as_str(),
                license,
                row.task_source.as_deref().unwrap(),
            )
        })
        .collect();
    found.sort_unstable();
    let boats = ("CC-BY-4.0", "https://example.org/boats");
    assert_eq!(
        found,
        [
            ("task_set/boats/1", boats.0, boats.1),
            ("task_set/boats/2", boats.0, boats.1),
            ("task_set/boats/3", boats.0, boats.1),
            (
                "task_set/programs/line-1",
                "MIT",
                "https://example.org/programs"
            ),
            ("task_set/sums/line-1", "MIT", "https://example.org/sums"),
            ("task_set/words/line-1", "CC0-1.0", "our own"),
        ]
    );
    let with_file = rows
        .iter()
        .find(|row| row.template == "task_set/boats/2")
        .unwrap();
    assert_eq!(with_file.files[0].license.as_deref(), Some("CC-BY-4.0"));
    assert_eq!(
        with_file.files[0].origin,
        "https://example.org/boats#fleet.csv"
    );
    let card = std::fs::read_to_string(dataset.join("README.md")).unwrap();
    for part in [
        "| license of the task set | rows |",
        "| CC-BY-4.0 | 3 |",
        "| https://example.org/boats | 3 |",
        "| our own | 1 |",
        "\n- cc-by-4.0\n",
        "The answers of task sets are those of their authors",
    ] {
        assert!(card.contains(part), "{part} is not in {card}");
    }
    assert!(!card.contains("Tasks are written from templates"), "{card}");

    // The rows are executed again, with the same verdicts.
    let mut verify = crate::support::pybench("verify");
    verify.arg(&dataset).args(["--offline", "--state"]);
    verify
        .arg(fixture.path("state"))
        .current_dir(fixture.path(""));
    let output = verify.env_remove("PYBENCH_ROOT").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(0), "{text}\n{error}");
}

/// Without a key, tasks are written, and the expert is refused with what is needed instead.
#[test]
fn the_expert_is_refused_and_tasks_are_written_without_a_key() {
    let fixture = fixture("{ kind = 'expert' }");
    let output = fixture.program("synthesize", &[]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(ExitCode::BadInput as i32), "{error}");
    for part in [
        "t.toml:3:",
        "the expert has no solution for tasks of `query.task_sets`",
        "use a model behind an endpoint (`kind = \"openai\"`",
    ] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
    let teacher = "{ kind = 'openai', model = 'm', base_url = 'https://example.org/v1', key_env = 'NO_SUCH_KEY' }";
    std::fs::write(fixture.path("t.toml"), recipe(teacher, SETS)).unwrap();
    for command in ["crawl", "query"] {
        let output = fixture.program(command, &[]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), Some(0), "{command}: {error}");
    }
    assert_eq!(fixture.lines::<Task>("tasks.jsonl").len(), 8);
    // A damaged list ends with its lines, before anything is asked.
    std::fs::write(
        fixture.path("sums.jsonl"),
        "{\"question\": \"q\", \"answer\": \"none\"}\n",
    )
    .unwrap();
    let output = fixture.program("query", &[]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(ExitCode::BadInput as i32), "{error}");
    assert!(
        error.contains("sums.jsonl:1: `answer`: \"none\" is no number"),
        "{error}"
    );
}

/// GSM8K and MBPP in the user's checkouts, with rows of our own: tasks of other splits and of MBPP+ are not used.
#[test]
fn published_training_splits_are_kept_apart_from_what_is_measured() {
    if !interpreter_is_here() {
        return;
    }
    let sets = "[query]\ntasks = 4\n\n[[query.task_sets]]\nset = \"gsm8k-train\"\nshare = 0.5\n\n\
                [[query.task_sets]]\nset = \"mbpp-train\"\nshare = 0.5\n";
    let teacher = "{ kind = 'openai', model = 'm', base_url = 'http://127.0.0.1:9/v1' }";
    let fixture = project(teacher, sets, &[]);
    let functions = [
        (11, "half"),
        (601, "double"),
        (602, "square"),
        (609, "triple"),
    ];
    let functions = functions.map(|(id, name)| {
        format!(
            "{{\"text\": \"Write a function {name} of a number.\", \"code\": \"\", \"task_id\": {id}, \
             \"test_setup_code\": \"\", \"test_list\": [\"assert {name}(0) == 0\"], \"challenge_test_list\": []}}\n"
        )
    });
    let functions = functions.concat();
    let problems = "{\"question\": \"A box holds 12 eggs. How many do 4 boxes hold?\", \"answer\": \"4 * 12 = <<4*12=48>>48\\n#### 48\"}\n\
                    {\"question\": \"What is 1000 + 234?\", \"answer\": \"#### 1,234\"}\n";
    for (path, text) in [
        ("suites/gsm8k/grade_school_math/data/train.jsonl", problems),
        ("suites/mbpp/mbpp/mbpp.jsonl", functions.as_str()),
    ] {
        let path = fixture.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let run = |command: &str| {
        let mut program = fixture.program(command, &[]);
        let output = program
            .env("PYBENCH_SUITES", fixture.path("suites"))
            .output();
        let output = output.unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (code(&output), error)
    };
    for command in ["crawl", "query"] {
        let (status, error) = run(command);
        assert_eq!(status, Some(0), "{command}: {error}");
    }
    let tasks = fixture.lines::<Task>("tasks.jsonl");
    let mut found: Vec<_> = tasks
        .iter()
        .map(|task| match &task.origin {
            TaskOrigin::TaskSet {
                set, row, license, ..
            } => (set.as_str(), row.as_str(), license.as_str()),
            other => panic!("{other:?}"),
        })
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("gsm8k-train", "line-1", "MIT"),
            ("gsm8k-train", "line-2", "MIT"),
            ("mbpp-train", "601", "CC-BY-4.0"),
            ("mbpp-train", "609", "CC-BY-4.0"),
        ]
    );
    // A checkout that eval has fetched lacks the training split.
    let list = fixture.path("suites/gsm8k/grade_school_math/data/train.jsonl");
    std::fs::remove_file(list).unwrap();
    let (status, error) = run("query");
    assert_eq!(status, Some(ExitCode::BadInput as i32), "{error}");
    assert!(
        error.contains("the checkout lacks the training split"),
        "{error}"
    );
}

/// Sets in the forms of MATH, MBPP and APPS, with rows of our own.
const CODE_AND_FORMULAS: &str = r#"
[query]
tasks = 9

[[query.task_sets]]
set = "jsonl"
name = "formulas"
path = "formulas.jsonl"
share = 0.34
check = "symbolic"
license = "MIT"
source = "our own"
fields = { question = "problem", answer = "solution" }

[[query.task_sets]]
set = "jsonl"
name = "asserts"
path = "asserts.jsonl"
share = 0.44
check = "tests"
license = "MIT"
source = "our own"
fields = { question = "text", answer = "test_list", setup = "test_setup_code", id = "task_id" }

[[query.task_sets]]
set = "jsonl"
name = "functions"
path = "functions.jsonl"
share = 0.22
check = "tests"
license = "MIT"
source = "our own"
fields = { answer = "input_output" }

[shard]
test_fraction = 0.25
held_out_templates = 3
"#;

fn code_and_formulas_fixture(teacher: &str) -> RunFixture {
    let files = [
        (
            "formulas.jsonl",
            r#"{"problem": "A square has the area 2. What is half of its diagonal, times its side?", "solution": "The side is $\\sqrt{2}$, so it is $\\boxed{\\sqrt{2}}$."}
{"problem": "Solve x^2 = 9 for x.", "solution": "Both signs: $\\boxed{3, -3}$."}
{"problem": "What is the derivative of x^3?", "solution": "$\\boxed{3x^2}$"}
"#,
        ),
        (
            "asserts.jsonl",
            r#"{"task_id": 1, "text": "Write a function area that computes the area of a circle.", "test_list": ["assert math.isclose(area(2), 4 * math.pi)", "assert area(0) == 0"], "test_setup_code": "import math"}
{"task_id": 2, "text": "Write a function initials that returns the initials of a name.", "test_list": ["assert initials('ada king') == 'AK'", "assert initials('') == ''"], "test_setup_code": ""}
{"task_id": 3, "text": "Write a function evens that returns the even numbers of a list.", "test_list": ["assert evens([1, 2, 4]) == [2, 4]", "assert set(evens([2, 2])) == {2}"], "test_setup_code": ""}
{"task_id": 4, "text": "Write a function last that returns the last item of a list.", "test_list": ["assert last([1, 5]) == 5"], "test_setup_code": ""}
{"task_id": 5, "text": "Write a function first that returns the first item of a list.", "test_list": ["assert all(first([n]) == n for n in [1, 2])"], "test_setup_code": ""}
"#,
        ),
        (
            "functions.jsonl",
            r#"{"question": "Given a list of numbers, return the pairs of neighbors.", "input_output": "{\"fn_name\": \"pairs\", \"inputs\": [[[1, 2, 3]], [[]]], \"outputs\": [[[1, 2], [2, 3]], []]}"}
{"question": "Given a text, return whether it is a palindrome.", "input_output": {"fn_name": "isSame", "inputs": [["abba"], ["ab"]], "outputs": [[true], [false]]}}
"#,
        ),
    ];
    project(teacher, CODE_AND_FORMULAS, &files)
}

/// Solves some tasks; the other programs and answers are wrong or attack the tests.
fn solve_code_and_formulas(request: &Value) -> String {
    let messages = request["messages"].as_array().unwrap();
    let spoken = messages.iter().filter(|m| m["role"] == "assistant").count();
    let asked = |words: &str| {
        let mut texts = messages.iter().filter_map(|m| m["content"].as_str());
        texts.any(|text| text.contains(words))
    };
    let saved =
        |source: &str| format!("open('output/solution.py', 'w').write({source:?})\nprint('saved')");
    let said = |answer: &str| format!("Answer: {answer}");
    let (code, answer) = if asked("half of its diagonal") {
        ("print(2 ** 0.5)".to_owned(), said("$\\frac{2}{\\sqrt{2}}$"))
    } else if asked("x^2 = 9") {
        ("print(-3, 3)".to_owned(), said("3"))
    } else if asked("the derivative") {
        ("print('3*x**2')".to_owned(), said("3*x**2"))
    } else if asked("area of a circle") {
        (
            saved("import math\ndef area(radius):\n    return math.pi * radius ** 2\n"),
            "It is saved.".into(),
        )
    } else if asked("function initials") {
        (
            saved("import sys\nprint('AK')\nsys.exit(0)\n"),
            "It is saved.".into(),
        )
    } else if asked("function evens") {
        let all = "class All(list):\n    def __eq__(self, other):\n        return True\ndef evens(numbers):\n    return All()\n";
        (saved(all), "It is saved.".into())
    } else if asked("function last") {
        (
            saved("def last(items):\n    return items[-1]\n"),
            "It is saved.".into(),
        )
    } else if asked("pairs of neighbors") {
        let method = "class Solution:\n    def pairs(self, numbers):\n        return list(zip(numbers, numbers[1:]))\n";
        (saved(method), "It is saved.".into())
    } else {
        assert!(asked("a palindrome"), "{request}");
        (
            saved("def isSame(text):\n    return True\n"),
            "It is saved.".into(),
        )
    };
    match spoken {
        0 => format!(
            "Analyse: a question.\nThis Step Todo: all of it.\n<|execute_start|>\n```python\n{code}\n```\n<|execute_end|>"
        ),
        _ => format!("Finished: this is done.\n{answer}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn formulas_and_functions_are_decided_by_executed_code() {
    if !interpreter_is_here() {
        return;
    }
    let server = Endpoint::start(|request| {
        std::future::ready(Answer::Content(solve_code_and_formulas(&request)))
    })
    .await;
    let fixture = code_and_formulas_fixture(&openai(&server.base_url(), FREE));
    let output = fixture.program("synthesize", &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(0), "{text}\n{error}");
    // The test with a comprehension is none that can be run, so its row gives no task.
    assert!(
        text.contains("0 files → 9 tasks → 9 trajectories → 5 accepted"),
        "{text}\n{error}"
    );
    let tasks = fixture.lines::<Task>("tasks.jsonl");
    let area = tasks
        .iter()
        .find(|task| task.query.contains("area of a circle"));
    let query = &area.unwrap().query;
    assert!(
        query.ends_with("such as:\n\nassert math.isclose(area(2), 4 * math.pi)"),
        "{query}"
    );

    let mut found = Vec::new();
    let dataset = fixture.folder().join("dataset");
    for shard in pybench_datasets::read::shards(&dataset).unwrap() {
        let rows = pybench_datasets::read::rows(&shard.path).unwrap();
        found.extend(rows.map(|row| row.unwrap().template));
    }
    found.sort_unstable();
    assert_eq!(
        found,
        [
            "task_set/asserts/1",
            "task_set/asserts/4",
            "task_set/formulas/line-1",
            "task_set/formulas/line-3",
            "task_set/functions/line-1",
        ]
    );
    // The rows are executed again, with the same verdicts.
    let mut verify = crate::support::pybench("verify");
    verify.arg(&dataset).args(["--offline", "--state"]);
    verify
        .arg(fixture.path("state"))
        .current_dir(fixture.path(""));
    let output = verify.env_remove("PYBENCH_ROOT").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(0), "{text}\n{error}");
}

/// The bench that makes a dataset of WikiTableQuestions' training split with a script in place of a model, on a checkout with
/// ten questions of our own: nine answers are those listed, the tenth is wrong.
#[test]
fn the_listed_answers_of_the_built_in_set_become_a_dataset() {
    if !interpreter_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let checkout = folder.path().join("suites/wikitablequestions");
    std::fs::create_dir_all(checkout.join("data")).unwrap();
    std::fs::create_dir_all(checkout.join("csv/1-csv")).unwrap();
    let mut questions = "id\tutterance\tcontext\ttargetValue\n".to_owned();
    for fleet in 0..10 {
        let boats = format!(
            "\"boat\",\"knots\"\n\"Gull {fleet}\",\"9\"\n\"Tern {fleet}\",\"7\"\n\"Auk {fleet}\",\"4\"\n"
        );
        std::fs::write(checkout.join(format!("csv/1-csv/{fleet}.csv")), boats).unwrap();
        questions += &format!(
            "nt-{fleet}\twhich boat of fleet {fleet} is the fastest?\tcsv/1-csv/{fleet}.csv\tGull {fleet}\n"
        );
    }
    std::fs::write(checkout.join("data/training.tsv"), questions).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/task-set");
    let mut command = std::process::Command::new("python3");
    command.args([script, "--tasks", "10", "--port", &port]);
    command.args(["--pybench", crate::support::PYBENCH]);
    command
        .current_dir(folder.path())
        .env("PYBENCH_SUITES", folder.path().join("suites"))
        .env_remove("PYBENCH_ROOT");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), Some(0), "{text}\n{error}");
    assert!(
        text.contains("0 files → 10 tasks → 10 trajectories → 9 accepted"),
        "{text}"
    );
    let dataset = folder.path().join("data/runs/task-set/dataset");
    let mut rows = 0;
    for shard in pybench_datasets::read::shards(&dataset).unwrap() {
        for row in pybench_datasets::read::rows(&shard.path).unwrap() {
            let row = row.unwrap();
            assert_eq!(row.task_license.as_deref(), Some("CC-BY-SA-4.0"));
            rows += 1;
        }
    }
    assert_eq!(rows, 9, "{text}");
}
