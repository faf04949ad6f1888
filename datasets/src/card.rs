//! Renders the dataset card: README.md with the YAML header that the Hub and `load_dataset` read.

mod features;
mod sizes;

use std::collections::BTreeMap;
use std::fmt::Write;

pub(crate) use sizes::{SplitSize, SplitSizes, split_sizes};

use crate::decontaminate::BenchmarkMatches;
use crate::row::{EXPERT_LABEL, WRITER};
use crate::split::Assignment;
use crate::stats::{Stats, TURN_CLASSES};
use crate::tokens::CL100K;
use crate::written::WrittenDataset;
use pybench_types::held_out::{TASK_SET, Unseen};

/// Information for the card that is not in the rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CardInfo {
    /// Title, such as the name of the recipe.
    pub title: String,
    /// The teacher's name, as in the rows.
    pub teacher: String,
    /// The command that makes such a dataset with a model endpoint. May be empty.
    pub endpoint_command: String,
    /// The complete recipe, as TOML.
    pub recipe: String,
    /// The steps from files to accepted rows, with their counts.
    pub funnel: Vec<(String, u64)>,
    /// Number of rejected trajectories by filter. A trajectory can be rejected by several filters.
    pub rejected: Vec<(String, u64)>,
    /// Summary of how the filters handled planted faults. Empty if there were none.
    pub faults: String,
    /// What the comparison with benchmarks found.
    pub benchmarks: BenchmarkMatches,
}

/// Renders the card of a dataset whose shards have these sizes.
pub(crate) fn render(info: &CardInfo, written: &WrittenDataset, sizes: &SplitSizes) -> String {
    let mut all = Stats::default();
    written.splits().for_each(|(_, stats)| all.merge(stats));
    let sections = [
        header(info, written, sizes, &all),
        introduction(info),
        usage(),
        funnel(info),
        statistics(written, &all),
        diversity(written),
        split(written),
        columns(),
        licenses(&all),
        scrubbing(written),
        written.benchmarks.section(),
        proof(written),
        limits(info, &all),
        recipe(info),
    ];
    sections.join("\n")
}

fn header(info: &CardInfo, written: &WrittenDataset, sizes: &SplitSizes, all: &Stats) -> String {
    let list =
        |items: Vec<String>| -> String { items.iter().map(|item| format!("- {item}\n")).collect() };
    let languages = list(all.languages.keys().map(|l| (*l).to_string()).collect());
    let mut text = String::from("---\n");
    // A JSON string is a valid YAML string.
    let _ = writeln!(
        text,
        "pretty_name: {}",
        serde_json::Value::from(info.title.as_str())
    );
    text += &section("license", list(hub_licenses(all)));
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
    for (name, _) in written.splits() {
        let _ = writeln!(text, "  - split: {name}\n    path: data/{name}-*.parquet");
    }
    text += &features::info(written, sizes);
    text + "---\n"
}

fn section(name: &str, items: String) -> String {
    if items.is_empty() {
        String::new()
    } else {
        format!("{name}:\n{items}")
    }
}

fn introduction(info: &CardInfo) -> String {
    let teacher = if info.teacher == EXPERT_LABEL && info.endpoint_command.is_empty() {
        format!("**Teacher: {EXPERT_LABEL}.** The replies were not written by a language model.\n")
    } else if info.teacher == EXPERT_LABEL {
        format!(
            "**Teacher: {EXPERT_LABEL}.** The replies were not written by a language model: thoughts \
             and code come from the reference solutions of the task library. Such rows demonstrate the \
             format and test the pipeline; they have little value for training. To make the dataset with a \
             language model:\n\n```sh\n{}\n```\n",
            info.endpoint_command
        )
    } else {
        format!("**Teacher: `{}`.**\n", info.teacher)
    };
    format!(
        "# {}\n\nTrajectories of an agent that solves tasks on real files with a Python \
         interpreter. Every cell was executed in a sandbox, and every observation is the actual output of \
         the interpreter. Every row passed automatic checks of its results; the agent never saw these \
         checks. The columns are those of PyInstruct (`messages`, `tools`, `tool_choices`), plus provenance \
         for each row.\n\n{teacher}",
        info.title
    )
}

fn usage() -> String {
    "```python\nfrom datasets import load_dataset\n\nrows = load_dataset(\"PATH_OR_REPO\", split=\"train\")\n\
     rows[0][\"messages\"]\n```\n"
        .to_owned()
}

fn funnel(info: &CardInfo) -> String {
    let mut text = String::from("## How it was made\n\n");
    text += "1. Files are crawled and profiled.\n2. Tasks are written for these files.\n3. The teacher \
             solves each task in a sandbox, turn by turn.\n4. The grader runs the checks of each task in a \
             new sandbox.\n5. Accepted trajectories become rows.\n\n";
    text += &table(
        ["step", "count"],
        info.funnel.iter().map(|(k, v)| (k.clone(), *v)),
    );
    if info.rejected.iter().any(|(_, count)| *count > 0) {
        text += "\nRejected trajectories by filter (one trajectory can fail several filters):\n\n";
        text += &table(
            ["filter", "rejected"],
            info.rejected.iter().map(|(k, v)| (k.clone(), *v)),
        );
    }
    if !info.faults.is_empty() {
        let _ = write!(text, "\n{}\n", info.faults);
    }
    text
}

fn statistics(written: &WrittenDataset, all: &Stats) -> String {
    // Always with a column for the test split.
    let others = written.others.iter();
    let others = others.map(|(name, stats)| (name.as_str(), stats));
    let splits = [("train", &written.train), ("test", &written.test)];
    let splits: Vec<(&str, &Stats)> = splits.into_iter().chain(others).collect();
    let names: Vec<&str> = splits.iter().map(|(name, _)| *name).collect();
    let mut text = format!(
        "## Statistics\n\n| | {} |\n| --- |{}\n",
        names.join(" | "),
        " ---: |".repeat(names.len())
    );
    let mut line = |name: &str, value: &dyn Fn(&Stats) -> String| {
        let values: Vec<String> = splits.iter().map(|(_, stats)| value(stats)).collect();
        let _ = writeln!(text, "| {name} | {} |", values.join(" | "));
    };
    line("rows", &|stats| stats.rows.to_string());
    for (index, class) in TURN_CLASSES.iter().enumerate() {
        line(&format!("turns {class}"), &|stats| {
            stats.turns[index].to_string()
        });
    }
    let mut mean = |name: &str, sum: fn(&Stats) -> u64| {
        line(&format!("mean {name}"), &|stats| {
            format!("{:.1}", sum(stats) as f64 / stats.rows.max(1) as f64)
        });
    };
    mean("turns", |stats| stats.replies);
    mean("bytes per conversation", |stats| stats.bytes);
    mean("prompt tokens", |stats| stats.prompt_tokens);
    mean("completion tokens", |stats| stats.completion_tokens);
    text += "\n";
    text += &token_counting(all);
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

/// How the tokens were counted.
fn token_counting(all: &Stats) -> String {
    let mut text = String::new();
    for (name, rows) in &all.counted_by {
        text += &match *name {
            "endpoint" => format!("The tokens of {rows} rows were counted by the endpoint.\n"),
            CL100K => format!(
                "The tokens of {rows} rows are counted by the tokenizer {CL100K}, on the contents of messages. Each call \
                 reads all messages before its reply.\n"
            ),
            _ => format!(
                "The tokens of {rows} rows are estimated without a tokenizer, as a quarter of the UTF-8 \
                 bytes of each message, rounded up. Each call reads all messages before its reply.\n"
            ),
        };
    }
    text
}

fn diversity(written: &WrittenDataset) -> String {
    if written.diversity.0.is_empty() {
        return String::new();
    }
    format!(
        "## Diversity\n\nDistinct templates or chains of operations, distinct queries without names, quoted values, paths and \
         numbers, and distinct programs without texts and numbers, in all rows before they were split. A near duplicate has \
         nearly the same query and code as another row. Self-BLEU (Zhu et al. 2018) is the mean BLEU of up to 1,000 of these \
         queries against all others of them: 1 if all are the same.\n\n{}",
        written.diversity.markdown()
    )
}

fn split(written: &WrittenDataset) -> String {
    let split = &written.split;
    let mut text = String::from("## Split\n\n");
    if split.assignments.is_empty() {
        return text + "The split is that of the source dataset.\n";
    }
    let _ = writeln!(
        text,
        "Rows that share an input file, by digest or by origin, are always in the same split, and so are rows \
         with parts of one file. Rows without files are grouped by template. There are {} groups (connected components) of rows; the \
         largest has {} rows. {:.1} % of the rows are in the test split.",
        split.components,
        split.largest_component,
        100.0 * split.test_fraction(),
    );
    let _ = writeln!(
        text,
        "\n{} rows in the test split are near duplicates of rows in the train split: nearly the same query and \
         code, or the same picture in another format.",
        match split.near_duplicates {
            0 => "No".to_owned(),
            count => count.to_string(),
        }
    );
    if !split.held_out.is_empty() {
        let names: Vec<_> = split
            .held_out
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let _ = writeln!(
            text,
            "\nThese templates are not used in the train split (`held_out_template`): {}.",
            names.join(", "),
        );
    }
    let dropped = split.count(Assignment::Dropped);
    if dropped > 0 {
        let _ = writeln!(
            text,
            "\n{dropped} rows with a held-out template, operation, pair of operations or wording were dropped because \
             they share a file with a row in the train split.",
        );
    }
    text + &unseen(written)
}

/// What the rows of the test split have that no training row has.
fn unseen(written: &WrittenDataset) -> String {
    if written.test.unseen.is_empty() {
        return String::new();
    }
    let counts = Unseen::ALL.into_iter().filter_map(|unseen| {
        let rows = written.test.unseen.get(unseen.name())?;
        Some((unseen.name().to_owned(), *rows as u64))
    });
    format!(
        "\nThe files of the test split are all unseen. The column `unseen` says what else training rows lack:\n\n{}",
        table(["unseen", "rows"], counts)
    )
}

fn columns() -> String {
    let columns = [
        (
            "messages",
            "the conversation, including the system prompt and the interpreter's observations",
        ),
        (
            "tools, tool_choices",
            "as in PyInstruct: null (or tool definitions, if the format has tool calls) and `auto`",
        ),
        (
            "task_id, trajectory_id",
            "BLAKE3 of the task's content; BLAKE3 of task, teacher, sampling, format and sample number",
        ),
        (
            "category, subcategory, keyword, template",
            "topic of the task; the template it was written from, `writer/KEYWORD` if a model wrote it, or \
             `task_set/SET/ROW`",
        ),
        (
            "held_out_template",
            "whether the template is excluded from the train split",
        ),
        (
            "operations, pairs, wordings",
            "of a composed task: its operations in order, those that follow each other, and how its query is worded",
        ),
        (
            "difficulty",
            "of a composed task: from 1 (few operations) to 5 (many operations, several or messy files, imprecise wordings); \
             0 for others",
        ),
        (
            "renamed",
            "of a composed task: whether names and values of its files are invented",
        ),
        (
            "unseen",
            "in the test split, what training rows lack: `operations`, `pairs` (both operations are seen, not one after \
             the other), `template`, `wordings`, or only the `files`",
        ),
        (
            "language, query",
            "language of the query; the user's request",
        ),
        (
            "task_license, task_source",
            "of a row of a task set: license of the question and the answer, and where the set comes from",
        ),
        (
            "files",
            "input files: name, BLAKE3, license as found, origin (`purl#member`, URL or path), type",
        ),
        (
            "teacher, sampling, seed",
            "model that wrote the replies; sampling parameters; random seed of the session",
        ),
        (
            "provenance",
            "`human-edited` if a person edited the trajectory, whose checks passed; null in other rows",
        ),
        (
            "environment, interpreter",
            "digest of the Python environment; limits of its sessions, as JSON",
        ),
        (
            "format, attempts, turns, tokens",
            "message format; graded (`tried`) and successful (`solved`) attempts at the task; number of \
             replies; tokens of all calls, and how they were counted",
        ),
        (
            "outputs",
            "files that the code wrote: path, BLAKE3 of the bytes, BLAKE3 of the content without timestamps \
             and random names, size",
        ),
        (
            "checks, checker",
            "the checks and their outcomes; digest of the checker",
        ),
        (
            "grading",
            "input of the checker, as JSON: requested outputs, held-out files, reference code, checks",
        ),
        (
            "proof",
            "BLAKE3 of query, prompts, teacher, sampling, environment, files, outputs, grading, checks, \
             each cell, each observation and the whole row; number of scrubbed findings",
        ),
    ];
    let mut text = String::from("## Columns\n\n| column | content |\n| --- | --- |\n");
    for (name, content) in columns {
        let names: Vec<_> = name.split(", ").map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "| {} | {content} |", names.join(", "));
    }
    text
}

/// Sources of task sets that the card lists.
const SHOWN_SOURCES: usize = 20;

fn licenses(all: &Stats) -> String {
    if all.licenses.is_empty() && all.task_licenses.is_empty() {
        return "## Licenses\n\nNo task in this dataset uses third-party files.\n".to_owned();
    }
    let mut text = String::from(
        "## Licenses\n\nText and code written by pybench are licensed under Apache-2.0.",
    );
    let counted = |counts: &BTreeMap<String, usize>| -> Vec<(String, u64)> {
        let counts = counts.iter();
        counts
            .map(|(name, count)| (table_cell(name), *count as u64))
            .collect()
    };
    if !all.licenses.is_empty() {
        text += " Observations quote the input files, which keep their own licenses. These were found at the origin of the \
                 files:\n\n";
        text += &table(
            ["license as found", "files"],
            counted(&all.licenses).into_iter(),
        );
    }
    if !all.task_licenses.is_empty() {
        text += "\n\nQuestions and answers of task sets keep the licenses of the sets (`task_license`, `task_source`):\n\n";
        text += &table(
            ["license of the task set", "rows"],
            counted(&all.task_licenses).into_iter(),
        );
        let mut sources = counted(&all.task_sources);
        sources.sort_by_key(|(_, rows)| std::cmp::Reverse(*rows));
        let more = sources.len().saturating_sub(SHOWN_SOURCES);
        sources.truncate(SHOWN_SOURCES);
        text += "\n";
        text += &table(["source of the task set", "rows"], sources.into_iter());
        if more > 0 {
            let _ = writeln!(
                text,
                "\n{more} more sources are in the column `task_source`."
            );
        }
    }
    text
}

fn scrubbing(written: &WrittenDataset) -> String {
    let scrub = &written.scrub;
    let mut text = String::from(
        "## Scrubbing\n\nAll texts of all rows, and the input files included in this dataset, were searched \
         for keys, tokens, passwords, email addresses, user names and host paths. ",
    );
    match scrub.found.total() {
        0 => text += "Nothing was found in the rows.\n",
        total => {
            let _ = writeln!(
                text,
                "{total} findings in {} rows were replaced by placeholders:\n",
                scrub.rows
            );
            let name = |kind: &crate::scrub::SecretKind| kind.placeholder().to_owned();
            let counts = scrub
                .found
                .0
                .iter()
                .map(|(kind, n)| (name(kind), *n as u64));
            text += &table(["placeholder", "findings"], counts);
        }
    }
    if !scrub.withheld.is_empty() {
        let count = scrub.withheld.len();
        let _ = writeln!(
            text,
            "\n{count} input files contain such data, or could not be searched for it, and are not included in the \
             dataset; the rows state their origins."
        );
    }
    text
}

/// Markers around the result of the last verification in a card.
pub const STAMP: [&str; 2] = ["<!-- verified -->\n", "<!-- /verified -->\n"];

fn proof(written: &WrittenDataset) -> String {
    let mut text = format!(
        "## Proof\n\nDigest of all rows: `{}`. Every row contains hashes of its parts (`proof`). \
         `pybench verify FOLDER` re-executes the cells of the rows in their environment, compares observations \
         and output files, and runs the checks again.\n",
        written.digest
    );
    if written.files.0 > 0 {
        let (count, bytes) = written.files;
        let _ = writeln!(
            text,
            "\nInput files with a known license are in `files/`, named by their BLAKE3 ({count} files, \
             {:.1} MB).",
            bytes as f64 / 1e6
        );
    }
    text + "\n" + STAMP[0] + "Not verified yet.\n" + STAMP[1]
}

/// The card with a new verification result. `None` if the card has no markers for it.
pub fn stamped(card: &str, stamp: &str) -> Option<String> {
    let (before, rest) = card.split_once(STAMP[0])?;
    let (_, after) = rest.split_once(STAMP[1])?;
    Some([before, STAMP[0], stamp, STAMP[1], after].concat())
}

/// The card with this section in place of the one with the same heading, or at the end if it has none.
pub fn with_section(card: &str, section: &str) -> String {
    let heading = section.lines().next().unwrap_or_default();
    let Some(before) = card.find(&format!("\n{heading}\n")) else {
        return format!("{}\n\n{section}", card.trim_end());
    };
    let start = before + 1;
    let next = card[start..].find("\n## ").map(|at| &card[start + at..]);
    [&card[..start], section, next.unwrap_or_default()].concat()
}

/// Sections that a copy without some rows cannot compute again, beside the recipe.
const ORIGIN: [&str; 4] = ["How it was made", "Diversity", "Split", "Scrubbing"];

/// The card of a copy with the sections of its source on how the rows were made, measured, split and scrubbed, where the
/// source has them. Their numbers are those of the source.
pub fn with_origin(card: &str, source: &str) -> String {
    let sections = ORIGIN.iter().filter_map(|name| named_section(source, name));
    let sections = sections.chain(recipe_section(source));
    sections.fold(card.to_owned(), |card, section| {
        with_section(&card, section)
    })
}

/// A section of a card with its heading.
fn named_section<'a>(card: &'a str, name: &str) -> Option<&'a str> {
    let section = &card[card.find(&format!("\n## {name}\n"))? + 1..];
    let end = section.find("\n## ").unwrap_or(section.len());
    Some(&section[..end])
}

/// The recipe of a card with its heading. It ends with its fence, since a recipe may have lines that look like headings.
fn recipe_section(card: &str) -> Option<&str> {
    const START: &str = "## Recipe\n\n";
    let section = &card[card.find(&format!("\n{START}"))? + 1..];
    let fenced = section.strip_prefix(START)?;
    let fence = &fenced[..fenced.len() - fenced.trim_start_matches('`').len()];
    let closing = format!("\n{fence}\n");
    let end = fenced.find(&closing).filter(|_| !fence.is_empty())?;
    Some(&section[..START.len() + end + closing.len()])
}

pub fn title(card: &str) -> Option<&str> {
    card.lines().find_map(|line| line.strip_prefix("# "))
}

/// The digest of all rows in a card.
pub fn digest(card: &str) -> Option<&str> {
    let (_, rest) = card.split_once("Digest of all rows: `")?;
    Some(rest.split_once('`')?.0)
}

fn limits(info: &CardInfo, all: &Stats) -> String {
    let mut text = String::from("## Known limits\n\n");
    let mut point = |limit: &str| {
        let _ = writeln!(text, "- {limit}");
    };
    if info.teacher == EXPERT_LABEL {
        point("The replies are scripted, with few phrasings per template. They are not diverse.");
    }
    let written = |template: &String| template.starts_with(WRITER);
    let from_set = |template: &String| template.starts_with(TASK_SET);
    if !all
        .templates
        .keys()
        .all(|template| written(template) || from_set(template))
    {
        point("Tasks are written from templates, so queries of the same template are similar.");
    }
    if all.templates.keys().any(written) {
        point(
            "Tasks are written by models and filtered by models and rules, without human review.",
        );
    }
    if all.templates.keys().any(from_set) {
        point("The answers of task sets are those of their authors and were not reviewed.");
    }
    point("Checks cover output files and stated values, not the text of the model's thoughts.");
    point("Licenses come from package metadata or from the recipe and were not reviewed.");
    let largest = all.templates.iter().max_by_key(|(_, rows)| **rows);
    if let Some((template, rows)) = largest {
        let share = 100.0 * *rows as f64 / all.rows.max(1) as f64;
        point(&format!(
            "The most frequent template, `{template}`, accounts for {share:.1} % of the rows."
        ));
    }
    text
}

fn recipe(info: &CardInfo) -> String {
    // The fence must be longer than any sequence of backticks in the recipe.
    let longest = info
        .recipe
        .split(|c| c != '`')
        .map(str::len)
        .max()
        .unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!(
        "## Recipe\n\n{fence}toml\n{}\n{fence}\n",
        info.recipe.trim_end()
    )
}

fn table(head: [&str; 2], rows: impl Iterator<Item = (String, u64)>) -> String {
    let mut text = format!("| {} | {} |\n| --- | ---: |\n", head[0], head[1]);
    for (name, count) in rows {
        let _ = writeln!(text, "| {name} | {count} |");
    }
    text
}

/// Escape untrusted text for a table cell: one line, without markup.
fn table_cell(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(200)
        .collect();
    line.replace('|', "\\|").replace('<', "&lt;")
}

/// The licenses as the Hub's identifiers. Unknown licenses become `other`.
fn hub_licenses(all: &Stats) -> Vec<String> {
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
    for license in all.licenses.keys().chain(all.task_licenses.keys()) {
        let name = license.to_lowercase();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_says_how_the_rows_of_its_source_were_made() {
        let source = "# a\n\n## How it was made\n\n60 accepted\n\n## Statistics\n\n60 rows\n\n\
                      ## Split\n\n9 groups\n\n\
                      ## Recipe\n\n```toml\nname = 'a'\n\n## goals\naccept = 60\n```\n\n## Additional files\n\nnone\n";
        let copy = "# a\n\n## How it was made\n\n59 kept\n\n## Statistics\n\n59 rows\n\n\
                    ## Split\n\nof the source\n\n\
                    ## Recipe\n\n```toml\n# From a\n```\n";
        let expected = "# a\n\n## How it was made\n\n60 accepted\n\n## Statistics\n\n59 rows\n\n\
                        ## Split\n\n9 groups\n\n\
                        ## Recipe\n\n```toml\nname = 'a'\n\n## goals\naccept = 60\n```\n";
        assert_eq!(with_origin(copy, source), expected);
        assert_eq!(with_origin(copy, "# a\n"), copy);
        assert_eq!(recipe_section("\n## Recipe\n\nnone\n"), None);
    }
}
