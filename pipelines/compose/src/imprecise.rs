//! Says a task less precisely where only one thing can be meant: a column by its words, a file without its extension, a
//! synonym. What could mean two things keeps its exact wording.

use std::collections::BTreeSet;

use pybench_types::task::{Language, MAX_QUERY, Task, TaskOrigin};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::argument::Argument;
use crate::content::Medium;
use crate::frame::Frame;
use crate::graph::Graph;
use crate::inputs;
use crate::plan::Plan;

/// Kinds of imprecise wordings: columns, files, synonyms, and typos ([`file_typo`](crate::file_typo)).
pub(crate) const KINDS: usize = 4;
/// How the wordings of a task name these kinds; language and number follow.
pub(crate) const NAME: &str = "imprecise";
/// Share of the columns with an imprecise name that get it.
const COLUMNS: f64 = 0.7;
/// Share of the tasks in which a file is named without its extension.
const FILES: f64 = 0.5;
/// Share of the tasks that use synonyms.
const SYNONYMS: f64 = 0.5;
/// Shortest imprecise name, in characters.
const MIN_NAME: usize = 3;

/// What tasks on tables say, and what else it is called.
const SYNONYMS_EN: [(&str, &str); 2] = [
    ("the largest", "the biggest"),
    ("the mean of", "the average of"),
];
/// As [`SYNONYMS_EN`].
const SYNONYMS_ZH: [(&str, &str); 1] = [("平均值", "均值")];

/// The same composed task, said less precisely; `None` if nothing can be said so without another reading. `bytes` are
/// those of its files.
pub fn imprecise(task: &Task, bytes: &[Vec<u8>], seed: u64) -> Option<Task> {
    let graph = Plan::of(task).ok()?.graph;
    let start = inputs::start(&task.files, bytes)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut query = task.query.clone();
    let changes = [
        with_columns(&mut query, task.language, &graph, &start, &mut rng),
        with_files(&mut query, task, &mut rng),
        start.medium() == Medium::Table && with_synonyms(&mut query, task.language, &mut rng),
    ];
    let language = match task.language {
        Language::En => "en",
        Language::Zh => "zh",
    };
    let mut said = task.clone();
    let TaskOrigin::Composed { wordings, .. } = &mut said.origin else {
        return None;
    };
    for (kind, _) in changes.iter().enumerate().filter(|(_, made)| **made) {
        wordings.push(format!("{NAME}/{language}/{kind}"));
    }
    said.query = query;
    said.id = said.compute_id();
    let fits = said.query.chars().count() <= MAX_QUERY;
    (fits && said.query != task.query).then_some(said)
}

/// Names columns of the files by their words. Returns whether it did so.
fn with_columns(
    query: &mut String,
    language: Language,
    graph: &Graph,
    start: &Frame,
    rng: &mut ChaCha8Rng,
) -> bool {
    let Some(names) = columns_on_the_way(graph, start) else {
        return false;
    };
    let said_otherwise = values(graph);
    let before = query.clone();
    for name in columns(start) {
        let exact = quoted(&name, language);
        if said_otherwise.contains(&name) || !before.contains(&exact) {
            continue;
        }
        let loose = by_words(&name, &names, rng).filter(|loose| !said_otherwise.contains(loose));
        if let Some(loose) = loose
            && rng.random_bool(COLUMNS)
        {
            *query = query.replace(&exact, &quoted(&loose, language));
        }
    }
    *query != before
}

/// A name as a query quotes it.
fn quoted(name: &str, language: Language) -> String {
    match language {
        Language::En => format!("\"{name}\""),
        Language::Zh => format!("“{name}”"),
    }
}

/// The columns of the files.
fn columns(start: &Frame) -> BTreeSet<String> {
    let others = start.others.iter().map(|other| other.frame.as_ref());
    let frames = std::iter::once(start).chain(others);
    let names = frames.flat_map(|frame| frame.data.get_column_names_owned());
    names.map(|name| name.to_string()).collect()
}

/// The columns of all tables from the files to the result; `None` if a step fails.
fn columns_on_the_way(graph: &Graph, start: &Frame) -> Option<BTreeSet<String>> {
    let mut names = columns(start);
    let mut frame = start.clone();
    for step in &graph.0 {
        frame = step.apply(&frame).ok()?;
        names.extend(columns(&frame));
    }
    Some(names)
}

/// What the query quotes besides columns of the files: values, and the names of new columns.
fn values(graph: &Graph) -> BTreeSet<String> {
    let arguments = graph.0.iter().flat_map(|step| step.arguments.0.values());
    let values = arguments.flat_map(|argument| match argument {
        Argument::Text(text) | Argument::New(text) => vec![text.clone()],
        Argument::Texts(texts) => texts.clone(),
        _ => Vec::new(),
    });
    values.collect()
}

/// The words of a name, perhaps without its last one of three or more; `None` if another column could be meant, or if these
/// words are the name.
fn by_words(name: &str, names: &BTreeSet<String>, rng: &mut ChaCha8Rng) -> Option<String> {
    let all = words(name);
    let fewer = all.len() >= 3 && rng.random_bool(0.5);
    let some = &all[..all.len() - usize::from(fewer)];
    [some, &all[..]].into_iter().find_map(|words| {
        let loose = words.join(" ");
        let is_name = loose != name && loose.chars().count() >= MIN_NAME;
        (is_name && can_only_mean(words, name, names)).then_some(loose)
    })
}

/// Whether no other name has all of these words, written together or apart.
fn can_only_mean(said: &[String], name: &str, names: &BTreeSet<String>) -> bool {
    let mut others = names.iter().filter(|other| *other != name);
    !others.any(|other| {
        let other = words(other).concat();
        said.iter().all(|word| other.contains(word.as_str()))
    })
}

/// The words of a name in lower case: `unitPrice`, `unit_price` and `Unit price` are `unit price`.
fn words(name: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut was_lower = false;
    for c in name.chars() {
        let begins = !c.is_alphanumeric() || (c.is_uppercase() && was_lower);
        if begins && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// The name of a file without folder and extension.
fn stem(name: &str) -> &str {
    let name = name.rsplit('/').next().unwrap_or(name);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// Names files without folder and extension, if only one can be meant. Returns whether it did so.
fn with_files(query: &mut String, task: &Task, rng: &mut ChaCha8Rng) -> bool {
    if !rng.random_bool(FILES) {
        return false;
    }
    let stems: Vec<&str> = task.files.iter().map(|file| stem(&file.name)).collect();
    let before = query.clone();
    for (at, file) in task.files.iter().enumerate() {
        let said = stems[at].to_lowercase();
        let others = stems.iter().enumerate().filter(|(other, _)| *other != at);
        let mut others = others.map(|(_, other)| other.to_lowercase());
        if said.chars().count() >= MIN_NAME && !others.any(|other| other.contains(&said)) {
            let loose = quoted(stems[at], task.language);
            *query = query.replace(&inputs::path(file), &loose);
        }
    }
    *query != before
}

/// Uses synonyms outside of quotes. Returns whether it did so.
fn with_synonyms(query: &mut String, language: Language, rng: &mut ChaCha8Rng) -> bool {
    if !rng.random_bool(SYNONYMS) {
        return false;
    }
    let synonyms: &[(&str, &str)] = match language {
        Language::En => &SYNONYMS_EN,
        Language::Zh => &SYNONYMS_ZH,
    };
    let before = query.clone();
    for (exact, other) in synonyms {
        *query = replaced_outside_quotes(query, exact, other);
    }
    *query != before
}

fn replaced_outside_quotes(text: &str, from: &str, to: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut is_inside = false;
    for part in text.split_inclusive(['"', '“', '”']) {
        match is_inside {
            true => replaced.push_str(part),
            false => replaced.push_str(&part.replace(from, to)),
        }
        is_inside = match part.chars().last() {
            Some('"') => !is_inside,
            last => last == Some('“'),
        };
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_name_is_said_by_its_words_unless_they_fit_another_one() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut loose = |name: &str, others: &[&str]| {
            let mut all = names(others);
            all.insert(name.to_owned());
            by_words(name, &all, &mut rng)
        };
        assert_eq!(loose("unitPrice", &["tax"]).as_deref(), Some("unit price"));
        assert_eq!(loose("Net_Sum", &["Net"]).as_deref(), Some("net sum"));
        for others in [
            ["unit-price"],
            ["UNIT PRICE eur"],
            ["price_unit"],
            ["unitprice"],
        ] {
            assert_eq!(loose("unit_price", &others), None, "{others:?}");
        }
        assert_eq!(loose("price", &["tax"]), None, "these words are the name");
        assert_eq!(loose("_x_", &["tax"]), None, "one letter says nothing");
        let either: BTreeSet<_> = (0..20).map(|_| loose("net_sum_eur", &["tax"])).collect();
        let (whole, part) = (Some("net sum eur".to_owned()), Some("net sum".to_owned()));
        assert_eq!(either, BTreeSet::from([whole.clone(), part]));
        let both = (0..20).map(|_| loose("net_sum_eur", &["net_sum_usd"]));
        assert_eq!(both.collect::<BTreeSet<_>>(), BTreeSet::from([whole]));
    }

    #[test]
    fn what_is_quoted_keeps_its_words() {
        let said = "Report the largest \"the largest\" of “the largest” in the largest group.";
        assert_eq!(
            replaced_outside_quotes(said, "the largest", "the biggest"),
            "Report the biggest \"the largest\" of “the largest” in the biggest group."
        );
    }
}
