//! How varied the tasks of a dataset are: distinct chains, queries and code once names and numbers are removed, the
//! share of near duplicates, and the self-BLEU of the queries. Rows of templates and composed rows are counted apart.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use pybench_types::held_out::{TASK_SET, is_skeleton};
use pybench_types::id::Digest;
use serde::Serialize;

use crate::DatasetError;
use crate::dedup::{Clusters, RowDeduplicator, RowTexts};
use crate::samples::Sample;
use crate::self_bleu::SelfBleu;

/// What stands for a name, a text or a number in a skeleton.
const HOLE: char = '#';

/// The diversity of each group of rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Diversity(pub BTreeMap<TaskGroup, GroupDiversity>);

/// How the task of a row was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskGroup {
    Templates,
    Composed,
    #[serde(rename = "task_sets")]
    TaskSets,
    /// Rows without a template, from elsewhere.
    Other,
}

/// The counts of one group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GroupDiversity {
    pub rows: usize,
    /// Distinct templates or chains of operations.
    pub graphs: usize,
    /// Distinct queries without names, quoted values, paths and numbers.
    pub queries: usize,
    /// Distinct programs (all cells of a row) without texts, numbers and comments.
    pub programs: usize,
    /// Rows that nearly duplicate another one, in query and code, and could be left out.
    pub near_duplicates: usize,
    /// Self-BLEU of up to 1,000 of the queries without names, quoted values, paths and numbers: 1 if all are the same,
    /// near 0 if they share no words (Zhu et al. 2018). None of less than two rows.
    pub self_bleu: Option<f64>,
}

impl TaskGroup {
    fn of(template: Option<&str>) -> Self {
        match template {
            Some(template) if is_skeleton(template) => Self::Composed,
            Some(template) if template.starts_with(TASK_SET) => Self::TaskSets,
            Some(_) => Self::Templates,
            None => Self::Other,
        }
    }

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Templates => "templates",
            Self::Composed => "composed",
            Self::TaskSets => "task sets",
            Self::Other => "other",
        }
    }
}

impl GroupDiversity {
    fn shown_self_bleu(&self) -> String {
        self.self_bleu
            .map_or_else(|| "–".to_owned(), |score| format!("{score:.3}"))
    }
}

/// Collects the skeletons of rows.
#[derive(Default)]
pub struct SkeletonCounter {
    sets: BTreeMap<TaskGroup, SkeletonSets>,
    /// The group of each row.
    groups: Vec<TaskGroup>,
}

/// Skeletons by the first bytes of their digests.
#[derive(Default)]
struct SkeletonSets {
    rows: usize,
    graphs: HashSet<u64>,
    queries: HashSet<u64>,
    programs: HashSet<u64>,
    query_texts: SelfBleu,
}

impl SkeletonCounter {
    /// Adds the next row. `template` is its column of this name, if there is one.
    pub fn add(&mut self, template: Option<&str>, texts: &RowTexts) {
        let group = TaskGroup::of(template);
        self.groups.push(group);
        let seed = |text: &str| Digest::of_bytes(text.as_bytes()).seed();
        let sets = self.sets.entry(group).or_default();
        sets.rows += 1;
        sets.graphs.extend(template.map(seed));
        let query = query_skeleton(texts.query());
        sets.queries.insert(seed(&query));
        sets.query_texts.add(&query);
        sets.programs.insert(seed(&code_skeleton(texts.code())));
    }

    /// The counts. The clusters are those of the same rows, in the same order.
    pub fn finish(self, clusters: &Clusters) -> Diversity {
        let counted = self.sets.iter().map(|(group, sets)| {
            let rows = self.groups.iter().enumerate();
            let superfluous = rows.filter(|(row, of)| *of == group && !clusters.keeps(*row));
            let counts = GroupDiversity {
                rows: sets.rows,
                graphs: sets.graphs.len(),
                queries: sets.queries.len(),
                programs: sets.programs.len(),
                near_duplicates: superfluous.count(),
                self_bleu: sets.query_texts.score(),
            };
            (*group, counts)
        });
        Diversity(counted.collect())
    }
}

/// Counts the conversations of a dataset in any format.
pub struct DiversitySurvey {
    skeletons: SkeletonCounter,
    near: RowDeduplicator,
    _scratch: tempfile::TempDir,
}

impl DiversitySurvey {
    /// # Errors
    /// I/O errors of temporary files.
    pub fn new() -> Result<Self, DatasetError> {
        let scratch = tempfile::tempdir();
        let scratch = scratch.map_err(DatasetError::io("temporary folder".as_ref()))?;
        Ok(Self {
            skeletons: SkeletonCounter::default(),
            near: RowDeduplicator::by_both(scratch.path())?,
            _scratch: scratch,
        })
    }

    /// Adds a conversation.
    ///
    /// # Errors
    /// I/O errors of temporary files.
    pub fn add(&mut self, sample: &Sample) -> Result<(), DatasetError> {
        self.add_texts(sample.metadata("template"), &sample.texts())
    }

    /// Adds a task with a solution. `template` is its template or its chain of operations.
    ///
    /// # Errors
    /// I/O errors of temporary files.
    pub fn add_texts(
        &mut self,
        template: Option<&str>,
        texts: &RowTexts,
    ) -> Result<(), DatasetError> {
        self.skeletons.add(template, texts);
        self.near.add(texts, 0)
    }

    /// # Errors
    /// I/O errors of temporary files.
    pub fn finish(self) -> Result<Diversity, DatasetError> {
        Ok(self.skeletons.finish(&self.near.finish()?))
    }
}

impl Diversity {
    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "| tasks | rows | distinct graphs | distinct queries | distinct programs | near duplicates | self-BLEU |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
        for (group, counts) in &self.0 {
            let share = |count: usize| {
                let share = 100.0 * count as f64 / counts.rows.max(1) as f64;
                format!("{count} ({share:.1} %)")
            };
            text += &format!(
                "| {} | {} | {} | {} | {} | {} | {} |\n",
                group.name(),
                counts.rows,
                share(counts.graphs),
                share(counts.queries),
                share(counts.programs),
                share(counts.near_duplicates),
                counts.shown_self_bleu()
            );
        }
        text
    }
}

impl fmt::Display for Diversity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (group, counts) in &self.0 {
            let share = |count: usize| 100.0 * count as f64 / counts.rows.max(1) as f64;
            writeln!(
                f,
                "{:<22} {} rows; distinct graphs {} ({:.1} %), queries {} ({:.1} %), programs {} ({:.1} %); near duplicates {} ({:.1} %); self-BLEU {}",
                group.name(),
                counts.rows,
                counts.graphs,
                share(counts.graphs),
                counts.queries,
                share(counts.queries),
                counts.programs,
                share(counts.programs),
                counts.near_duplicates,
                share(counts.near_duplicates),
                counts.shown_self_bleu()
            )?;
        }
        Ok(())
    }
}

/// A query without quoted texts, paths and numbers.
pub fn query_skeleton(query: &str) -> String {
    let mut skeleton = String::with_capacity(query.len());
    let mut rest = query;
    while let Some(c) = rest.chars().next() {
        let tail = &rest[c.len_utf8()..];
        let closing = match c {
            '"' => Some('"'),
            '“' => Some('”'),
            '`' => Some('`'),
            _ => None,
        };
        let quoted =
            closing.and_then(|closing| tail.find(closing).map(|end| end + closing.len_utf8()));
        let token = match quoted {
            Some(end) => c.len_utf8() + end,
            None if rest.starts_with("./") => path_end(rest),
            None if c.is_numeric() => number_end(rest),
            None => 0,
        };
        if token == 0 {
            skeleton.push(c);
            rest = tail;
        } else {
            skeleton.push(HOLE);
            rest = &rest[token..];
        }
    }
    skeleton
}

/// The end of a path at the start of a text: its extension, since names may have spaces.
fn path_end(text: &str) -> usize {
    let line = text.lines().next().unwrap_or(text);
    let after_dots = line[2..].find('.').map(|at| at + 3);
    let Some(dot) = after_dots else {
        return line.find(char::is_whitespace).unwrap_or(line.len());
    };
    let extension = line[dot..].find(|c: char| !c.is_ascii_alphanumeric());
    dot + extension.unwrap_or(line.len() - dot)
}

fn number_end(text: &str) -> usize {
    let of_number = |c: char| c.is_numeric() || matches!(c, '.' | ',' | '-' | ':' | '%');
    let end = text.find(|c: char| !of_number(c)).unwrap_or(text.len());
    // A stop or comma after the number is not part of it.
    text[..end].trim_end_matches(['.', ',', ':', '-']).len()
}

/// Python without texts, numbers, comments and blank lines.
pub fn code_skeleton(code: &str) -> String {
    let mut skeleton = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let in_word = skeleton.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let token = match c {
            '"' | '\'' => string_end(rest, c),
            '#' => rest.find('\n').unwrap_or(rest.len()),
            c if c.is_ascii_digit() && !in_word => digits_end(rest),
            _ => 0,
        };
        if token == 0 {
            skeleton.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        if c != '#' {
            skeleton.push(HOLE);
        }
        rest = &rest[token..];
    }
    let lines = skeleton.lines().map(str::trim_end);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

/// The end of a string literal at the start of a text, in bytes.
fn string_end(text: &str, quote: char) -> usize {
    let triple = quote.to_string().repeat(3);
    let (open, close) = match text.starts_with(&triple) {
        true => (3, triple),
        false => (1, quote.to_string()),
    };
    let mut at = open;
    while let Some(c) = text[at..].chars().next() {
        if text[at..].starts_with(&close) {
            return at + close.len();
        }
        let escaped = text[at + c.len_utf8()..].chars().next();
        at += match (c, escaped) {
            ('\\', Some(next)) => 1 + next.len_utf8(),
            _ => c.len_utf8(),
        };
    }
    text.len()
}

fn digits_end(text: &str) -> usize {
    let of_number = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_');
    text.find(|c: char| !of_number(c)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_differ_only_in_their_words() {
        let one = "In ./data/my file.csv, keep the rows with \"cost\" above 12.5, and then take 3. Save ./output/a.csv.";
        let other = "In ./data/x.tsv, keep the rows with \"Größe (m)\" above 7, and then take 10. Save ./output/b.csv.";
        assert_eq!(query_skeleton(one), query_skeleton(other));
        assert_eq!(
            query_skeleton("取“价格”大于 5 的行，标题 `a`"),
            "取#大于 # 的行，标题 #"
        );
        let below = one.replace("above", "below");
        assert_ne!(query_skeleton(one), query_skeleton(&below));
    }

    #[test]
    fn programs_differ_only_in_their_code() {
        let one = "df = pd.read_csv(\"./a.csv\")  # the file\n\nx1 = df['it\\'s'] > 1e3\n";
        let other = "df = pd.read_csv('b')\nx1 = df[\"\"\"c\nd\"\"\"] > 7\n# end";
        assert_eq!(code_skeleton(one), "df = pd.read_csv(#)\nx1 = df[#] > #");
        assert_eq!(code_skeleton(one), code_skeleton(other));
    }

    #[test]
    fn groups_are_counted_apart() {
        let texts = |query: &str, code: &str| RowTexts::new(query, &[code], &[]);
        let mut counter = SkeletonCounter::default();
        counter.add(Some("a>b"), &texts("take 1", "print(1)"));
        counter.add(Some("a>b"), &texts("take 2", "print(2)"));
        counter.add(Some("a>c"), &texts("drop 2", "print(2)"));
        counter.add(Some("sort"), &texts("sort", "sort()"));
        let diversity = counter.finish(&Clusters {
            keeper: vec![0, 0, 2, 3],
        });
        let composed = &diversity.0[&TaskGroup::Composed];
        let counts = GroupDiversity {
            rows: 3,
            graphs: 2,
            queries: 2,
            programs: 1,
            near_duplicates: 1,
            self_bleu: composed.self_bleu,
        };
        assert_eq!(composed, &counts);
        let score = composed.self_bleu.unwrap();
        assert!(score > 0.0 && score < 1.0, "{score}");
        assert_eq!(diversity.0[&TaskGroup::Templates].near_duplicates, 0);
        assert!(
            diversity
                .markdown()
                .contains("| composed | 3 | 2 (66.7 %) |")
        );
    }
}
