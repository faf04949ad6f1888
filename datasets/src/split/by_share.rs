//! A test split in which each kind of row, by what training rows lack of it, has a share of its own.

use pybench_types::held_out::{TestShares, Unseen};

use super::SplitBuilder;

/// The kinds in the order in which the split is filled: those with the strongest reason first, since components with
/// their rows bring rows of the others.
const KINDS: [Unseen; 4] = [
    Unseen::Operations,
    Unseen::Pairs,
    Unseen::Wordings,
    Unseen::Files,
];

/// Fills the test split with about as many rows of each kind as `shares` says. `templates` is the maximum number of
/// templates that are held out.
pub(super) fn fill(builder: &mut SplitBuilder<'_>, shares: &TestShares, templates: usize) {
    let rows = builder.rows.len();
    let target = |unseen| (shares.of(unseen) * rows as f64).round() as usize;
    builder.target = target(Unseen::Template);
    if builder.target > 0 {
        builder.hold_out(templates);
    }
    for kind in KINDS {
        builder.pull_kind(kind, target(kind));
    }
}

impl SplitBuilder<'_> {
    /// What training rows would lack of this row.
    fn kind(&self, row: usize) -> Unseen {
        let row = &self.rows[row];
        let held_out = self.held_out.contains(row.template);
        let template = held_out.then_some(Unseen::Template);
        let all = [row.held_out, template].into_iter().flatten();
        all.min().unwrap_or(Unseen::Files)
    }

    /// Number of rows of this kind in a component.
    fn count_of(&self, group: usize, kind: Unseen) -> usize {
        let rows = self.groups.members[group].iter();
        rows.filter(|row| self.kind(**row) == kind).count()
    }

    /// Moves components with rows of this kind to the test split, those over files for evaluation and those with the
    /// fewest other rows first, until it has `target` of them.
    fn pull_kind(&mut self, kind: Unseen, target: usize) {
        let mut have: usize = self.test.iter().map(|at| self.count_of(*at, kind)).sum();
        let groups = 0..self.groups.members.len();
        let groups = groups.filter(|group| !self.test.contains(group));
        let counted = groups.map(|group| (group, self.count_of(group, kind)));
        let mut counted: Vec<(usize, usize)> = counted.filter(|(_, own)| *own > 0).collect();
        counted.sort_by_cached_key(|(group, own)| {
            let others = self.size(*group) - own;
            let other_files = !self.for_evaluation.contains(group);
            (other_files, others, self.random(&self.group_name(*group)))
        });
        let mut left = Vec::new();
        for (group, own) in counted {
            if have + own <= target {
                self.pull(group);
                have += own;
            } else {
                left.push((group, own));
            }
        }
        // Add one more component if that gets closer to the target.
        let smallest = left.into_iter().min_by_key(|(_, own)| *own);
        if let Some((group, own)) = smallest
            && own < 2 * target.saturating_sub(have)
        {
            self.pull(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use pybench_types::id::Digest;

    use super::super::{Assignment, SplitRow, SplitSettings, split};
    use super::*;

    /// 1,000 rows over 200 files. Those over every fifth file have something that is held out, or lack the file only.
    fn rows(keys: &[[String; 1]]) -> Vec<SplitRow<'_>> {
        let rows = keys.iter().enumerate().map(|(number, keys)| {
            let file = number % 200;
            let drawn = Digest::of_json(&("kind", number)).fraction();
            SplitRow {
                template: "a>b",
                category: "c",
                keys,
                near_keys: &[],
                held_out: match file.is_multiple_of(5) {
                    false => None,
                    true if drawn < 0.3 => Some(Unseen::Operations),
                    true if drawn < 0.7 => Some(Unseen::Pairs),
                    true => None,
                },
            }
        });
        rows.collect()
    }

    #[test]
    fn each_kind_has_about_its_share() {
        let keys = (0..1000).map(|number| [format!("blake3:{}", number % 200)]);
        let keys: Vec<[String; 1]> = keys.collect();
        let rows = rows(&keys);
        let of_kind = |shares: TestShares, kind: Option<Unseen>| {
            let settings = SplitSettings {
                test_fraction: 0.0,
                held_out_templates: 3,
                seed: 1,
                shares: Some(shares),
            };
            let assignments = split(&rows, &settings).assignments;
            let test = rows.iter().zip(assignments);
            let test = test.filter(|(row, at)| *at == Assignment::Test && row.held_out == kind);
            test.count()
        };
        let even = TestShares {
            files: 0.05,
            pairs: 0.05,
            operations: 0.05,
            ..TestShares::default()
        };
        for kind in [Some(Unseen::Operations), Some(Unseen::Pairs), None] {
            let count = of_kind(even, kind);
            assert!((40..=85).contains(&count), "{kind:?}: {count}");
        }
        let more_files = TestShares { files: 0.2, ..even };
        assert!((190..=210).contains(&of_kind(more_files, None)));
        let nothing = TestShares::default();
        assert_eq!(of_kind(nothing, None), 0);
    }
}
