//! The dataset card: README.md with the YAML header that the Hub and `load_dataset` read.

mod features;

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::dataset::Written;
use crate::row::{EXPERT_LABEL, WRITER};
use crate::split::Place;
use crate::stats::{Stats, TURN_CLASSES};

/// What a card says that the rows do not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// Title, for instance the name of the recipe.
    pub title: String,
    /// The teacher as rows name it.
    pub teacher: String,
    /// The command that makes such a dataset with a real endpoint.
    pub endpoint_command: String,
    /// The recipe in full, as TOML.
    pub recipe: String,
    /// Steps from files to accepted rows, each with its count.
    pub funnel: Vec<(String, u64)>,
    /// Filters, and trajectories that each of them rejected (one may be rejected by several).
    pub rejected: Vec<(String, u64)>,
    /// What became of faults put in on purpose, in words; empty where none were.
    pub faults: String,
}

/// The card of a dataset.
pub fn render(about: &About, written: &Written) -> String {
    let mut all = written.train.clone();
    all.merge(&written.test);
    let sections = [
        header(about, written, &all),
        introduction(about),
        use_it(),
        funnel(about),
        statistics(written, &all),
        split(written),
        columns(),
        licences(&all),
        scrubbing(written),
        proof(written),
        limits(about, &all),
        recipe(about),
    ];
    sections.join("\n")
}

fn header(about: &About, written: &Written, all: &Stats) -> String {
    let list =
        |items: Vec<String>| -> String { items.iter().map(|item| format!("- {item}\n")).collect() };
    let languages = list(all.languages.keys().map(|l| (*l).to_string()).collect());
    let mut text = String::from("---\n");
    // JSON strings are YAML strings.
    let _ = writeln!(
        text,
        "pretty_name: {}",
        serde_json::Value::from(about.title.as_str())
    );
    text += &section("license", list(hub_licences(all)));
    text += &section("language", languages);
    text += &section("task_categories", list(vec!["text-generation".into()]));
    text += &section(
        "size_categories",
        list(vec![size_category(all.rows).into()]),
    );
    let tags = [
        "agent",
        "code",
        "code-interpreter",
        "synthetic",
        "tool-use",
        "trajectories",
    ];
    text += &section("tags", list(tags.map(String::from).to_vec()));
    text += "configs:\n- config_name: default\n  data_files:\n";
    text += "  - split: train\n    path: data/train-*.parquet\n";
    if written.test.rows > 0 {
        text += "  - split: test\n    path: data/test-*.parquet\n";
    }
    text += &features::info(written);
    text + "---\n"
}

fn section(name: &str, items: String) -> String {
    if items.is_empty() {
        String::new()
    } else {
        format!("{name}:\n{items}")
    }
}

fn introduction(about: &About) -> String {
    let teacher = if about.teacher == EXPERT_LABEL && about.endpoint_command.is_empty() {
        format!("**Teacher: {EXPERT_LABEL}.** The replies were not written by a language model.\n")
    } else if about.teacher == EXPERT_LABEL {
        format!(
            "**Teacher: {EXPERT_LABEL}.** The replies were not written by a language model: thoughts \
             and code come from the task library's own solutions. Such rows show the format and \
             test the pipeline; they teach little. With a real endpoint:\n\n```sh\n{}\n```\n",
            about.endpoint_command
        )
    } else {
        format!("**Teacher: `{}`.**\n", about.teacher)
    };
    format!(
        "# {}\n\nTrajectories of an agent that solves tasks on real files with a Python \
         interpreter. Every cell was executed in a sandbox, every observation is what the \
         interpreter answered, and every row passed checks that run apart from the agent and that \
         a wrong answer would have failed. The schema is PyInstruct's (`messages`, `tools`, \
         `tool_choices`) with provenance beside it.\n\n{teacher}",
        about.title
    )
}

fn use_it() -> String {
    "```python\nfrom datasets import load_dataset\n\nrows = load_dataset(\"PATH_OR_REPO\", split=\"train\")\n\
     rows[0][\"messages\"]\n```\n"
        .to_owned()
}

fn funnel(about: &About) -> String {
    let mut text = String::from("## How it was made\n\n");
    text += "Files are crawled and profiled; the task library writes tasks for them; the teacher \
             solves each in a sandbox, turn by turn; the grader runs the checks of each task in a \
             fresh sandbox of its own; accepted trajectories become rows.\n\n";
    text += &table(
        ["step", "count"],
        about.funnel.iter().map(|(k, v)| (k.clone(), *v)),
    );
    if about.rejected.iter().any(|(_, count)| *count > 0) {
        text += "\nRejected, by filter (a trajectory may fail several):\n\n";
        text += &table(
            ["filter", "rejected"],
            about.rejected.iter().map(|(k, v)| (k.clone(), *v)),
        );
    }
    if !about.faults.is_empty() {
        let _ = write!(text, "\n{}\n", about.faults);
    }
    text
}

fn statistics(written: &Written, all: &Stats) -> String {
    let mut text = String::from("## Statistics\n\n| | train | test |\n| --- | ---: | ---: |\n");
    let (train, test) = (&written.train, &written.test);
    let mut line = |name: &str, a: String, b: String| {
        let _ = writeln!(text, "| {name} | {a} | {b} |");
    };
    let mean = |sum: u64, stats: &Stats| format!("{:.1}", sum as f64 / stats.rows.max(1) as f64);
    line("rows", train.rows.to_string(), test.rows.to_string());
    for (index, class) in TURN_CLASSES.iter().enumerate() {
        let name = format!("turns {class}");
        line(
            &name,
            train.turns[index].to_string(),
            test.turns[index].to_string(),
        );
    }
    line(
        "turns, mean",
        mean(train.replies, train),
        mean(test.replies, test),
    );
    line(
        "bytes of a conversation, mean",
        mean(train.bytes, train),
        mean(test.bytes, test),
    );
    line(
        "tokens read, mean",
        mean(train.prompt_tokens, train),
        mean(test.prompt_tokens, test),
    );
    line(
        "tokens written, mean",
        mean(train.completion_tokens, train),
        mean(test.completion_tokens, test),
    );
    text += "\n";
    text += &tokens_rule(all);
    let groups = [
        ("category", &all.categories),
        ("language", &all.languages),
        ("input files", &all.kinds),
    ];
    for (name, counts) in groups {
        text += "\n";
        text += &table(
            [name, "rows"],
            counts.iter().map(|(k, v)| ((*k).to_owned(), *v as u64)),
        );
    }
    text
}

/// Who counted the tokens; nothing is said where there is nothing to count.
fn tokens_rule(all: &Stats) -> String {
    let mut text = String::new();
    for (name, rows) in &all.counted_by {
        text += &match *name {
            "endpoint" => format!("Tokens of {rows} rows are the endpoint's own usage.\n"),
            _ => format!(
                "Tokens of {rows} rows are an estimate that no tokenizer made: a quarter of the UTF-8 \
                 bytes of each message, rounded up; a call reads all messages before its reply.\n"
            ),
        };
    }
    text
}

fn split(written: &Written) -> String {
    let split = &written.split;
    let mut text = String::from("## Split\n\n");
    if split.places.is_empty() {
        return text + "As in the dataset that the rows were taken from.\n";
    }
    let _ = writeln!(
        text,
        "Rows that share an input file (by digest or by origin) stand in one split, as whole \
         connected components; rows without files stand together by template. {} components, the \
         largest of {} rows; {:.1} % of the rows are in the test split.",
        split.components,
        split.largest_component,
        100.0 * split.test_fraction(),
    );
    if !split.held_out.is_empty() {
        let names: Vec<_> = split
            .held_out
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let _ = writeln!(
            text,
            "\nTemplates held out of training altogether (`held_out_template`): {}. {} rows of these \
             were dropped because they share a file with a row in training.",
            names.join(", "),
            split.count(Place::Dropped),
        );
    }
    text
}

fn columns() -> String {
    let columns = [
        (
            "messages",
            "the conversation; observations come back as user messages",
        ),
        (
            "tools, tool_choices",
            "as PyInstruct has them: null and `auto`",
        ),
        (
            "task_id, trajectory_id",
            "BLAKE3 of the task's content; of task, teacher, sampling, format and sample number",
        ),
        (
            "category, subcategory, keyword, template",
            "what the task is about, and who wrote it",
        ),
        (
            "held_out_template",
            "whether the template is absent from training",
        ),
        ("language, query", "of the query; what the user asks"),
        (
            "files",
            "input files: name, BLAKE3, licence as found, origin (`purl#member`, URL or path), type",
        ),
        (
            "teacher, sampling, seed",
            "who wrote the replies and how; seed of the session's random state",
        ),
        (
            "environment, interpreter",
            "digest of the Python environment; bounds of its sessions, as JSON",
        ),
        (
            "format, attempts, turns, tokens",
            "message format; samples of the task that were graded and that solved it; replies; tokens of \
             all calls and who counted them",
        ),
        (
            "outputs",
            "files the code left: BLAKE3 of the bytes, and of the content without times of creation; size",
        ),
        (
            "checks, checker",
            "what was checked and what became of it; digest of the checker",
        ),
        (
            "grading",
            "what the checker was given, as JSON: outputs asked for, held-out files, reference code, checks",
        ),
        (
            "proof",
            "BLAKE3 of query, prompts, teacher, sampling, environment, files, outputs, grading, checks, \
             of each cell and of all that it showed, and of the whole row; places that were scrubbed",
        ),
    ];
    let mut text = String::from("## Columns\n\n| column | content |\n| --- | --- |\n");
    for (name, content) in columns {
        let names: Vec<_> = name.split(", ").map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "| {} | {content} |", names.join(", "));
    }
    text
}

fn licences(all: &Stats) -> String {
    if all.licences.is_empty() {
        return "## Licences\n\nNo task of this dataset uses a file of others.\n".to_owned();
    }
    let mut text = String::from(
        "## Licences\n\nTexts and code of pybench are Apache-2.0. Observations quote the input files, \
         which keep their licences, as found at their origin:\n\n",
    );
    let counts = all.licences.iter().map(|(k, v)| (cell(k), *v as u64));
    text += &table(["licence as found", "files"], counts);
    text
}

fn scrubbing(written: &Written) -> String {
    let scrub = &written.scrub;
    let mut text = String::from(
        "## Scrubbing\n\nKeys, tokens, passwords, mail addresses, user names and host paths were looked \
         for in every text of every row, and in the input files that this dataset carries. ",
    );
    match scrub.found.total() {
        0 => text += "Nothing was found in the rows.\n",
        total => {
            let _ = writeln!(
                text,
                "{total} finds in {} rows were replaced by words in brackets:\n",
                scrub.rows
            );
            let name = |kind: &crate::scrub::Kind| kind.placeholder().to_owned();
            let counts = scrub
                .found
                .0
                .iter()
                .map(|(kind, n)| (name(kind), *n as u64));
            text += &table(["in place of", "finds"], counts);
        }
    }
    if !scrub.withheld.is_empty() {
        let count = scrub.withheld.len();
        let _ = writeln!(
            text,
            "\n{count} input files hold such things themselves and are not carried; their origins are in \
             the rows."
        );
    }
    text
}

/// Where the stamp of a verification stands in a card.
pub const STAMP: [&str; 2] = ["<!-- verified -->\n", "<!-- /verified -->\n"];

fn proof(written: &Written) -> String {
    let mut text = format!(
        "## Proof\n\nDigest of all rows: `{}`. Every row carries the hashes of what made it (`proof`). \
         `just verify FOLDER` runs the cells of the rows again in their environment, compares what they \
         show and leave, and runs the checks again.\n",
        written.digest
    );
    if written.files.0 > 0 {
        let (count, bytes) = written.files;
        let _ = writeln!(
            text,
            "\nThe input files lie in `files/` under their BLAKE3 ({count} files, {:.1} MB), as far as they \
             state a licence.",
            bytes as f64 / 1e6
        );
    }
    text + "\n" + STAMP[0] + "Not verified yet.\n" + STAMP[1]
}

/// The card with another stamp; `None` where it has no place for one.
pub fn stamped(card: &str, stamp: &str) -> Option<String> {
    let (before, rest) = card.split_once(STAMP[0])?;
    let (_, after) = rest.split_once(STAMP[1])?;
    Some([before, STAMP[0], stamp, STAMP[1], after].concat())
}

/// The title of a card.
pub fn title(card: &str) -> Option<&str> {
    card.lines().find_map(|line| line.strip_prefix("# "))
}

/// The digest of all rows that a card names.
pub fn digest(card: &str) -> Option<&str> {
    let (_, rest) = card.split_once("Digest of all rows: `")?;
    Some(rest.split_once('`')?.0)
}

fn limits(about: &About, all: &Stats) -> String {
    let mut text = String::from("## Known limits\n\n");
    let mut point = |words: &str| {
        let _ = writeln!(text, "- {words}");
    };
    if about.teacher == EXPERT_LABEL {
        point(
            "Replies are scripted, with few phrasings per template: neither diverse nor a model's.",
        );
    }
    let written = |template: &String| template.starts_with(WRITER);
    if !all.templates.keys().all(written) {
        point("Tasks are written from templates, so queries of one template resemble each other.");
    }
    if all.templates.keys().any(written) {
        point("Tasks are written by models; nobody but models and rules need have looked at them.");
    }
    point("Checks decide on outputs and stated values; the prose of a thought is not judged.");
    point(
        "Licences are as found in package metadata or given by the recipe; nobody reviewed them.",
    );
    let largest = all.templates.iter().max_by_key(|(_, rows)| **rows);
    if let Some((template, rows)) = largest {
        let share = 100.0 * *rows as f64 / all.rows.max(1) as f64;
        point(&format!(
            "The most frequent template, `{template}`, has {share:.1} % of the rows."
        ));
    }
    text
}

fn recipe(about: &About) -> String {
    // A fence longer than any run of backticks in the recipe.
    let longest = about
        .recipe
        .split(|c| c != '`')
        .map(str::len)
        .max()
        .unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!(
        "## Recipe\n\n{fence}toml\n{}\n{fence}\n",
        about.recipe.trim_end()
    )
}

fn table(head: [&str; 2], rows: impl Iterator<Item = (String, u64)>) -> String {
    let mut text = format!("| {} | {} |\n| --- | ---: |\n", head[0], head[1]);
    for (name, count) in rows {
        let _ = writeln!(text, "| {name} | {count} |");
    }
    text
}

/// Text from outside as a cell of a table: one line, no markup of tables.
fn cell(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(200)
        .collect();
    line.replace('|', "\\|").replace('<', "&lt;")
}

/// The licences as identifiers of the Hub; `other` stands for all that it does not know.
fn hub_licences(all: &Stats) -> Vec<String> {
    const KNOWN: [&str; 17] = [
        "afl-3.0",
        "apache-2.0",
        "artistic-2.0",
        "bsd-2-clause",
        "bsd-3-clause",
        "bsl-1.0",
        "cc-by-4.0",
        "cc-by-sa-4.0",
        "cc0-1.0",
        "isc",
        "mit",
        "mpl-2.0",
        "ncsa",
        "odbl",
        "unlicense",
        "wtfpl",
        "zlib",
    ];
    let mut names: BTreeMap<String, ()> = BTreeMap::from([("apache-2.0".to_owned(), ())]);
    for licence in all.licences.keys() {
        let name = licence.to_lowercase();
        let known = KNOWN.contains(&name.as_str());
        names.insert(if known { name } else { "other".to_owned() }, ());
    }
    names.into_keys().collect()
}

fn size_category(rows: usize) -> &'static str {
    match rows {
        0..1_000 => "n<1K",
        1_000..10_000 => "1K<n<10K",
        10_000..100_000 => "10K<n<100K",
        100_000..1_000_000 => "100K<n<1M",
        _ => "1M<n<10M",
    }
}
