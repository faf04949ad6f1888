//! Selects rows of a dataset by a recipe.
//!
//! All rows are read once and summarized. Then the rules are applied in the order of the fields of
//! [`SelectRecipe`]. A rule that has to choose between rows prefers fewer turns, then fewer tokens; ties are broken
//! by the seed. The same rows and the same recipe give the same selection.

use std::collections::{BTreeMap, HashMap, HashSet};

use pybench_types::license::LicenseAllowList;
use pybench_types::task::{Category, Language};
use serde::{Deserialize, Serialize};

use crate::row::{category_name, language_code};
use crate::row_hashes::row_digest;
use crate::text::mix;
use crate::{DatasetError, Row};

/// Which rows to select.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SelectRecipe {
    /// Seed for breaking ties between equally good rows.
    pub seed: u64,
    /// Allowed licenses of input files and of rows of task sets, as SPDX identifiers. A row is selected only if all of
    /// them are allowed. Empty: all licenses are allowed.
    pub license_allow: Vec<String>,
    /// Allowed categories. Empty: all.
    pub categories: Vec<Category>,
    /// Allowed languages. Empty: all.
    pub languages: Vec<Language>,
    /// Minimum number of replies.
    pub least_turns: u32,
    /// Maximum number of replies.
    pub most_turns: u32,
    /// Bounds of the share of attempts that solved the task.
    pub pass_rate: PassRate,
    /// Select this many of the best rows of each task. 0: all.
    pub best_of_task: usize,
    /// Maximum number of rows with the same value of a property.
    pub at_most: Vec<Cap>,
    /// Maximum number of rows in total, spread over the categories as evenly as possible. 0: all.
    pub rows: usize,
}

impl Default for SelectRecipe {
    fn default() -> Self {
        Self {
            seed: 0,
            license_allow: Vec::new(),
            categories: Vec::new(),
            languages: Vec::new(),
            least_turns: 0,
            most_turns: u32::MAX,
            pass_rate: PassRate::default(),
            best_of_task: 0,
            at_most: Vec::new(),
            rows: 0,
        }
    }
}

/// Bounds of the share of attempts that solved a task. `{ above = 0, below = 1 }` selects tasks that are solved
/// sometimes but not always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PassRate {
    /// The share must be greater than this.
    pub above: Option<f64>,
    /// The share must be less than this.
    pub below: Option<f64>,
    /// Minimum number of attempts. If a bound is set, tasks with fewer attempts are left out, because their
    /// difficulty is unknown.
    pub tried: u32,
}

impl PassRate {
    fn takes(&self, tried: u32, solved: u32) -> bool {
        if self.above.is_none() && self.below.is_none() {
            return true;
        }
        let rate = f64::from(solved) / f64::from(tried.max(1));
        let above = self.above.is_none_or(|bound| rate > bound);
        above && self.below.is_none_or(|bound| rate < bound) && tried >= self.tried.max(1)
    }
}

/// Maximum number of rows with the same value of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cap {
    /// The property.
    pub of: GroupBy,
    /// Maximum number of rows for each value.
    pub rows: usize,
}

/// The property by which rows are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    Task,
    Template,
    Keyword,
    Category,
    Language,
    Teacher,
    /// Package or website that an input file is from. A row with several origins counts for each of them.
    Origin,
    /// Type of an input file.
    Kind,
}

impl GroupBy {
    fn values(self, row: &Row) -> Vec<String> {
        let mut values = match self {
            Self::Task => vec![row.task_id.to_string()],
            Self::Template => vec![row.template.clone()],
            Self::Keyword => vec![row.keyword.clone()],
            Self::Category => vec![category_name(row.category).to_owned()],
            Self::Language => vec![language_code(row.language).to_owned()],
            Self::Teacher => vec![row.teacher.clone()],
            Self::Origin => row.files.iter().map(|f| site(&f.origin)).collect(),
            Self::Kind => row.files.iter().map(|f| f.kind.to_owned()).collect(),
        };
        values.sort();
        values.dedup();
        values
    }
}

/// The package of `purl#member`, the host of a URL, or the first folder of a path.
fn site(origin: &str) -> String {
    if let Some((package, _)) = origin.split_once('#') {
        return package.to_owned();
    }
    let rest = origin.split_once("://").map_or(origin, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest).to_owned()
}

/// Summary of a row.
struct Candidate {
    task: u64,
    category: Category,
    turns: u32,
    tokens: u64,
    tie_breaker: u64,
    caps: Vec<Vec<u64>>,
    taken: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SelectionReport {
    /// Rows in the dataset.
    pub seen: usize,
    /// Selected rows.
    pub taken: usize,
    /// Rows left out, by the first rule that excluded them.
    pub left_out: BTreeMap<String, usize>,
    /// Selected rows and all rows, by category, language, keyword, file type and number of turns.
    pub balance: BTreeMap<String, BTreeMap<String, (usize, usize)>>,
    /// Tasks by the share of attempts that solved them, in steps of 0.1.
    pub difficulty: BTreeMap<String, usize>,
}

/// Selects rows: add all rows, then call [`Selector::finish`].
pub struct Selector {
    recipe: SelectRecipe,
    allowed: Option<LicenseAllowList>,
    candidates: Vec<Candidate>,
    balance: Vec<Vec<(String, String)>>,
    report: SelectionReport,
    tasks: HashSet<u64>,
}

impl Selector {
    /// Create a selector.
    ///
    /// # Errors
    /// [`DatasetError::Setting`] if the recipe has invalid bounds.
    pub fn new(recipe: SelectRecipe) -> Result<Self, DatasetError> {
        let PassRate { above, below, .. } = recipe.pass_rate;
        let wrong = |text: &str| Err(DatasetError::Setting(text.to_owned()));
        let inside = |bound: Option<f64>| bound.is_none_or(|b| (0.0..=1.0).contains(&b));
        if !inside(above) || !inside(below) {
            return wrong("pass_rate: above and below must be between 0 and 1");
        }
        if recipe.least_turns > recipe.most_turns {
            return wrong("least_turns must not be greater than most_turns");
        }
        if recipe.at_most.iter().any(|cap| cap.rows == 0) {
            return wrong("at_most: rows must be at least 1");
        }
        let allowed = (!recipe.license_allow.is_empty())
            .then(|| LicenseAllowList::new(&recipe.license_allow));
        Ok(Self {
            recipe,
            allowed,
            candidates: Vec::new(),
            balance: Vec::new(),
            report: SelectionReport::default(),
            tasks: HashSet::new(),
        })
    }

    /// Add the next row.
    pub fn add(&mut self, row: &Row) {
        let digest = row_digest(row);
        let number = |text: &str| crate::text::hash(&[text]);
        let caps = self.recipe.at_most.iter().map(|cap| {
            let values = cap.of.values(row);
            values.iter().map(|value| number(value)).collect()
        });
        let excluded_by = self.excluded_by(row);
        self.report.seen += 1;
        if let Some(rule) = excluded_by {
            *self.report.left_out.entry(rule.to_owned()).or_default() += 1;
        }
        let task = row.task_id.seed();
        if self.tasks.insert(task) {
            let rate = f64::from(row.attempts.solved) / f64::from(row.attempts.tried.max(1));
            let tenth = format!("{:.1}", (rate * 10.0).floor() / 10.0);
            *self.report.difficulty.entry(tenth).or_default() += 1;
        }
        self.candidates.push(Candidate {
            task,
            category: row.category,
            turns: row.turns,
            tokens: row.tokens.prompt + row.tokens.completion,
            tie_breaker: mix(digest.seed() ^ mix(self.recipe.seed)),
            caps: caps.collect(),
            taken: excluded_by.is_none(),
        });
        self.balance.push(balance_groups(row));
    }

    /// The first rule about single rows that excludes the row.
    fn excluded_by(&self, row: &Row) -> Option<&'static str> {
        let recipe = &self.recipe;
        let licensed = self.allowed.as_ref().is_none_or(|allowed| {
            let held_out = row.grading.held_out.iter().map(|f| f.license.as_deref());
            let all = row.files.iter().map(|f| f.license.as_deref());
            let task = row
                .task_license
                .iter()
                .map(|license| Some(license.as_str()));
            let mut all = all.chain(held_out).chain(task);
            all.all(|license| allowed.allows(license))
        });
        let listed = |empty: bool, there: bool| empty || there;
        let turns = recipe.least_turns..=recipe.most_turns;
        let rules = [
            ("license_allow", licensed),
            (
                "categories",
                listed(
                    recipe.categories.is_empty(),
                    recipe.categories.contains(&row.category),
                ),
            ),
            (
                "languages",
                listed(
                    recipe.languages.is_empty(),
                    recipe.languages.contains(&row.language),
                ),
            ),
            ("turns", turns.contains(&row.turns)),
            (
                "pass_rate",
                recipe
                    .pass_rate
                    .takes(row.attempts.tried, row.attempts.solved),
            ),
        ];
        rules
            .iter()
            .find(|(_, holds)| !holds)
            .map(|(rule, _)| *rule)
    }

    /// For each row, in the order they were added, whether it is selected; and the report.
    pub fn finish(mut self) -> (Vec<bool>, SelectionReport) {
        let mut order: Vec<usize> = (0..self.candidates.len()).collect();
        order.sort_by_key(|at| {
            let candidate = &self.candidates[*at];
            (
                candidate.turns,
                candidate.tokens,
                candidate.tie_breaker,
                *at,
            )
        });
        self.apply_best_of_task(&order);
        self.apply_caps(&order);
        self.apply_total(&order);
        let taken: Vec<bool> = self.candidates.iter().map(|row| row.taken).collect();
        self.report.taken = taken.iter().filter(|taken| **taken).count();
        for (groups, taken) in self.balance.iter().zip(&taken) {
            for (group, value) in groups {
                let values = self.report.balance.entry(group.clone()).or_default();
                let (of_taken, of_seen) = values.entry(value.clone()).or_default();
                *of_taken += usize::from(*taken);
                *of_seen += 1;
            }
        }
        (taken, self.report)
    }

    fn leave_out(&mut self, at: usize, rule: &str) {
        self.candidates[at].taken = false;
        *self.report.left_out.entry(rule.to_owned()).or_default() += 1;
    }

    fn apply_best_of_task(&mut self, order: &[usize]) {
        let mut taken: HashMap<u64, usize> = HashMap::new();
        for at in order.iter().copied() {
            if self.recipe.best_of_task == 0 || !self.candidates[at].taken {
                continue;
            }
            let count = taken.entry(self.candidates[at].task).or_default();
            *count += 1;
            if *count > self.recipe.best_of_task {
                self.leave_out(at, "best_of_task");
            }
        }
    }

    fn apply_caps(&mut self, order: &[usize]) {
        for number in 0..self.recipe.at_most.len() {
            let max = self.recipe.at_most[number].rows;
            let mut taken: HashMap<u64, usize> = HashMap::new();
            for at in order.iter().copied().filter(|_| max > 0) {
                if !self.candidates[at].taken {
                    continue;
                }
                let values = self.candidates[at].caps[number].clone();
                let full = |value: &u64| taken.get(value).is_some_and(|count| *count >= max);
                if values.iter().any(full) {
                    self.leave_out(at, "at_most");
                    continue;
                }
                for value in values {
                    *taken.entry(value).or_default() += 1;
                }
            }
        }
    }

    /// Take one row of each category in turn until the limit is reached.
    fn apply_total(&mut self, order: &[usize]) {
        let max = self.recipe.rows;
        if max == 0 {
            return;
        }
        let mut queues: BTreeMap<Category, Vec<usize>> = BTreeMap::new();
        for at in order
            .iter()
            .rev()
            .copied()
            .filter(|at| self.candidates[*at].taken)
        {
            queues
                .entry(self.candidates[at].category)
                .or_default()
                .push(at);
        }
        let mut kept = vec![false; self.candidates.len()];
        let mut count = 0;
        while count < max && !queues.is_empty() {
            queues.retain(|_, queue| {
                if count < max
                    && let Some(at) = queue.pop()
                {
                    kept[at] = true;
                    count += 1;
                }
                !queue.is_empty()
            });
        }
        for at in order.iter().copied() {
            if self.candidates[at].taken && !kept[at] {
                self.leave_out(at, "rows");
            }
        }
    }
}

fn balance_groups(row: &Row) -> Vec<(String, String)> {
    let turns = match row.turns {
        0..=3 => "≤3",
        4..=6 => "4–6",
        7..=9 => "7–9",
        _ => "≥10",
    };
    let mut groups = vec![
        (
            "category".to_owned(),
            category_name(row.category).to_owned(),
        ),
        (
            "language".to_owned(),
            language_code(row.language).to_owned(),
        ),
        ("keyword".to_owned(), row.keyword.clone()),
        ("turns".to_owned(), turns.to_owned()),
    ];
    let kinds = GroupBy::Kind.values(row);
    groups.extend(kinds.into_iter().map(|kind| ("type".to_owned(), kind)));
    groups
}
