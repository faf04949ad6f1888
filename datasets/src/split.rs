//! Train and test without leaks.
//!
//! Rows that share a file stand together: rows are nodes, a shared file (by digest or origin) is an
//! edge, and a connected component goes to one split as a whole. Rows without files stand together
//! by template. Components win over everything else.
//!
//! Some templates are held out of training altogether. Pulling every file that such a template's
//! rows touch into the test split could pull most of the data with it, so a template is preferred
//! whose components hold little else, and components are pulled only while the test split stays
//! within its share; held-out rows in the other components are dropped and counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pybench::id::Digest;

/// What the split needs to know of a row.
#[derive(Clone, Copy, Debug)]
pub struct SplitRow<'a> {
    /// Its template.
    pub template: &'a str,
    /// Its category: held-out templates are taken from different ones where that costs nothing.
    pub category: &'a str,
    /// What it shares with other rows; empty: it stands with the rows of its template.
    pub keys: &'a [String],
}

/// How to split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitSettings {
    /// Share of rows in the test split, 0 to below 1; 0 makes no test split and holds nothing out.
    pub test_fraction: f64,
    /// Templates to hold out.
    pub held_out_templates: usize,
    /// Seed of the choice.
    pub seed: u64,
}

/// Where a row goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Place {
    Train,
    Test,
    /// Of a held-out template, but in a component with rows in training.
    Dropped,
}

/// The split, and how it came out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Split {
    /// Where each row goes, in the order of the rows.
    pub places: Vec<Place>,
    /// Templates held out, sorted.
    pub held_out: Vec<String>,
    /// Connected components.
    pub components: usize,
    /// Rows of the largest one.
    pub largest_component: usize,
}

impl Split {
    /// How many rows went there.
    pub fn count(&self, place: Place) -> usize {
        self.places.iter().filter(|p| **p == place).count()
    }

    /// Share of the kept rows that are in the test split.
    pub fn test_fraction(&self) -> f64 {
        let (train, test) = (self.count(Place::Train), self.count(Place::Test));
        test as f64 / (train + test).max(1) as f64
    }
}

/// Split rows. Depends on nothing but its arguments.
pub fn split(rows: &[SplitRow<'_>], settings: &SplitSettings) -> Split {
    let groups = Groups::of(rows);
    let target = (settings.test_fraction * rows.len() as f64).round() as usize;
    let mut choice = Choice::new(rows, &groups, target, settings.seed);
    if target > 0 {
        choice.hold_out(settings.held_out_templates);
        choice.fill();
    }
    Split {
        places: choice.places(),
        held_out: choice.held_out.iter().map(|t| (*t).to_owned()).collect(),
        components: groups.members.len(),
        largest_component: groups.members.iter().map(Vec::len).max().unwrap_or(0),
    }
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
struct DisjointSets(Vec<usize>);

impl DisjointSets {
    fn new(size: usize) -> Self {
        Self((0..size).collect())
    }

    fn find(&mut self, mut node: usize) -> usize {
        while self.0[node] != node {
            self.0[node] = self.0[self.0[node]];
            node = self.0[node];
        }
        node
    }

    fn union(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b)] = a.min(b);
    }
}

/// The choice under way: which components are in the test split, which templates are held out.
struct Choice<'a> {
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
}

/// What holding out a template would mean. Ordered by what is preferred.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Plan<'a> {
    /// Its rows that would be dropped.
    dropped: usize,
    /// Whether it is without files, and another such template is held out already.
    fileless_again: bool,
    /// Whether its category is held out already.
    same_category: bool,
    /// Rows of other templates that would come along.
    along: usize,
    /// Chance, seeded.
    lot: Digest,
    template: &'a str,
    /// Components to pull into the test split.
    pull: Vec<usize>,
}

impl<'a> Choice<'a> {
    fn new(rows: &'a [SplitRow<'a>], groups: &'a Groups, target: usize, seed: u64) -> Self {
        let mut templates: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            templates.entry(row.template).or_default().push(index);
        }
        Self {
            rows,
            groups,
            target,
            seed,
            templates,
            test: BTreeSet::new(),
            test_rows: 0,
            held_out: BTreeSet::new(),
        }
    }

    fn lot(&self, name: &str) -> Digest {
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

    /// Hold out that many templates, or as many as leave something to train on.
    fn hold_out(&mut self, count: usize) {
        for left in (1..=count).rev() {
            let Some(plan) = self.choose(left) else { break };
            for group in &plan.pull {
                self.pull(*group);
            }
            self.held_out.insert(plan.template);
        }
        // What holds nothing else than held-out rows leaks nothing.
        for group in 0..self.groups.members.len() {
            let mut rows = self.groups.members[group].iter();
            if rows.all(|row| self.held_out.contains(self.rows[*row].template)) {
                self.pull(group);
            }
        }
    }

    /// The next template to hold out, when that many are still to be chosen: one that fits into an
    /// equal share of the room, a second one without files only when none with files fits; then one
    /// that takes all of the room; then one that loses rows; and where even that fits nothing, one
    /// that goes up to twice the target.
    fn choose(&self, left: usize) -> Option<Plan<'a>> {
        let (room, share) = (self.room(), self.room() / left);
        let unharmed = |allowance| self.best(allowance).filter(|plan| plan.dropped == 0);
        let fresh = |allowance| unharmed(allowance).filter(|plan| !plan.fileless_again);
        let last = if left == 1 { room } else { share };
        fresh(share)
            .or_else(|| fresh(last))
            .or_else(|| unharmed(share))
            .or_else(|| unharmed(room))
            .or_else(|| self.best(room))
            .or_else(|| self.best(room + self.target))
    }

    fn best(&self, allowance: usize) -> Option<Plan<'a>> {
        let candidates = self.templates.keys().copied();
        candidates
            .filter(|template| !self.held_out.contains(template))
            .filter_map(|template| self.plan(template, allowance))
            .min()
    }

    /// What holding out this template would mean with so much room; `None` when none of its
    /// components fits.
    fn plan(&self, template: &'a str, allowance: usize) -> Option<Plan<'a>> {
        let mut own: BTreeMap<usize, usize> = BTreeMap::new();
        for row in &self.templates[template] {
            *own.entry(self.groups.of_row[*row]).or_default() += 1;
        }
        let mut groups: Vec<_> = own.iter().map(|(group, own)| (*group, *own)).collect();
        groups.sort_by_key(|(group, own)| (self.size(*group) - own, *group));
        let (mut pull, mut pulled, mut along, mut dropped) = (Vec::new(), 0, 0, 0);
        let mut kept = 0;
        for (group, own) in groups {
            let size = self.size(group);
            if self.test.contains(&group) {
                kept += own;
            } else if pulled + size <= allowance {
                pulled += size;
                along += size - own;
                kept += own;
                pull.push(group);
            } else {
                dropped += own;
            }
        }
        let first = |template: &str| &self.rows[self.templates[template][0]];
        let (fileless, category) = (first(template).keys.is_empty(), first(template).category);
        let mut held_out = self.held_out.iter().map(|held| first(held));
        (kept > 0).then(|| Plan {
            dropped,
            fileless_again: fileless && held_out.clone().any(|row| row.keys.is_empty()),
            same_category: held_out.any(|row| row.category == category),
            along,
            lot: self.lot(template),
            template,
            pull,
        })
    }

    /// Fill the test split up to its target with components that hold no held-out template.
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
        groups.sort_by_cached_key(|group| self.lot(&self.group_name(*group)));
        let mut left = Vec::new();
        for group in groups {
            if self.size(group) <= self.room() {
                self.pull(group);
            } else {
                left.push(group);
            }
        }
        // One more where that comes nearer to the target.
        let smallest = left.into_iter().min_by_key(|group| self.size(*group));
        if let Some(group) = smallest
            && self.size(group) < 2 * self.room()
        {
            self.pull(group);
        }
    }

    /// A name that does not depend on the order of rows.
    fn group_name(&self, group: usize) -> String {
        let rows = self.groups.members[group]
            .iter()
            .map(|row| &self.rows[*row]);
        let names = rows.map(|row| row.keys.iter().min().map_or(row.template, String::as_str));
        names.min().unwrap_or_default().to_owned()
    }

    fn places(&self) -> Vec<Place> {
        let place = |(row, group): (&SplitRow<'_>, &usize)| {
            if self.test.contains(group) {
                Place::Test
            } else if self.held_out.contains(row.template) {
                Place::Dropped
            } else {
                Place::Train
            }
        };
        self.rows
            .iter()
            .zip(&self.groups.of_row)
            .map(place)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Template and files of a row; the category follows from the template.
    type Plain = (u8, Vec<u16>);

    fn run(plain: &[Plain], settings: &SplitSettings) -> Split {
        let owned: Vec<(String, String, Vec<String>)> = plain
            .iter()
            .map(|(t, files)| {
                let keys = files.iter().map(|f| format!("blake3:{f}")).collect();
                (format!("t{t}"), format!("c{}", t % 5), keys)
            })
            .collect();
        let rows: Vec<SplitRow> = owned
            .iter()
            .map(|(template, category, keys)| SplitRow {
                template,
                category,
                keys,
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
            },
        )
    }

    proptest! {
        #[test]
        fn nothing_leaks(rows in plain_rows(60), settings in settings()) {
            let split = run(&rows, &settings);
            prop_assert_eq!(split.places.len(), rows.len());
            let files_in = |place| -> BTreeSet<u16> {
                let here = rows.iter().zip(&split.places).filter(move |(_, p)| **p == place);
                here.flat_map(|((_, files), _)| files.clone()).collect()
            };
            prop_assert!(files_in(Place::Train).is_disjoint(&files_in(Place::Test)));
            for ((template, files), place) in rows.iter().zip(&split.places) {
                let held_out = split.held_out.contains(&format!("t{template}"));
                prop_assert!(!(held_out && *place == Place::Train), "held-out template in train");
                prop_assert!(*place != Place::Dropped || held_out, "another row was dropped");
                prop_assert!(*place != Place::Dropped || !files.is_empty(), "dropped without need");
            }
            for template in &split.held_out {
                let in_test = rows.iter().zip(&split.places)
                    .any(|((t, _), p)| format!("t{t}") == *template && *p == Place::Test);
                prop_assert!(in_test, "{template} is held out but not tested");
            }
        }

        #[test]
        fn fileless_templates_stand_together(rows in plain_rows(60), settings in settings()) {
            let split = run(&rows, &settings);
            for template in 0u8..35 {
                let places: BTreeSet<bool> = rows.iter().zip(&split.places)
                    .filter(|((t, files), _)| *t == template && files.is_empty())
                    .map(|(_, place)| *place == Place::Test)
                    .collect();
                prop_assert!(places.len() <= 1);
            }
        }

        /// Without held-out templates the target is missed by at most half of the smallest
        /// component in train, wherever a component can be moved at all.
        #[test]
        fn the_fraction_is_met(rows in plain_rows(400), seed in any::<u64>()) {
            let settings = SplitSettings { test_fraction: 0.15, held_out_templates: 0, seed };
            let split = run(&rows, &settings);
            let target = (0.15 * rows.len() as f64).round();
            let error = (split.count(Place::Test) as f64 - target).abs();
            prop_assert!(error <= split.largest_component as f64 / 2.0);
        }

        #[test]
        fn equal_input_gives_an_equal_split(rows in plain_rows(60), settings in settings()) {
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
            },
        );
        assert_eq!(split.count(Place::Train), 50);
        assert!(split.held_out.is_empty());
    }

    /// Shaped as the default recipe: 240 tasks, 35 templates (6 without files), 90 files of 8 kinds,
    /// one task in ten on two files.
    #[test]
    fn the_default_recipe_comes_near_its_share() {
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
                },
            );
            println!(
                "seed {seed}: test {:.3}, dropped {}, held out {:?}, components {}, largest {}",
                split.test_fraction(),
                split.count(Place::Dropped),
                split.held_out,
                split.components,
                split.largest_component,
            );
            assert_eq!(split.held_out.len(), 3);
            assert!((0.12..=0.19).contains(&split.test_fraction()));
            assert!(split.count(Place::Dropped) <= 12);
        }
    }
}
