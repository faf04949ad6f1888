//! From a list of questions with answers to Parquet: the real program, with an endpoint on this machine as teacher.

use crate::support::endpoint::{Answer, Endpoint};
use crate::support::fixture::{FREE, RunFixture, code, interpreter_is_here, openai};
use pybench_run::ExitCode;
use pybench_types::task::Task;
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

fn recipe(teacher: &str) -> String {
    format!("name = 't'\nseed = 7\nteacher = {teacher}\n{SETS}")
}

fn fixture(teacher: &str) -> RunFixture {
    let fixture = RunFixture::bare(&recipe(
        "{ kind = 'openai', model = 'm', base_url = 'http://127.0.0.1:9/v1' }",
    ));
    std::fs::write(fixture.path("t.toml"), recipe(teacher)).unwrap();
    for (name, text) in [
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
    ] {
        std::fs::write(fixture.path(name), text).unwrap();
    }
    fixture
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
    std::fs::write(fixture.path("t.toml"), recipe(teacher)).unwrap();
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
