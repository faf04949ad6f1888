//! Which rows of a dataset are taken, by a recipe.
//!
//! A first reading of all rows keeps a line of each; then the rules apply in the order in which
//! [`SelectRecipe`] has its fields. Where a rule has to choose among rows, better ones come first (fewer
//! turns, then fewer tokens) and of equals the order is drawn from the seed, so that the same rows and
//! the same recipe give the same choice.

use std::collections::{BTreeMap, HashMap, HashSet};

use pybench::task::{Category, Language};
use serde::{Deserialize, Serialize};

use crate::licence::Allowed;
use crate::proof::row_digest;
use crate::row::{category_name, language_code};
use crate::text::mix;
use crate::{DatasetError, Row};

/// What is to be taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SelectRecipe {
    /// Draws the order of rows that are equally good.
    pub seed: u64,
    /// Licences that all files of a row must have, by SPDX; empty allows all.
    pub licence_allow: Vec<String>,
    /// Categories; empty takes all.
    pub categories: Vec<Category>,
    /// Languages; empty takes all.
    pub languages: Vec<Language>,
    /// Fewest replies.
    pub least_turns: u32,
    /// Most replies.
    pub most_turns: u32,
    /// Tasks by the share of their samples that solved them.
    pub pass_rate: PassRate,
    /// Best rows of each task that are taken; 0 takes all.
    pub best_of_task: usize,
    /// Most rows with the same value.
    pub at_most: Vec<Cap>,
    /// Most rows altogether, as evenly over categories as they allow; 0 takes all.
    pub rows: usize,
}

impl Default for SelectRecipe {
    fn default() -> Self {
        Self {
            seed: 0,
            licence_allow: Vec::new(),
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

/// Bounds of the share of samples that solved a task. `{ above = 0, below = 1 }` takes tasks that are
/// solved sometimes but not always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PassRate {
    /// The share is greater.
    pub above: Option<f64>,
    /// The share is less.
    pub below: Option<f64>,
    /// Tasks tried less often say nothing of their difficulty, and are left out where a bound is set.
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

/// Most rows that have the same value of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cap {
    /// Of what.
    pub of: Source,
    /// How many.
    pub rows: usize,
}

/// What rows are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Source {
    Task,
    Template,
    Keyword,
    Category,
    Language,
    Teacher,
    /// Package or site that an input file is from; a row with several counts for each.
    Origin,
    /// Type of an input file.
    Kind,
}

impl Source {
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

/// The package of a `purl#member`, the host of a URL, the first folder of a path.
fn site(origin: &str) -> String {
    if let Some((package, _)) = origin.split_once('#') {
        return package.to_owned();
    }
    let rest = origin.split_once("://").map_or(origin, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest).to_owned()
}

/// What is remembered of a row.
struct Line {
    task: u64,
    category: Category,
    turns: u32,
    tokens: u64,
    draw: u64,
    caps: Vec<Vec<u64>>,
    taken: bool,
}

/// Rows seen, and why the others were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Chosen {
    /// Rows seen.
    pub seen: usize,
    /// Rows taken.
    pub taken: usize,
    /// Rows left out by the first rule that did.
    pub left_out: BTreeMap<String, usize>,
    /// Rows taken and seen by category, language, keyword, type of file and turns: how balanced they are.
    pub balance: BTreeMap<String, BTreeMap<String, (usize, usize)>>,
    /// Tasks by the share of their samples that solved them, in tenths.
    pub difficulty: BTreeMap<String, usize>,
}

/// Chooses rows.
pub struct Selector {
    recipe: SelectRecipe,
    allowed: Option<Allowed>,
    lines: Vec<Line>,
    balance: Vec<Vec<(String, String)>>,
    report: Chosen,
    tasks: HashSet<u64>,
}

impl Selector {
    /// By that recipe.
    ///
    /// # Errors
    /// [`DatasetError::Setting`] for bounds that leave nothing.
    pub fn new(recipe: SelectRecipe) -> Result<Self, DatasetError> {
        let PassRate { above, below, .. } = recipe.pass_rate;
        let wrong = |text: &str| Err(DatasetError::Setting(text.to_owned()));
        let inside = |bound: Option<f64>| bound.is_none_or(|b| (0.0..=1.0).contains(&b));
        if !inside(above) || !inside(below) {
            return wrong("pass_rate: bounds are shares from 0 to 1");
        }
        if recipe.least_turns > recipe.most_turns {
            return wrong("least_turns is more than most_turns");
        }
        if recipe.at_most.iter().any(|cap| cap.rows == 0) {
            return wrong("at_most: rows must be at least 1");
        }
        let allowed =
            (!recipe.licence_allow.is_empty()).then(|| Allowed::new(&recipe.licence_allow));
        Ok(Self {
            recipe,
            allowed,
            lines: Vec::new(),
            balance: Vec::new(),
            report: Chosen::default(),
            tasks: HashSet::new(),
        })
    }

    /// Look at the next row.
    pub fn see(&mut self, row: &Row) {
        let digest = row_digest(row);
        let number = |text: &str| crate::text::hash(&[text]);
        let caps = self.recipe.at_most.iter().map(|cap| {
            let values = cap.of.values(row);
            values.iter().map(|value| number(value)).collect()
        });
        let out = self.leaves_out(row);
        self.report.seen += 1;
        if let Some(rule) = out {
            *self.report.left_out.entry(rule.to_owned()).or_default() += 1;
        }
        let task = row.task_id.seed();
        if self.tasks.insert(task) {
            let rate = f64::from(row.attempts.solved) / f64::from(row.attempts.tried.max(1));
            let tenth = format!("{:.1}", (rate * 10.0).floor() / 10.0);
            *self.report.difficulty.entry(tenth).or_default() += 1;
        }
        self.lines.push(Line {
            task,
            category: row.category,
            turns: row.turns,
            tokens: row.tokens.prompt + row.tokens.completion,
            draw: mix(digest.seed() ^ mix(self.recipe.seed)),
            caps: caps.collect(),
            taken: out.is_none(),
        });
        self.balance.push(groups(row));
    }

    /// The first rule about single rows that leaves it out.
    fn leaves_out(&self, row: &Row) -> Option<&'static str> {
        let recipe = &self.recipe;
        let licensed = self.allowed.as_ref().is_none_or(|allowed| {
            let held_out = row.grading.held_out.iter().map(|f| f.licence.as_deref());
            let all = row.files.iter().map(|f| f.licence.as_deref());
            all.chain(held_out).all(|licence| allowed.allows(licence))
        });
        let listed = |empty: bool, there: bool| empty || there;
        let turns = recipe.least_turns..=recipe.most_turns;
        let rules = [
            ("licence_allow", licensed),
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

    /// Whether each of the rows seen is taken, in their order; and the report.
    pub fn finish(mut self) -> (Vec<bool>, Chosen) {
        let mut order: Vec<usize> = (0..self.lines.len()).collect();
        order.sort_by_key(|at| {
            let line = &self.lines[*at];
            (line.turns, line.tokens, line.draw, *at)
        });
        self.best_of_task(&order);
        self.caps(&order);
        self.total(&order);
        let taken: Vec<bool> = self.lines.iter().map(|line| line.taken).collect();
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
        self.lines[at].taken = false;
        *self.report.left_out.entry(rule.to_owned()).or_default() += 1;
    }

    fn best_of_task(&mut self, order: &[usize]) {
        let mut taken: HashMap<u64, usize> = HashMap::new();
        for at in order.iter().copied() {
            if self.recipe.best_of_task == 0 || !self.lines[at].taken {
                continue;
            }
            let count = taken.entry(self.lines[at].task).or_default();
            *count += 1;
            if *count > self.recipe.best_of_task {
                self.leave_out(at, "best_of_task");
            }
        }
    }

    fn caps(&mut self, order: &[usize]) {
        for number in 0..self.recipe.at_most.len() {
            let most = self.recipe.at_most[number].rows;
            let mut taken: HashMap<u64, usize> = HashMap::new();
            for at in order.iter().copied().filter(|_| most > 0) {
                if !self.lines[at].taken {
                    continue;
                }
                let values = self.lines[at].caps[number].clone();
                let full = |value: &u64| taken.get(value).is_some_and(|count| *count >= most);
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

    /// One of each category in turn, until there are enough.
    fn total(&mut self, order: &[usize]) {
        let most = self.recipe.rows;
        if most == 0 {
            return;
        }
        let mut queues: BTreeMap<Category, Vec<usize>> = BTreeMap::new();
        for at in order
            .iter()
            .rev()
            .copied()
            .filter(|at| self.lines[*at].taken)
        {
            queues.entry(self.lines[at].category).or_default().push(at);
        }
        let mut kept = vec![false; self.lines.len()];
        let mut count = 0;
        while count < most && !queues.is_empty() {
            queues.retain(|_, queue| {
                if count < most
                    && let Some(at) = queue.pop()
                {
                    kept[at] = true;
                    count += 1;
                }
                !queue.is_empty()
            });
        }
        for at in order.iter().copied() {
            if self.lines[at].taken && !kept[at] {
                self.leave_out(at, "rows");
            }
        }
    }
}

fn groups(row: &Row) -> Vec<(String, String)> {
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
    let kinds = Source::Kind.values(row);
    groups.extend(kinds.into_iter().map(|kind| ("type".to_owned(), kind)));
    groups
}
