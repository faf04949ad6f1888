//! Measures recall and false positives of the decontamination on tasks of the library.
//!
//! The templates of the library are divided into two halves. One half writes the "benchmark", the other half writes
//! clean rows from the same domain about the same kinds of files. Changed copies of the benchmark are planted among the
//! clean rows. They must be found, and the clean rows must not.

use std::collections::HashSet;
use std::path::Path;

use crate::support::fixture::RunFixture;
use pybench_crawl as crawl;
use pybench_dataset_tools as dataset;
use pybench_datasets::decontaminate::{
    BenchmarkIndex, BenchmarkTask, Hit, NearDuplicates, SuiteQuestion, Table, fingerprints,
};
use pybench_datasets::text::{hash, mix};
use pybench_query as query;
use pybench_types::task::{Task, TaskOrigin};

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/samples/files");

/// Tasks that the library writes for the sample files of the repository.
async fn tasks(seed: u64) -> Vec<Task> {
    let recipe = format!(
        "name = 't'\nseed = {seed}\nteacher = {{ kind = 'expert' }}\n\n[[crawl.sources]]\nsource = 'local'\n\
         path = '{SAMPLES}'\nlicense = 'CC0-1.0'\n\n[query]\ntasks = 600\ntemplate_share = 0.02\n"
    );
    let fixture = RunFixture::bare(&recipe);
    let context = fixture.context();
    crawl::run(&context).await.unwrap();
    query::run(&context).await.unwrap();
    drop(context);
    fixture.lines("tasks.jsonl")
}

fn template(task: &Task) -> &str {
    match &task.origin {
        TaskOrigin::Library { template, .. } => template,
        TaskOrigin::Composed { .. }
        | TaskOrigin::Writer { .. }
        | TaskOrigin::Benchmark { .. }
        | TaskOrigin::TaskSet { .. } => "",
    }
}

fn is_benchmark(task: &Task) -> bool {
    hash(&[template(task)]).is_multiple_of(2)
}

fn any(hits: &[Hit]) -> bool {
    hits.iter().any(|hit| hit.contaminated)
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = mix(self.0);
        (self.0 % bound.max(1) as u64) as usize
    }
}

/// Change a query in one of five ways: unchanged, with additional text, with other punctuation and case, with two
/// words changed, with other file names.
fn changed(query: &str, way: usize, chance: &mut Chance) -> String {
    match way {
        0 => query.to_owned(),
        1 => format!(
            "Hello! Here is what I would like you to do for me today.\n{query}\nThank you very much."
        ),
        2 => query
            .to_uppercase()
            .replace([',', '，'], " ")
            .replace(['。', '.'], " ; "),
        3 => {
            let mut words: Vec<String> = query.split(' ').map(str::to_owned).collect();
            for _ in 0..2 {
                let at = chance.below(words.len());
                let word = &mut words[at];
                // A Chinese query is one long word: change a character.
                let middle = word.chars().count() / 2;
                *word = match word.chars().count() {
                    0..=12 => "something".to_owned(),
                    _ => word
                        .chars()
                        .enumerate()
                        .map(|(n, c)| if n == middle { '某' } else { c })
                        .collect(),
                };
            }
            words.join(" ")
        }
        _ => query
            .replace("./output/", "./output/copy_")
            .replace("./data/", "./data/my_"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_queries_are_found_and_clean_ones_are_not() {
    let mut known = HashSet::new();
    let (mut benchmark, mut clean) = (Vec::new(), Vec::new());
    for seed in [1, 2] {
        for task in tasks(seed).await {
            if known.insert(task.query.clone()) {
                let side = if is_benchmark(&task) {
                    &mut benchmark
                } else {
                    &mut clean
                };
                side.push(task);
            }
        }
    }
    assert!(
        benchmark.len() >= 150 && clean.len() >= 300,
        "{} {}",
        benchmark.len(),
        clean.len()
    );
    let items = benchmark
        .iter()
        .enumerate()
        .map(|(number, task)| BenchmarkTask {
            suite: "planted".into(),
            index: number.to_string(),
            query: task.query.clone(),
            ..BenchmarkTask::default()
        });
    let mut index = BenchmarkIndex::new(items.collect());
    let mut chance = Chance(5);
    let mut planted: Vec<(usize, String)> = Vec::new();
    for (number, task) in benchmark.iter().enumerate() {
        for way in 0..5 {
            planted.push((number, changed(&task.query, way, &mut chance)));
        }
    }
    clean.iter().for_each(|task| index.observe(&task.query));
    planted.iter().for_each(|(_, query)| index.observe(query));
    let mut found = 0;
    let mut missed = Vec::new();
    for (_, query) in &planted {
        match any(&index.query(query)) {
            true => found += 1,
            false => missed.push(query),
        }
    }
    let wrong: Vec<_> = clean
        .iter()
        .filter(|task| any(&index.query(&task.query)))
        .collect();
    let recall = found as f64 / planted.len() as f64;
    let false_share = wrong.len() as f64 / clean.len() as f64;
    println!(
        "planted queries: {found} of {} found ({recall:.4}); {} of {} clean ones judged ({false_share:.4})",
        planted.len(),
        wrong.len(),
        clean.len()
    );
    for query in missed.iter().take(5) {
        println!("missed: {query}");
    }
    for task in wrong.iter().take(10) {
        println!(
            "wrong: {} {}: {:?}",
            template(task),
            task.query,
            index.query(&task.query)[0]
        );
    }
    assert!(recall >= 0.99, "{recall}");
    assert!(false_share <= 0.001, "{false_share}");
    near_duplicates(&benchmark, &planted, &clean);
}

/// MinHash compares queries as wholes: texts around a copy count against it.
fn near_duplicates(benchmark: &[Task], planted: &[(usize, String)], clean: &[Task]) {
    let names: Vec<String> = (0..benchmark.len())
        .map(|number| number.to_string())
        .collect();
    let mut questions = Vec::new();
    for (task, index) in benchmark.iter().zip(&names) {
        questions.push(SuiteQuestion {
            suite: "planted",
            index,
            text: &task.query,
        });
    }
    let near = NearDuplicates::new(&questions);
    let found = planted.iter().filter(|(_, query)| any(&near.query(query)));
    let wrong = clean.iter().filter(|task| any(&near.query(&task.query)));
    let (found, wrong) = (found.count(), wrong.count());
    let recall = found as f64 / planted.len() as f64;
    println!(
        "near duplicates: {found} of {} found ({recall:.4}); {wrong} of {} clean ones judged",
        planted.len(),
        clean.len()
    );
    assert!(recall >= 0.7, "{recall}");
    assert!(wrong as f64 <= 0.001 * clean.len() as f64, "{wrong}");
}

fn rows(seed: u64, count: usize) -> Vec<Vec<Option<String>>> {
    let mut chance = Chance(seed);
    (0..count)
        .map(|n| {
            let date = format!(
                "2024-{:02}-{:02}",
                1 + chance.below(12),
                1 + chance.below(28)
            );
            let price = format!("{}.{:02}", chance.below(500), chance.below(100));
            let count = chance.below(40).to_string();
            let name = format!("item {}", n % 17);
            vec![Some(date), Some(name), Some(count), Some(price)]
        })
        .collect()
}

const HEADER: [&str; 4] = ["date", "name", "count", "price"];

#[test]
fn planted_tables_are_found_and_clean_ones_are_not() {
    let header = HEADER.map(str::to_owned);
    // All tables have the same columns, as exports of one shop would.
    let items = (0..200).map(|n| BenchmarkTask {
        suite: "planted".into(),
        index: n.to_string(),
        tables: vec![Table::new(&header, rows(n, 40 + 5 * n as usize))],
        ..BenchmarkTask::default()
    });
    let index = BenchmarkIndex::new(items.collect());
    let mut chance = Chance(9);
    let (mut found, mut planted) = (0, 0);
    for n in 0..200u64 {
        let original = rows(n, 40 + 5 * n as usize);
        let mut reordered = original.clone();
        reordered.reverse();
        let resampled: Vec<_> = (0..original.len())
            .map(|_| original[chance.below(original.len())].clone())
            .collect();
        let half: Vec<_> = original.iter().step_by(2).cloned().collect();
        let turned_header = ["Price", "date", "Count", "name "].map(str::to_owned);
        let turned = original
            .iter()
            .map(|row| [3, 0, 2, 1].map(|at: usize| row[at].clone()).to_vec());
        for table in [
            Table::new(&header, reordered),
            Table::new(&header, resampled),
            Table::new(&header, half),
            Table::new(&turned_header, turned.collect::<Vec<_>>()),
        ] {
            planted += 1;
            found += usize::from(
                index
                    .table(&table)
                    .iter()
                    .any(|hit| hit.contaminated && hit.task == format!("planted/{n}")),
            );
        }
    }
    let clean = 2000;
    let wrong = (0..clean)
        .filter(|n| any(&index.table(&Table::new(&header, rows(10_000 + n, 100)))))
        .count();
    println!("planted tables: {found} of {planted} found; {wrong} of {clean} clean ones judged");
    assert!(found * 100 >= planted * 99, "{found} of {planted}");
    assert!(wrong * 1000 <= clean as usize, "{wrong} of {clean}");
}

#[test]
fn answers_and_files_are_found() {
    let solution = "import pandas as pd\ndf = pd.read_csv('sales.csv')\nmonthly = df.groupby(df['date'].str[:7])['price'].sum()\n\
        monthly.plot(kind='bar', color='teal', title='Sales by month')\nplt.savefig('out.png')\nprint(monthly.idxmax())";
    let file = pybench_types::id::Digest::of_bytes(b"a file");
    let index = BenchmarkIndex::new(vec![BenchmarkTask {
        suite: "s".into(),
        index: "1".into(),
        query: "x".into(),
        answers: vec![solution.into()],
        files: vec![file.clone()],
        ..BenchmarkTask::default()
    }]);
    assert!(any(&index.answer(&format!(
        "I will do it.\n```python\n{solution}\n```\nFinished."
    ))));
    let other = "import pandas as pd\ndf = pd.read_csv('people.csv')\nprint(df['age'].mean())";
    assert!(!any(&index.answer(other)));
    assert!(any(&index.file(&file)));
    assert!(
        index
            .file(&pybench_types::id::Digest::of_bytes(b"another"))
            .is_empty()
    );
}

#[test]
fn a_benchmark_is_read_from_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("bench");
    std::fs::create_dir_all(root.join("data/meta")).unwrap();
    let put = |path: &str, text: &str| std::fs::write(root.join(path), text).unwrap();
    put(
        "data/meta/task.json",
        r#"[{"index": "2", "user": "Clean the data", "file_paths": ["./data/a.csv"]},
            {"index": "3", "user": "Draw it", "file_paths": ["./data/missing.csv"]}]"#,
    );
    put("data/a.csv", "a,b\n1,2\n3,4\n");
    put("data/other.csv", "c,d\n1,2\n");
    let items = dataset::items(&root).unwrap();
    let named: Vec<_> = items
        .iter()
        .map(|item| (item.index.as_str(), item.files.len(), item.tables.len()))
        .collect();
    assert_eq!(named, [("2", 1, 1), ("3", 0, 0), ("other.csv", 1, 1)]);
    assert_eq!(items[0].query, "Clean the data");
    // Files with one name are told apart by their folders; where a task does not, it is credited with all of them.
    put(
        "data/meta/task.json",
        r#"[{"index": "2", "user": "Clean it", "file_paths": ["./data/one/t.csv"]},
            {"index": "3", "user": "Draw it", "file_paths": ["t.csv"]}]"#,
    );
    for name in ["one", "two"] {
        std::fs::create_dir(root.join("data").join(name)).unwrap();
        put(&format!("data/{name}/t.csv"), name);
    }
    let digest = |text: &str| pybench_types::id::Digest::of_bytes(text.as_bytes());
    let items = dataset::items(&root).unwrap();
    assert_eq!(items[0].files, [digest("one")]);
    assert_eq!(items[1].files, [digest("one"), digest("two")]);
    let index = BenchmarkIndex::new(items);
    let hits = |text: &str| index.file(&digest(text)).into_iter().map(|hit| hit.task);
    assert_eq!(hits("one").collect::<Vec<_>>(), ["bench/2", "bench/3"]);
    assert_eq!(hits("two").collect::<Vec<_>>(), ["bench/3"]);
    let list = root.join("lines.jsonl");
    std::fs::write(
        &list,
        "{\"question\": \"q\", \"answer\": [\"a\"]}\n{\"no\": 1}\n",
    )
    .unwrap();
    let error = dataset::items(&list).unwrap_err().to_string();
    assert!(
        error.contains("task 2 has no query: expected one of user, query"),
        "{error}"
    );
    assert!(dataset::items(Path::new("/nowhere")).is_err());
}

#[test]
fn fingerprints_of_a_benchmark_stand_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let query = "List the ten shops with the highest revenue per visitor in the last quarter, and save the list";
    let tasks = serde_json::json!([{ "id": "q7", "query": query }]);
    std::fs::write(path("secret.json"), tasks.to_string()).unwrap();
    let fingerprint = |from: &Path, to: &Path| {
        let mut command = crate::support::pybench("dataset");
        command
            .arg("fingerprint")
            .arg(from)
            .args(["--name", "ours", "--out"]);
        command.arg(to).output().unwrap()
    };
    let output = fingerprint(&path("secret.json"), &path("ours.txt"));
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(path("ours.txt")).unwrap();
    assert!(
        !text.contains("shops") && !text.contains("visitor"),
        "{text}"
    );
    let index = BenchmarkIndex::new(dataset::items(&path("ours.txt")).unwrap());
    let hits = index.query(&format!("Please: {query}. Thanks!"));
    assert!(any(&hits) && hits[0].task == "ours/q7", "{hits:?}");
    std::fs::write(path("bad.txt"), text + "ours\tq8\txyz\n").unwrap();
    let error = dataset::items(&path("bad.txt")).unwrap_err().to_string();
    assert!(error.contains("bad.txt:3: not a fingerprint"), "{error}");
    let error = dataset::items(&path("missing")).unwrap_err().to_string();
    assert!(
        error.contains("missing: there is no such file or folder"),
        "{error}"
    );
}

/// `just fingerprints` would write what is committed.
#[test]
fn the_fingerprints_of_pybench_are_up_to_date() {
    let Some(data) = pybench_testing::benchmark::pybench_data() else {
        return;
    };
    let mut tasks = dataset::items(&data).unwrap();
    for task in &mut tasks {
        task.suite = "pybench".into();
    }
    let file = "datasets/src/decontaminate/pybench.fingerprints";
    let committed = std::fs::read_to_string(Path::new(pybench_testing::ROOT).join(file)).unwrap();
    assert!(
        fingerprints::write(&tasks) == committed,
        "run `just fingerprints`"
    );
}
