//! Splits rows into train and test without leakage.
//!
//! Rows that share an input file (by digest or by origin) always go to the same split. Rows are the nodes of a
//! graph and shared files are its edges; each connected component is assigned as a whole. Rows without files are
//! grouped by template. This rule takes precedence over all others.
//!
//! Near duplicates are edges too, unless the joined component would have more than half of the rows: many similar tasks
//! on many files could otherwise become one component, which leaves no test split. [`Split::near_duplicates`] counts
//! the test rows that have a near duplicate in the training split all the same.
//!
//! Crawled files that are meant for the test split ([`EvaluationFiles`]) keep their names in composed tasks. Components that
//! consist mostly of rows over such files are moved to the test split before others.
//!
//! Some templates are held out: none of their rows is used for training. Moving every component that contains
//! such a template into the test split could move most of the data. The split therefore prefers templates whose
//! components contain few other rows, and moves components only while the test split stays within its share.
//! Rows of held-out templates in the remaining components are dropped and counted. So are rows of composed tasks with an
//! operation, a pair of operations or a wording that the recipe holds out.

mod by_share;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use pybench_types::held_out::{EvaluationFiles, TestShares, Unseen, is_unique};
use pybench_types::id::Digest;

/// How the key of an origin begins; other keys are digests.
pub(crate) const ORIGIN: &str = "origin:";

/// The properties of a row that the split depends on.
#[derive(Clone, Copy, Debug)]
pub struct SplitRow<'a> {
    pub template: &'a str,
    /// Held-out templates are chosen from different categories if that costs nothing.
    pub category: &'a str,
    /// Keys of its files. Rows with a common key go to the same split. If empty, the row is grouped with the
    /// rows of its template.
    pub keys: &'a [String],
    /// Keys of what it nearly duplicates. Rows with a common key are near duplicates.
    pub near_keys: &'a [String],
    /// What of it is held out: such a row is not used for training.
    pub held_out: Option<Unseen>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitSettings {
    /// Target share of rows in the test split, from 0 to below 1. With 0 there is no test split and no held-out
    /// template.
    pub test_fraction: f64,
    /// Number of templates to hold out.
    pub held_out_templates: usize,
    /// Seed for the random choices.
    pub seed: u64,
    /// Shares of the test split by what training rows lack of its rows, instead of `test_fraction`.
    pub shares: Option<TestShares>,
}

/// The split that a row is assigned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Assignment {
    Train,
    Test,
    /// In no split: its template or another part of it is held out, but its component is in the training split.
    Dropped,
}

/// The assignment of rows to splits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Split {
    /// The assignment of each row, in the order of the rows.
    pub assignments: Vec<Assignment>,
    /// Held-out templates, sorted.
    pub held_out: Vec<String>,
    /// Number of connected components.
    pub components: usize,
    /// Rows in the largest component.
    pub largest_component: usize,
    /// Test rows with a near duplicate in the training split.
    pub near_duplicates: usize,
}

impl SplitSettings {
    /// The files that are meant for the test split, as the recipe's `evaluation_files`.
    fn evaluation_files(&self) -> EvaluationFiles {
        let shares = self.shares.map(|shares| shares.sum());
        EvaluationFiles {
            seed: self.seed,
            share: shares.unwrap_or(self.test_fraction),
        }
    }
}

impl SplitRow<'_> {
    /// Whether all of its files are meant for the test split.
    fn is_for_evaluation(&self, files: &EvaluationFiles) -> bool {
        let origins = self.keys.iter().filter_map(|key| key.strip_prefix(ORIGIN));
        let mut origins = origins.peekable();
        origins.peek().is_some() && origins.all(|origin| files.contains(origin))
    }
}

impl Split {
    /// Number of rows with this assignment.
    pub fn count(&self, assignment: Assignment) -> usize {
        self.assignments
            .iter()
            .filter(|p| **p == assignment)
            .count()
    }

    /// Share of the rows that are in the test split, without dropped rows.
    pub fn test_fraction(&self) -> f64 {
        let (train, test) = (self.count(Assignment::Train), self.count(Assignment::Test));
        test as f64 / (train + test).max(1) as f64
    }
}

/// Split rows. The result is deterministic.
pub fn split(rows: &[SplitRow<'_>], settings: &SplitSettings) -> Split {
    let groups = Groups::of(rows);
    let target = (settings.test_fraction * rows.len() as f64).round() as usize;
    let mut builder = SplitBuilder::new(rows, &groups, target, settings);
    if let Some(shares) = &settings.shares {
        by_share::fill(&mut builder, shares, settings.held_out_templates);
    } else if target > 0 {
        builder.hold_out(settings.held_out_templates);
        builder.pull_held_out_parts();
        builder.fill();
    }
    let assignments = builder.assignments();
    Split {
        near_duplicates: near_duplicates(rows, &assignments),
        assignments,
        held_out: builder.held_out.iter().map(|t| (*t).to_owned()).collect(),
        components: groups.members.len(),
        largest_component: groups.members.iter().map(Vec::len).max().unwrap_or(0),
    }
}

/// Number of test rows with a near duplicate in the training split.
fn near_duplicates(rows: &[SplitRow<'_>], assignments: &[Assignment]) -> usize {
    let keys_in = |wanted| {
        let rows = rows.iter().zip(assignments);
        rows.filter_map(move |(row, assignment)| (*assignment == wanted).then_some(row.near_keys))
    };
    let train: HashSet<&String> = keys_in(Assignment::Train).flatten().collect();
    keys_in(Assignment::Test)
        .filter(|keys| keys.iter().any(|key| train.contains(key)))
        .count()
}

/// Connected components of rows.
struct Groups {
    /// Component of each row.
    of_row: Vec<usize>,
    /// Rows of each component.
    members: Vec<Vec<usize>>,
}

impl Groups {
    fn of(rows: &[SplitRow<'_>]) -> Self {
        let mut sets = DisjointSets::new(rows.len());
        let mut first_with: HashMap<(&str, bool), usize> = HashMap::new();
        for (index, row) in rows.iter().enumerate() {
            let by_file = row.keys.iter().map(|key| (key.as_str(), true));
            let by_template = row.keys.is_empty().then_some((row.template, false));
            for key in by_file.chain(by_template) {
                sets.union(index, *first_with.entry(key).or_insert(index));
            }
        }
        let limit = rows.len().div_ceil(2);
        let mut first_near: HashMap<&str, usize> = HashMap::new();
        for (index, row) in rows.iter().enumerate() {
            for key in row.near_keys {
                let first = *first_near.entry(key).or_insert(index);
                if sets.size(index) + sets.size(first) <= limit {
                    sets.union(index, first);
                }
            }
        }
        let mut ids = HashMap::new();
        let mut members: Vec<Vec<usize>> = Vec::new();
        let of_row = (0..rows.len()).map(|row| {
            let id = *ids.entry(sets.find(row)).or_insert(members.len());
            if id == members.len() {
                members.push(Vec::new());
            }
            members[id].push(row);
            id
        });
        Self {
            of_row: of_row.collect(),
            members,
        }
    }
}

/// Union-find with path halving.
struct DisjointSets {
    parents: Vec<usize>,
    /// Valid for the roots.
    sizes: Vec<usize>,
}

impl DisjointSets {
    fn new(count: usize) -> Self {
        Self {
            parents: (0..count).collect(),
            sizes: vec![1; count],
        }
    }

    fn find(&mut self, mut node: usize) -> usize {
        let parents = &mut self.parents;
        while parents[node] != node {
            parents[node] = parents[parents[node]];
            node = parents[node];
        }
        node
    }

    fn size(&mut self, node: usize) -> usize {
        let root = self.find(node);
        self.sizes[root]
    }

    fn union(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        if a != b {
            self.parents[a.max(b)] = a.min(b);
            self.sizes[a.min(b)] += self.sizes[a.max(b)];
        }
    }
}

/// Chooses the components of the test split and the held-out templates.
struct SplitBuilder<'a> {
    rows: &'a [SplitRow<'a>],
    groups: &'a Groups,
    target: usize,
    seed: u64,
    /// Rows of each template.
    templates: BTreeMap<&'a str, Vec<usize>>,
    /// Components in the test split.
    test: BTreeSet<usize>,
    test_rows: usize,
    held_out: BTreeSet<&'a str>,
    /// Components of which at least half of the rows are over files for evaluation.
    for_evaluation: BTreeSet<usize>,
}

/// The cost of holding out a template. The derived order prefers the lowest cost.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct HoldOutPlan<'a> {
    /// Rows of the template that would be dropped.
    dropped: usize,
    /// Whether the template has no files and another such template is already held out.
    fileless_again: bool,
    /// Whether a template of its category is already held out.
    same_category: bool,
    /// Rows of other templates that would move to the test split.
    other_rows: usize,
    /// Seeded random tie-breaker.
    random: Digest,
    template: &'a str,
    /// Components to move to the test split.
    pull: Vec<usize>,
}

impl<'a> SplitBuilder<'a> {
    fn new(
        rows: &'a [SplitRow<'a>],
        groups: &'a Groups,
        target: usize,
        settings: &SplitSettings,
    ) -> Self {
        let files = settings.evaluation_files();
        let is_for_evaluation = |group: &usize| {
            let members = &groups.members[*group];
            let of_group = members.iter().map(|row| &rows[*row]);
            let count = of_group.filter(|row| row.is_for_evaluation(&files));
            2 * count.count() >= members.len()
        };
        let all = 0..groups.members.len();
        let for_evaluation = all.filter(is_for_evaluation).collect();
        let mut templates: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            templates.entry(row.template).or_default().push(index);
        }
        Self {
            rows,
            groups,
            target,
            seed: settings.seed,
            templates,
            test: BTreeSet::new(),
            test_rows: 0,
            held_out: BTreeSet::new(),
            for_evaluation,
        }
    }

    fn random(&self, name: &str) -> Digest {
        Digest::of_json(&(self.seed, name))
    }

    fn size(&self, group: usize) -> usize {
        self.groups.members[group].len()
    }

    fn room(&self) -> usize {
        self.target.saturating_sub(self.test_rows)
    }

    fn pull(&mut self, group: usize) {
        if self.test.insert(group) {
            self.test_rows += self.size(group);
        }
    }

    /// Hold out `count` templates, or fewer if nothing would be left to train on.
    fn hold_out(&mut self, count: usize) {
        for left in (1..=count).rev() {
            let Some(plan) = self.choose(left) else { break };
            for group in &plan.pull {
                self.pull(*group);
            }
            self.held_out.insert(plan.template);
        }
        // A component that contains only held-out rows cannot leak.
        for group in 0..self.groups.members.len() {
            let mut rows = self.groups.members[group].iter();
            if rows.all(|row| self.held_out.contains(self.rows[*row].template)) {
                self.pull(group);
            }
        }
    }

    /// The next template to hold out, with `left` templates still to choose. In order of preference: a template
    /// that fits into an equal share of the remaining room (a second one without files only if none with files
    /// fits); one that fits into all of the room; one that drops rows; one that exceeds the target, up to twice.
    fn choose(&self, left: usize) -> Option<HoldOutPlan<'a>> {
        let (room, share) = (self.room(), self.room() / left);
        let lossless = |allowance| self.best(allowance).filter(|plan| plan.dropped == 0);
        let varied = |allowance| lossless(allowance).filter(|plan| !plan.fileless_again);
        let last = if left == 1 { room } else { share };
        varied(share)
            .or_else(|| varied(last))
            .or_else(|| lossless(share))
            .or_else(|| lossless(room))
            .or_else(|| self.best(room))
            .or_else(|| self.best(room + self.target))
    }

    fn best(&self, allowance: usize) -> Option<HoldOutPlan<'a>> {
        // Each composed task and each row of a task set has a template of its own, which holds out nothing.
        let all = self.templates.keys().copied();
        let some = all.clone().any(|template| !is_unique(template));
        let candidates = all.filter(|template| !some || !is_unique(template));
        candidates
            .filter(|template| !self.held_out.contains(template))
            .filter_map(|template| self.plan(template, allowance))
            .min()
    }

    /// The cost of holding out this template with `allowance` rows of room. `None` if none of its components
    /// fits.
    fn plan(&self, template: &'a str, allowance: usize) -> Option<HoldOutPlan<'a>> {
        let mut own: BTreeMap<usize, usize> = BTreeMap::new();
        for row in &self.templates[template] {
            *own.entry(self.groups.of_row[*row]).or_default() += 1;
        }
        let mut groups: Vec<_> = own.iter().map(|(group, own)| (*group, *own)).collect();
        groups.sort_by_key(|(group, own)| (self.size(*group) - own, *group));
        let (mut pull, mut pulled, mut other_rows, mut dropped) = (Vec::new(), 0, 0, 0);
        let mut kept = 0;
        for (group, own) in groups {
            let size = self.size(group);
            if self.test.contains(&group) {
                kept += own;
            } else if pulled + size <= allowance {
                pulled += size;
                other_rows += size - own;
                kept += own;
                pull.push(group);
            } else {
                dropped += own;
            }
        }
        let first = |template: &str| &self.rows[self.templates[template][0]];
        let (fileless, category) = (first(template).keys.is_empty(), first(template).category);
        let mut held_out = self.held_out.iter().map(|held| first(held));
        (kept > 0).then(|| HoldOutPlan {
            dropped,
            fileless_again: fileless && held_out.clone().any(|row| row.keys.is_empty()),
            same_category: held_out.any(|row| row.category == category),
            other_rows,
            random: self.random(template),
            template,
            pull,
        })
    }

    /// Moves components with held-out parts to the test split, those with the fewest other rows first, while there is
    /// room.
    fn pull_held_out_parts(&mut self) {
        let count = |group: &usize| {
            let rows = self.groups.members[*group].iter();
            rows.filter(|row| self.rows[**row].held_out.is_some())
                .count()
        };
        let groups = 0..self.groups.members.len();
        let mut groups: Vec<usize> = groups
            .filter(|group| !self.test.contains(group) && count(group) > 0)
            .collect();
        groups.sort_by_cached_key(|group| {
            let others = self.size(*group) - count(group);
            (others, self.random(&self.group_name(*group)))
        });
        for group in groups {
            if self.size(group) <= self.room() {
                self.pull(group);
            }
        }
    }

    /// Fill the test split up to its target with components that contain no held-out template, those over files for
    /// evaluation first.
    fn fill(&mut self) {
        let free = |group: &usize| {
            let rows = &self.groups.members[*group];
            !rows
                .iter()
                .any(|row| self.held_out.contains(self.rows[*row].template))
        };
        let mut groups: Vec<usize> = (0..self.groups.members.len())
            .filter(|group| !self.test.contains(group))
            .filter(free)
            .collect();
        groups.sort_by_cached_key(|group| {
            let other = !self.for_evaluation.contains(group);
            (other, self.random(&self.group_name(*group)))
        });
        let mut left = Vec::new();
        for group in groups {
            if self.size(group) <= self.room() {
                self.pull(group);
            } else {
                left.push(group);
            }
        }
        // Add one more component if that gets closer to the target.
        let smallest = left.into_iter().min_by_key(|group| self.size(*group));
        if let Some(group) = smallest
            && self.size(group) < 2 * self.room()
        {
            self.pull(group);
        }
    }

    /// A name for the component that does not depend on the order of rows.
    fn group_name(&self, group: usize) -> String {
        let rows = self.groups.members[group]
            .iter()
            .map(|row| &self.rows[*row]);
        let names = rows.map(|row| row.keys.iter().min().map_or(row.template, String::as_str));
        names.min().unwrap_or_default().to_owned()
    }

    fn assignments(&self) -> Vec<Assignment> {
        let assignment = |(row, group): (&SplitRow<'_>, &usize)| {
            if self.test.contains(group) {
                Assignment::Test
            } else if self.held_out.contains(row.template) || row.held_out.is_some() {
                Assignment::Dropped
            } else {
                Assignment::Train
            }
        };
        self.rows
            .iter()
            .zip(&self.groups.of_row)
            .map(assignment)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Template and files of a row. The category follows from the template.
    type Plain = (u8, Vec<u16>);

    /// Rows of every seventh template have a held-out part if their files are even.
    fn held_out_part(template: u8, files: &[u16]) -> Option<Unseen> {
        let held = template % 7 == 3 && files.iter().all(|file| file.is_multiple_of(2));
        (held && !files.is_empty()).then_some(Unseen::Pairs)
    }

    fn run(plain: &[Plain], settings: &SplitSettings) -> Split {
        run_with(plain, settings, |_, _| None)
    }

    fn run_with(
        plain: &[Plain],
        settings: &SplitSettings,
        held_out_part: fn(u8, &[u16]) -> Option<Unseen>,
    ) -> Split {
        let owned: Vec<_> = plain
            .iter()
            .map(|(t, files)| {
                let keys: Vec<String> = files.iter().map(|f| format!("blake3:{f}")).collect();
                let held_out = held_out_part(*t, files);
                (format!("t{t}"), format!("c{}", t % 5), keys, held_out)
            })
            .collect();
        let rows: Vec<SplitRow> = owned
            .iter()
            .map(|(template, category, keys, held_out)| SplitRow {
                template,
                category,
                keys,
                near_keys: &[],
                held_out: *held_out,
            })
            .collect();
        split(&rows, settings)
    }

    fn plain_rows(files: u16) -> impl Strategy<Value = Vec<Plain>> {
        let keys = prop_oneof![
            2 => Just(vec![]),
            6 => proptest::collection::vec(0..files, 1),
            1 => proptest::collection::vec(0..files, 2),
        ];
        proptest::collection::vec((0u8..35, keys), 0..300)
    }

    fn settings() -> impl Strategy<Value = SplitSettings> {
        (0.0..0.5f64, 0usize..5, any::<u64>()).prop_map(
            |(test_fraction, held_out_templates, seed)| SplitSettings {
                test_fraction,
                held_out_templates,
                seed,
                shares: None,
            },
        )
    }

    proptest! {
        #[test]
        fn no_file_and_no_held_out_template_leaks_into_train(rows in plain_rows(60), settings in settings()) {
            let split = run_with(&rows, &settings, held_out_part);
            prop_assert_eq!(split.assignments.len(), rows.len());
            let files_in = |assignment| -> BTreeSet<u16> {
                let here = rows.iter().zip(&split.assignments).filter(move |(_, p)| **p == assignment);
                here.flat_map(|((_, files), _)| files.clone()).collect()
            };
            prop_assert!(files_in(Assignment::Train).is_disjoint(&files_in(Assignment::Test)));
            for ((template, files), assignment) in rows.iter().zip(&split.assignments) {
                let held_out = split.held_out.contains(&format!("t{template}"))
                    || held_out_part(*template, files).is_some();
                prop_assert!(!(held_out && *assignment == Assignment::Train), "held-out part in train");
                prop_assert!(*assignment != Assignment::Dropped || held_out, "another row was dropped");
                prop_assert!(*assignment != Assignment::Dropped || !files.is_empty(), "a row was dropped needlessly");
            }
            for template in &split.held_out {
                let in_test = rows.iter().zip(&split.assignments)
                    .any(|((t, _), p)| format!("t{t}") == *template && *p == Assignment::Test);
                prop_assert!(in_test, "{template} is held out but not tested");
            }
        }

        #[test]
        fn rows_without_files_are_split_by_template(rows in plain_rows(60), settings in settings()) {
            let split = run(&rows, &settings);
            for template in 0u8..35 {
                let assignments: BTreeSet<bool> = rows.iter().zip(&split.assignments)
                    .filter(|((t, files), _)| *t == template && files.is_empty())
                    .map(|(_, assignment)| *assignment == Assignment::Test)
                    .collect();
                prop_assert!(assignments.len() <= 1);
            }
        }

        /// Without held-out templates the target is missed by at most half of the largest component.
        #[test]
        fn the_test_fraction_is_close_to_the_target(rows in plain_rows(400), seed in any::<u64>()) {
            let settings = SplitSettings { test_fraction: 0.15, held_out_templates: 0, seed, shares: None };
            let split = run(&rows, &settings);
            let target = (0.15 * rows.len() as f64).round();
            let error = (split.count(Assignment::Test) as f64 - target).abs();
            prop_assert!(error <= split.largest_component as f64 / 2.0);
        }

        #[test]
        fn the_split_is_deterministic(rows in plain_rows(60), settings in settings()) {
            prop_assert_eq!(run(&rows, &settings), run(&rows, &settings));
        }
    }

    #[test]
    fn one_component_leaves_the_test_split_empty() {
        let rows: Vec<Plain> = (0..50).map(|i| (i as u8 % 7, vec![1])).collect();
        let split = run(
            &rows,
            &SplitSettings {
                test_fraction: 0.15,
                held_out_templates: 3,
                seed: 1,
                shares: None,
            },
        );
        assert_eq!(split.count(Assignment::Train), 50);
        assert!(split.held_out.is_empty());
    }

    /// 400 rows over 100 files.
    #[test]
    fn files_for_evaluation_come_first() {
        let keys = (0..400).map(|row| [format!("{ORIGIN}{}", row % 100)]);
        let keys: Vec<[String; 1]> = keys.collect();
        let rows = keys.iter().map(|keys| SplitRow {
            template: "t",
            category: "c",
            keys,
            near_keys: &[],
            held_out: None,
        });
        let rows: Vec<SplitRow<'_>> = rows.collect();
        let by_fraction = SplitSettings {
            test_fraction: 0.2,
            held_out_templates: 0,
            seed: 1,
            shares: None,
        };
        let by_share = SplitSettings {
            test_fraction: 0.0,
            shares: Some(TestShares {
                files: 0.2,
                ..TestShares::default()
            }),
            ..by_fraction
        };
        for settings in [by_fraction, by_share] {
            let assignments = split(&rows, &settings).assignments;
            let files = settings.evaluation_files();
            let of = |meant: bool, assignment: Assignment| {
                let rows = rows.iter().zip(&assignments);
                let rows = rows.filter(|(row, _)| row.is_for_evaluation(&files) == meant);
                rows.filter(|(_, other)| **other == assignment).count()
            };
            assert_eq!(of(true, Assignment::Test) + of(false, Assignment::Test), 80);
            // Either all files for evaluation are in the test split, or no others are.
            let (left, others) = (of(true, Assignment::Train), of(false, Assignment::Test));
            assert!(left == 0 || others == 0, "{left} {others}");
        }
    }

    /// Sixty rows with a file each; every row of the first `similar` is a near duplicate of the others among them.
    fn with_near_duplicates(similar: usize) -> Split {
        let keys: Vec<[String; 1]> = (0..60).map(|file| [format!("blake3:{file}")]).collect();
        let near = ["near:1".to_owned()];
        let rows = keys.iter().enumerate().map(|(number, keys)| SplitRow {
            template: "t",
            category: "c",
            keys,
            near_keys: &near[..usize::from(number < similar)],
            held_out: None,
        });
        let settings = SplitSettings {
            test_fraction: 0.5,
            held_out_templates: 0,
            seed: 1,
            shares: None,
        };
        split(&rows.collect::<Vec<_>>(), &settings)
    }

    #[test]
    fn near_duplicates_are_in_one_split_or_counted() {
        let few = with_near_duplicates(10);
        assert_eq!((few.components, few.near_duplicates), (51, 0));
        let first = few.assignments[0];
        assert!(few.assignments[..10].iter().all(|of_row| *of_row == first));
        // Sixty cannot be on one side of a split.
        let all = with_near_duplicates(60);
        assert_eq!((all.components, all.largest_component), (31, 30));
        assert_eq!(all.count(Assignment::Test), 30);
        assert_eq!(all.near_duplicates, 30);
    }

    /// Similar to the default recipe: 240 tasks, 35 templates (6 without files), 90 files of 8 kinds, one task in
    /// ten uses two files.
    #[test]
    fn the_default_recipe_gets_close_to_its_test_fraction() {
        for seed in 0..20u64 {
            let draw = |salt: &str, i: usize| Digest::of_json(&(seed, salt, i)).seed() as usize;
            let rows: Vec<Plain> = (0..240)
                .map(|i| {
                    let template = draw("template", i) % 35;
                    let pool = (template % 8) as u16 * 11;
                    let file = |salt| pool + (draw(salt, i) % 11) as u16;
                    let files = match template {
                        0..6 => vec![],
                        6..9 => vec![file("a"), file("b")],
                        _ => vec![file("a")],
                    };
                    (template as u8, files)
                })
                .collect();
            let split = run(
                &rows,
                &SplitSettings {
                    test_fraction: 0.15,
                    held_out_templates: 3,
                    seed,
                    shares: None,
                },
            );
            println!(
                "seed {seed}: test {:.3}, dropped {}, held out {:?}, components {}, largest {}",
                split.test_fraction(),
                split.count(Assignment::Dropped),
                split.held_out,
                split.components,
                split.largest_component,
            );
            assert_eq!(split.held_out.len(), 3);
            assert!((0.12..=0.19).contains(&split.test_fraction()));
            assert!(split.count(Assignment::Dropped) <= 12);
        }
    }
}
