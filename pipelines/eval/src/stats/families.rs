//! Suites that share tasks.

/// A suite whose tasks are some of another one's, under the same names.
const SUBSETS: [(&str, &str); 4] = [
    ("pybench-regenerated", "pybench"),
    ("da-dev-verified", "da-dev"),
    ("humaneval-plus", "humaneval"),
    ("mbpp-plus", "mbpp"),
];

/// The suite that has all tasks of this suite: itself, unless its tasks are some of another one's.
pub fn whole_suite(suite: &str) -> &str {
    let subset = SUBSETS.iter().find(|(name, _)| *name == suite);
    subset.map_or(suite, |(_, whole)| whole)
}
