use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use pybench_types::task::Difficulty;

use super::*;

const GOOD: &str = r#"name = "good"
seed = 7

[[crawl.sources]]
source = "local"
path = "data"

[crawl.quota]
csv = 5

[query]
tasks = 10

[teacher]
kind = "expert"
faults = 0.1
"#;

fn parse(text: &str) -> Result<Recipe, RecipeError> {
    Recipe::parse("r.toml", text, &[])
}

fn with_sets(sets: &[&str]) -> Result<Recipe, RecipeError> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    Recipe::parse("r.toml", GOOD, &sets)
}

/// The error message for GOOD with `from` replaced by `to`.
fn refused(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse(&GOOD.replacen(from, to, 1))
        .expect_err(to)
        .to_string()
}

#[test]
fn a_good_recipe_round_trips() {
    let recipe = parse(GOOD).unwrap();
    assert_eq!((recipe.seed, recipe.query.tasks), (7, 10));
    assert_eq!(recipe.rollout, Rollout::default());
    let text = recipe.to_toml().unwrap();
    let again = parse(&text).unwrap();
    assert_eq!(again, recipe);
    assert_eq!(again.to_toml().unwrap(), text);
    // The order of keys in the file does not matter.
    let moved = GOOD.replace("name = \"good\"\nseed = 7\n", "seed = 7\nname = \"good\"\n");
    assert_eq!(parse(&moved).unwrap().to_toml().unwrap(), text);
}

#[test]
fn every_kind_of_source_and_teacher_round_trips() {
    let text = format!(
        "{}\n[[crawl.fallback]]\nsource = 'http'\nurls = ['https://e.org/a.csv']\n\
         [[crawl.fallback]]\nsource = 'pypi'\n[[crawl.fallback.packages]]\n\
         requirement = 'mutagen==1.47.0'\narchive = 'sdist'\nsha256 = '{}'\ninclude = ['*.mp3']\n{SERVICES}",
        GOOD.replace(
            "kind = \"expert\"\nfaults = 0.1",
            "kind = 'openai'\nmodel = 'm'\nbase_url = 'http://h/v1'\nkey_env = 'KEY'\n\
             headers = { X-Api-Key = '$KEY', 'a.b' = 'c' }\nprice = { prompt = 1, completion = 2.5 }"
        ),
        "0".repeat(64)
    );
    let recipe = parse(&text).unwrap();
    assert_eq!(parse(&recipe.to_toml().unwrap()).unwrap(), recipe);
}

#[test]
fn a_checkpoint_is_served_with_the_numbers_of_its_teacher() {
    let text = |more: &str| {
        let teacher = format!("kind = \"checkpoint\"\nmodel = \"m\"{more}");
        GOOD.replace("kind = \"expert\"\nfaults = 0.1", &teacher)
    };
    for (more, name) in [
        ("", "checkpoint:m"),
        ("\ndtype = \"int8\"", "checkpoint:m-int8"),
        ("\nengine = \"auto\"", "checkpoint:m-auto"),
        (
            "\ndtype = \"bf16\"\nengine = \"vllm\"",
            "checkpoint:m-bf16-vllm",
        ),
    ] {
        let recipe = parse(&text(more)).unwrap();
        assert_eq!(parse(&recipe.to_toml().unwrap()).unwrap(), recipe);
        let ModelChoice::Checkpoint {
            model,
            dtype,
            engine,
        } = &recipe.teacher
        else {
            panic!("{:?}", recipe.teacher);
        };
        assert_eq!(ModelChoice::checkpoint_name(model, *dtype, *engine), name);
    }
    let error = parse(&text("\ndtype = \"int4\"")).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("dtype: unknown value `int4`"), "{error}");
}

const SERVICES: &str = r#"
[[crawl.fallback]]
source = "arxiv"
papers = ["2407.16732v2", "hep-th/9901001v1"]
searches = [{ text = "cat:cs.CL", most = 5 }]
formats = ["pdf", "source"]
[[crawl.fallback]]
source = "github"
repositories = ["o/n.x@0123456789abcdef0123456789abcdef01234567"]
include = ["*.csv"]
[[crawl.fallback]]
source = "hub"
datasets = ["o/n@0123456789abcdef0123456789abcdef01234567"]
files = 5
[[crawl.fallback]]
source = "kaggle"
datasets = ["o/n@3"]
[[crawl.fallback]]
source = "zenodo"
records = [7]
"#;

#[test]
fn items_of_services_must_be_pinned() {
    let refused = |from: &str, to: &str| {
        assert!(SERVICES.contains(from), "{from}");
        let services = SERVICES.replace(from, to);
        parse(&format!("{GOOD}{services}"))
            .expect_err(to)
            .to_string()
    };
    for (from, to, message) in [
        ("16732v2", "16732", "a paper with its version"),
        ("o/n@3", "o/n", "a dataset with its version"),
        (
            "o/n.x@0123",
            "o/n.x@123",
            "with all 40 digits of the commit",
        ),
        (
            "o/n@0123456789abcdef0123456789abcdef01234567",
            "o/n@main",
            "with all 40 digits of the commit",
        ),
        (
            "records = [7]",
            "",
            "name at least one of `records` or `searches`",
        ),
        (
            "datasets = [\"o/n@3\"]",
            "",
            "name at least one of `datasets` or `searches`",
        ),
        (
            "[\"pdf\", \"source\"]",
            "[]",
            "name `pdf`, `source` or both",
        ),
        ("most = 5", "most = 0", "must be at least 1"),
        ("files = 5", "files = 0", "must be at least 1"),
        ("records = [7]", "records = [\"7\"]", "expected"),
    ] {
        let said = refused(from, to);
        assert!(
            said.contains(message) && said.contains("r.toml:"),
            "{to}: {said}"
        );
    }
}

#[test]
fn mistakes_are_reported_with_their_location() {
    let shown = [
        refused("seed = 7", "sed = 7"),
        refused("seed = 7", "seed = \"7\""),
        refused("seed = 7", "seed = -1"),
        refused("seed = 7", "seed = 99999999999999999999"),
        refused("seed = 7", "seed = "),
        refused("\"good\"", "\"a/b\""),
        refused("tasks = 10", "taks = 10"),
        refused("tasks = 10", "tasks = 0"),
        refused("tasks = 10", "tasks = 10\ntemplate_share = 0"),
        refused("tasks = 10", "tasks = 10\ntemplate_share = 1.5"),
        refused("tasks = 10", "tasks = 10\nlanguages = { en = 0.5 }"),
        refused("tasks = 10", "tasks = 10\nlanguages = { english = 1.0 }"),
        refused(
            "tasks = 10",
            "tasks = 10\ncategories = [\"chart\", \"charts\"]",
        ),
        refused("csv = 5", "cvs = 5"),
        refused("path = \"data\"", "paht = \"data\""),
        refused("path = \"data\"", "path = \"\""),
        refused("source = \"local\"", "source = \"locale\""),
        refused("source = \"local\"\n", ""),
        refused("faults = 0.1", "faults = 1.1"),
        refused("faults = 0.1", "fault = 0.1"),
        refused("kind = \"expert\"", "kind = 3"),
        refused(
            "[teacher]",
            "[rollout.sampling]\ntemperature = nan\n[teacher]",
        ),
        refused("[teacher]", "[budget]\nusd = -1\n[teacher]"),
        refused("[teacher]", "[rollout]\nconcurrency = 100000\n[teacher]"),
        refused("[teacher]", "[shard]\ntest_fraction = 1\n[teacher]"),
        refused(
            "[teacher]",
            "[shard]\ntest_shares = { files = 0.1, pairs = 0.1 }\n[teacher]",
        ),
        refused(
            "[teacher]",
            "[shard]\ntest_shares = { files = 0.5, templates = 0.5 }\n[teacher]",
        ),
        refused("[teacher]", "[grade]\nat_least = 11\n[teacher]"),
        refused(
            "[teacher]",
            "[grade]\nfilters = ['check', 'check']\n[teacher]",
        ),
        refused(
            "[teacher]",
            "[interpreter]\nnetwork = ['a.example:443', 'http://b.example']\n[teacher]",
        ),
        refused(
            "[teacher]",
            "[interpreter]\ntier = 'unsandboxed'\nnetwork = ['a.example']\n[teacher]",
        ),
    ];
    insta::assert_snapshot!(shown.join("\n"), @r#"
    r.toml:2:1: unknown key `sed` in the recipe; did you mean `seed`? (known keys: `name`, `seed`, `crawl`, `query`, `teacher`, `teacher_mix`, `escalation`, `rollout`, `budget`, `interpreter`, `grade`, `goal`, `shard`, `loop`)
    r.toml:2:8: seed: expected a whole number, found a string
    r.toml:2:8: seed: -1 must be at least 0
    r.toml:2:8: the number does not fit in 64 bits
    r.toml:2:8: string values must be quoted, expected literal string
    r.toml:1:8: name: expected 1 to 64 letters, digits, `-` or `_`
    r.toml:12:1: unknown key `taks` in query; did you mean `tasks`? (known keys: `tasks`, `template_share`, `languages`, `categories`, `keywords`, `composed`, `renamed`, `foreign_names`, `messy`, `imprecise`, `typos`, `difficulties`, `balance`, `files`, `apart_from`, `task_sets`, `writer`)
    r.toml:11:1: query: the key `tasks` is missing: Number of tasks to write.
    r.toml:12:9: tasks: 0 must be at least 1
    r.toml:13:18: template_share: 0 must be above 0
    r.toml:13:18: template_share: 1.5 must be at most 1
    r.toml:13:13: languages: the shares add up to 0.5; they must add up to 1
    r.toml:13:15: unknown key `english` in languages (known keys: `en`, `zh`)
    r.toml:13:24: categories.1: unknown value `charts`; did you mean `chart`? (expected one of `chart`, `text`, `image_audio`, `math`, `software`)
    r.toml:9:1: unknown key `cvs` in quota; did you mean `csv`? (known keys: `bmp`, `csv`, `docx`, `eml`, `flac`, `gif`, `html`, `ini`, `ipynb`, `jpeg`, `json`, `jsonl`, `log`, `md`, `mp3`, `mp4`, `ogg`, `parquet`, `pdf`, `png`, `pptx`, `sqlite`, `svg`, `tsv`, `txt`, `wav`, `webp`, `xlsx`, `xml`, `yaml`)
    r.toml:6:1: unknown key `paht` in sources.0 with source `local`; did you mean `path`? (known keys: `source`, `path`, `ignore`, `license`)
    r.toml:4:1: sources.0 with source `local`: the key `path` is missing: Path of the folder, relative to the project root.
    r.toml:6:8: path: the path is empty
    r.toml:5:10: source: unknown value `locale`; did you mean `local`? (expected one of `local`, `http`, `pypi`, `arxiv`, `github`, `hub`, `kaggle`, `zenodo`)
    r.toml:4:1: sources.0: the key `source` is missing; expected one of `local`, `http`, `pypi`, `arxiv`, `github`, `hub`, `kaggle`, `zenodo`
    r.toml:16:10: faults: 1.1 must be at most 1
    r.toml:16:1: unknown key `fault` in teacher with kind `expert`; did you mean `faults`? (known keys: `kind`, `faults`, `recoveries`, `idioms`, `style`)
    r.toml:15:8: kind: expected one of `expert`, `correction`, `openai`, `checkpoint`, `embedded`, found a whole number
    r.toml:15:15: temperature: NaN must be a finite number
    r.toml:15:7: usd: -1 must be at least 0
    r.toml:15:15: concurrency: 100000 must be at most 1024
    r.toml:15:17: test_fraction: 1 must be below 1
    r.toml:15:38: pairs: no pairs are held out; set `shard.held_out_pairs`, or remove this share
    r.toml:15:15: test_shares: the shares add up to 1; their sum must be above 0 and below 1
    r.toml:15:12: at_least: the run makes at most 10 rows; lower `grade.at_least`, or raise `query.tasks` or `rollout.samples`
    r.toml:15:11: filters: a filter is listed twice
    r.toml:15:11: network: "http://b.example" is not a valid host: expected a name, *.name or an IP address, with or without :port
    r.toml:16:11: network: the tiers `kubernetes` (the cluster controls a pod's network) and `unsandboxed` cannot limit sessions to a list of hosts: leave the list empty, or choose another tier
    "#);
}

#[test]
fn packages_must_have_a_version_and_a_hash() {
    let package = |requirement: &str, sha256: &str| {
        let source = format!(
            "source = \"pypi\"\n[[crawl.sources.packages]]\nrequirement = \"{requirement}\"\nsha256 = \"{sha256}\""
        );
        parse(&GOOD.replace("source = \"local\"\npath = \"data\"", &source))
    };
    let sha256 = "a".repeat(64);
    package("mutagen==1.47.0", &sha256).unwrap();
    for (requirement, sha256) in [
        ("mutagen", sha256.as_str()),
        ("mutagen>=1", &sha256),
        ("-e==1", &sha256),
        ("mutagen==1.47.0", "abc"),
        ("mutagen==1.47.0", &"A".repeat(64)),
    ] {
        let error = package(requirement, sha256).unwrap_err().to_string();
        assert!(
            error.starts_with("r.toml:7:") || error.starts_with("r.toml:8:"),
            "{error}"
        );
    }
}

#[test]
fn all_mistakes_are_reported_up_to_a_limit() {
    let text = GOOD
        .replace("seed = 7", "sed = 7")
        .replace("tasks = 10", "tasks = 'ten'");
    assert_eq!(parse(&text).unwrap_err().to_string().lines().count(), 2);
    let unknown: String = (0..100).map(|i| format!("unknown_{i} = 1\n")).collect();
    let shown = parse(&format!("{unknown}{GOOD}")).unwrap_err().to_string();
    assert_eq!(shown.lines().count(), 21);
    assert!(shown.ends_with("… and 80 more"), "{shown}");
}

#[test]
fn any_key_can_be_set() {
    let recipe = with_sets(&[
        "rollout.samples=4",
        "rollout.sampling.temperature=0.9",
        "crawl.sources.0.path=other folder",
        "crawl.sources.1={source='local', path='third'}",
        "crawl.quota.png=3",
        "budget.usd=2",
        "name=b",
        "rollout.samples=5",
    ])
    .unwrap();
    assert_eq!(recipe.rollout.samples, 5);
    assert_eq!(recipe.rollout.sampling.temperature, 0.9);
    assert_eq!(recipe.rollout.sampling.max_tokens, 1000);
    assert_eq!(recipe.crawl.sources.len(), 2);
    assert_eq!(recipe.crawl.quota.len(), 2);
    assert_eq!((recipe.budget.usd, recipe.name.as_str()), (Some(2.0), "b"));
    let whole = with_sets(&["teacher={kind='openai', model='m', base_url='http://h/v1'}"]);
    assert!(matches!(whole.unwrap().teacher, ModelChoice::Openai { .. }));
}

#[test]
fn wrong_set_options_are_reported() {
    let shown = [
        with_sets(&["rollout.sample=4"]),
        with_sets(&["rollout.samples=four"]),
        with_sets(&["rollout.samples"]),
        with_sets(&["rollout..samples=1"]),
        with_sets(&["seed.x=1"]),
        with_sets(&["crawl.sources.7.path=x"]),
        with_sets(&["query.languages.en=0.9"]),
        with_sets(&["teacher.kind=openai"]),
    ]
    .map(|result| result.unwrap_err().to_string());
    insta::assert_snapshot!(shown.join("\n"), @r#"
    --set rollout.sample: unknown key `sample` in rollout; did you mean `samples`? (known keys: `samples`, `format`, `max_turns`, `max_identical_turns`, `repetition_detection`, `code_within_tokens`, `sampling`, `concurrency`, `attempts`, `unit_minutes`, `reuse`, `corrections`)
    --set rollout.samples: samples: expected a whole number, found a string
    --set rollout.samples: expected `key.path=value`
    --set rollout..samples: the key path is empty or has an empty part
    --set seed.x: `x` cannot be set: the value before it is neither a table nor a list
    --set crawl.sources.7.path: `7` is not an index of this list; use 0 to 1, where 1 appends
    --set query.languages.en: languages: the shares add up to 0.9; they must add up to 1
    r.toml:16:1: unknown key `faults` in teacher with kind `openai` (known keys: `kind`, `model`, `base_url`, `key_env`, `headers`, `price`, `timeout_seconds`, `more_keys_env`, `requests_per_minute`, `tokens_per_minute`, `batch`)
    r.toml:14:1: teacher with kind `openai`: the key `model` is missing: Model name, as the endpoint expects it.
    r.toml:14:1: teacher with kind `openai`: the key `base_url` is missing: Base URL of the API, such as `https://api.openai.com/v1`.
    "#);
}

#[test]
fn batches_require_a_teacher_with_one_key() {
    let endpoint = |more: &str| {
        format!("{{kind='openai', model='m', base_url='http://h/v1', batch=true{more}}}")
    };
    with_sets(&[&format!("teacher={}", endpoint(""))]).unwrap();
    with_sets(&[&format!("escalation=[{}]", endpoint(", key_env='K'"))]).unwrap();
    let keys = endpoint(", key_env='A', more_keys_env=['B']");
    for (set, said) in [
        (
            format!("grade.judge={{teacher={}}}", endpoint("")),
            "only teachers",
        ),
        (format!("teacher={keys}"), "belongs to one API key"),
        (
            format!("teacher={}", endpoint(", tokens_per_minute=5")),
            "has its own limits",
        ),
    ] {
        let error = with_sets(&[&set]).unwrap_err().to_string();
        assert!(error.contains("batch") && error.contains(said), "{error}");
    }
}

#[test]
fn attempts_are_continued_by_a_model_of_the_escalation() {
    let continued = |escalation: &str| {
        let escalation = format!("escalation=[{escalation}]");
        with_sets(&["rollout.corrections=true", &escalation]).map_err(|error| error.to_string())
    };
    continued("{kind='openai', model='m', base_url='http://h/v1'}, {kind='expert'}").unwrap();
    for escalation in ["", "{kind='expert'}", "{kind='correction'}"] {
        let error = continued(escalation).unwrap_err();
        assert!(error.contains("must be a model"), "{error}");
    }
}

#[test]
fn api_keys_are_rejected_in_recipes_and_never_printed() {
    let openai = "teacher={kind='openai', model='m', base_url='http://h/v1'";
    for rest in [
        ", key_env='sk-secret-123'}",
        ", headers={Authorization='Bearer sk-secret-123'}}",
        ", headers={X-API-Key='sk-secret-123'}}",
    ] {
        let error = with_sets(&[&format!("{openai}{rest}")])
            .unwrap_err()
            .to_string();
        assert!(!error.contains("sk-secret"), "{error}");
    }
    with_sets(&[&format!("{openai}, headers={{Authorization='$TOKEN'}}}}")]).unwrap();
}

#[test]
fn composed_tasks_can_be_balanced_by_difficulty() {
    let with = |keys: &str| parse(&GOOD.replacen("[query]", &format!("[query]\n{keys}"), 1));
    let recipe = with("composed = 0.5\nbalance.difficulties = { easy = 0, hard = 2.5 }").unwrap();
    let weights = BTreeMap::from([
        (Difficulty::Easy, 0.0),
        (Difficulty::Medium, 1.0),
        (Difficulty::Hard, 2.5),
    ]);
    assert_eq!(recipe.query.balance.difficulty_weights(), Some(weights));
    assert_eq!(parse(&recipe.to_toml().unwrap()).unwrap(), recipe);
    let plain = with("composed = 0.5").unwrap();
    assert_eq!(plain.query.balance.difficulty_weights(), None);
    for (keys, message) in [
        (
            "composed = 0.5\nbalance.difficulties = { hard = -1 }",
            "hard: -1 is not a valid weight",
        ),
        (
            "composed = 0.5\nbalance.difficulties = { easy = 0, medium = 0, hard = 0 }",
            "all weights are 0",
        ),
        (
            "balance.difficulties = { hard = 1 }",
            "only composed tasks have a difficulty",
        ),
        (
            "composed = 0.5\ndifficulties = [1]\nbalance.difficulties = { easy = 1 }",
            "`query.difficulties` chooses levels as well",
        ),
    ] {
        let error = with(keys).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

const WRITER: &str = r#"
[query.writer]
generator = { kind = "openai", model = "g", base_url = "http://h/v1" }
content_checker = { kind = "openai", model = "c", base_url = "http://h/v1" }
rounds = 2
[query.writer.balance]
categories = { chart = 2, math = 0 }
types = { csv = 0.5 }
difficulties = { hard = 3 }
keywords = { "bar chart" = 2 }
"#;

#[test]
fn a_recipe_can_name_models_that_write_tasks() {
    let solved = GOOD.replace(
        "kind = \"expert\"\nfaults = 0.1",
        "kind = 'openai'\nmodel = 't'\nbase_url = 'http://h/v1'",
    );
    let with = |from: &str, to: &str| {
        assert!(WRITER.contains(from), "{from}");
        parse(&format!("{solved}{}", WRITER.replacen(from, to, 1)))
    };
    let recipe = with("rounds", "rounds").unwrap();
    assert_eq!(parse(&recipe.to_toml().unwrap()).unwrap(), recipe);
    let models: Vec<_> = recipe.models().into_iter().map(|(path, _)| path).collect();
    let expected = [
        "teacher",
        "query.writer.generator",
        "query.writer.content_checker",
    ];
    assert_eq!(models, expected);
    assert_eq!(recipe.clone().models_mut().count(), 3);
    let embedded =
        "embeddings = { endpoint = { kind = 'openai', model = 'e', base_url = 'http://h/v1' } }";
    let mut recipe = with("rounds = 2", embedded).unwrap();
    let last = recipe.models().pop().unwrap().0;
    assert_eq!(last, "query.writer.embeddings.endpoint");
    assert_eq!(recipe.models_mut().count(), 4);
    for (from, to, message) in [
        (
            "chart = 2",
            "chart = -1",
            "categories.chart: -1 is not a valid weight",
        ),
        ("chart = 2", "charts = 1", "did you mean `chart`?"),
        ("rounds = 2", "rounds = 0", "must be at least 1"),
        ("rounds = 2", "similarity = 0.2", "must be at least 0.5"),
        ("rounds = 2", "checks = 'optional'", "add `judge` to"),
        (
            "rounds = 2",
            "keyword_checker = { kind = 'expert' }",
            "the expert cannot write tasks",
        ),
        (
            "rounds = 2",
            "embeddings = { endpoint = { kind = 'expert' } }",
            "embeddings.endpoint: the expert cannot write tasks",
        ),
        (
            "rounds = 2",
            "embeddings = { endpoint = { kind = 'embedded', model = 'm' } }",
            "must have `kind = \"openai\"`",
        ),
    ] {
        let said = with(from, to).expect_err(to).to_string();
        assert!(
            said.contains(message) && said.contains("r.toml:"),
            "{to}: {said}"
        );
    }
    let said = parse(&format!("{GOOD}{WRITER}")).unwrap_err().to_string();
    assert!(
        said.contains("the expert can only solve tasks of the task library"),
        "{said}"
    );
}

#[test]
fn files_that_are_no_recipes_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.toml");
    let refused = |path: &Path| Recipe::load(path, &[]).unwrap_err().to_string();
    assert!(refused(&path).contains("cannot be read"));
    std::fs::write(&path, vec![b'#'; 2 << 20]).unwrap();
    assert!(refused(&path).contains("larger than"));
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(refused(&path).contains("UTF-8"));
    assert!(
        parse(&format!("a = {}", "[".repeat(100_000))).is_err(),
        "depth is bounded"
    );
}

#[test]
fn patterns_of_the_schema_compile() {
    fn walk(value: &serde_json::Value, seen: &mut usize) {
        if let Some(pattern) = value["pattern"].as_str() {
            regex::Regex::new(pattern).unwrap();
            *seen += 1;
        }
        match value {
            serde_json::Value::Object(map) => map.values().for_each(|value| walk(value, seen)),
            serde_json::Value::Array(items) => items.iter().for_each(|value| walk(value, seen)),
            _ => {}
        }
    }
    let mut seen = 0;
    walk(&Recipe::json_schema(), &mut seen);
    assert!(seen >= 6, "{seen}");
}

/// `UPDATE_SCHEMA=1 cargo test -p pybench-run --lib schema` regenerates the file.
#[test]
fn the_committed_schema_is_current() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pipelines/recipes/recipe.schema.json");
    let schema = serde_json::to_string_pretty(&Recipe::json_schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &schema).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == schema,
        "{} is out of date; run `UPDATE_SCHEMA=1 cargo test -p pybench-run --lib schema`",
        path.display()
    );
}

/// Lines of a good recipe, and lines with mistakes.
fn line() -> impl Strategy<Value = String> {
    let good: Vec<String> = GOOD.lines().map(str::to_owned).collect();
    let key = prop::sample::select(vec![
        "name",
        "seed",
        "[query]",
        "tasks",
        "[[crawl.sources]]",
        "source",
        "[teacher]",
        "kind",
        "rollout.samples",
        "teacher.headers.\"a.b\"",
        "query.languages",
    ]);
    prop_oneof![
        3 => prop::sample::select(good),
        1 => (key, "\\PC{0,12}").prop_map(|(key, value)| format!("{key} = {value}")),
        1 => "\\PC{0,30}",
    ]
}

proptest! {
    #[test]
    fn parsing_never_panics(lines in prop::collection::vec(line(), 0..25), set in "\\PC{0,30}") {
        let text = lines.join("\n");
        let problems = match Recipe::parse("r.toml", &text, std::slice::from_ref(&set)) {
            Ok(recipe) => {
                let again = parse(&recipe.to_toml().unwrap());
                prop_assert_eq!(again.as_ref(), Ok(&recipe));
                return Ok(());
            }
            Err(error) => error.to_string(),
        };
        prop_assert!(!problems.is_empty());
    }
}

#[test]
fn fuzz_parsing() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let (text, set) = text.split_once('\0').unwrap_or((&text, "seed=1"));
        let _ = Recipe::parse("r.toml", text, &[set.to_owned()]);
        let _ = Recipe::parse("r.toml", GOOD, &[text.to_owned()]);
    });
}

/// The error message for a recipe with this teacher, `[query]` and task sets.
fn refused_sets(teacher: &str, sets: &str) -> String {
    let text = format!("name = 's'\nteacher = {teacher}\n[query]\ntasks = 4\n{sets}");
    parse(&text).expect_err(sets).to_string()
}

const ENDPOINT: &str = "{ kind = 'openai', model = 'm', base_url = 'http://h/v1' }";
const SET: &str = "[[query.task_sets]]\nset = 'jsonl'\nname = 'a'\npath = 'a.jsonl'\ncheck = 'numeric'\nlicense = 'MIT'\nsource = 's'\n";

#[test]
fn a_curriculum_needs_several_samples_and_room_between_its_bounds() {
    let parsed = |samples: u32, bounds: &str| {
        parse(&format!(
            "name = 's'\nteacher = {ENDPOINT}\n[[crawl.sources]]\nsource = 'local'\npath = 'data'\n[query]\ntasks = 4\n\
             [rollout]\nsamples = {samples}\n[loop]\nrounds = 2\ncurriculum = {bounds}\n"
        ))
    };
    let recipe = parsed(4, "{}").unwrap();
    assert_eq!(parse(&recipe.to_toml().unwrap()).unwrap(), recipe);
    let one = parsed(1, "{}").unwrap_err().to_string();
    assert!(one.contains("rollout.samples"), "{one}");
    let none = parsed(4, "{ above = 0.5, below = 0.5 }").unwrap_err();
    assert!(
        none.to_string().contains("no pass rate is above 0.5"),
        "{none}"
    );
}

#[test]
fn a_recipe_of_task_sets_needs_no_files_and_round_trips() {
    let text = format!("name = 's'\nteacher = {ENDPOINT}\n[query]\ntasks = 4\n{SET}");
    let recipe = parse(&text).unwrap();
    assert!(recipe.crawl.sources.is_empty());
    assert_eq!(recipe.query.set_tasks(), [4]);
    assert_eq!(parse(&recipe.to_toml().unwrap()).unwrap(), recipe);
    let built_in = format!(
        "{SET}share = 0.3\n[[query.task_sets]]\nset = 'wikitablequestions-train'\nshare = 0.45\n\
         [[query.task_sets]]\nset = 'gsm8k-train'\nshare = 0.15\n[[query.task_sets]]\nset = 'mbpp-train'\nshare = 0.1\n"
    );
    let text = format!("name = 's'\nteacher = {ENDPOINT}\n[query]\ntasks = 10\n{built_in}");
    let recipe = parse(&text).unwrap();
    assert_eq!(recipe.query.set_tasks(), [3, 5, 1, 1]);
    assert_eq!(parse(&recipe.to_toml().unwrap()).unwrap(), recipe);
}

#[test]
fn task_sets_need_a_model_a_license_and_a_check_that_is_decided() {
    let expert = refused_sets("{ kind = 'expert' }", SET);
    let part =
        "the expert has no solution for tasks of `query.task_sets`; use a model behind an endpoint";
    assert!(expert.contains(part), "{expert}");
    for (from, to, part) in [
        (
            "license = 'MIT'\n",
            "",
            "license: every row states its license",
        ),
        (
            "source = 's'\n",
            "",
            "source: every row states where it comes from",
        ),
        (
            "'numeric'",
            "'judge'",
            "check: tasks without an executed check need a judge",
        ),
        ("'numeric'", "'numbers'", "unknown value `numbers`"),
        (
            "source = 's'\n",
            "source = 's'\nfields = { conversation = 'c', question = 'q' }\n",
            "fields: the question is the first turn of `fields.conversation`",
        ),
        (
            "source = 's'\n",
            "source = 's'\nfields = { setup = 's' }\n",
            "fields: `setup` belongs to `check = \"tests\"`",
        ),
        ("path = 'a.jsonl'\n", "", "path"),
        ("'a.jsonl'", "''", "path: the path is empty"),
        ("source = 's'\n", "source = 's'\nshare = 0\n", "share"),
    ] {
        assert!(SET.contains(from), "{from}");
        let error = refused_sets(ENDPOINT, &SET.replace(from, to));
        assert!(error.contains(part), "{part}: {error}");
    }
    let twice = refused_sets(ENDPOINT, &format!("{SET}share = 0.5\n{SET}share = 0.6\n"));
    assert!(twice.contains("the shares add up to 1.1"), "{twice}");
    assert!(twice.contains("two sets are called `a`"), "{twice}");
}
