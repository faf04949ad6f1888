//! Every operation can be written in several ways.

use super::*;

const ROUNDED: &str = "another order of the same sums and products may round differently";

/// Operations that the expert writes in one way, and why.
const ONE_IDIOM: [(&str, &str); 9] = [
    ("add_echo", ROUNDED),
    ("change_gain", ROUNDED),
    ("fade_sound_in", ROUNDED),
    ("fade_sound_out", ROUNDED),
    ("mix_to_mono", ROUNDED),
    ("normalize_peak", ROUNDED),
    ("speed_up_sound", "it is one assignment"),
    (
        "take_section",
        "code fences have to be followed line by line",
    ),
    ("text_to_lower_case", "it is one call"),
];

/// A table that is read from another file is a data frame in one idiom and a list of dicts in another one.
#[test]
fn every_operation_is_written_in_two_ways_or_has_a_reason() {
    for operation in operations::all() {
        let codes = operation.pandas.iter();
        let codes = codes.chain(&operation.python).chain(&operation.sql);
        let count = codes.collect::<BTreeSet<_>>().len();
        let has_reason = ONE_IDIOM.iter().any(|(name, _)| *name == operation.name);
        assert_eq!(count < 2, has_reason, "{operation:?}: {count} idioms");
    }
    for (name, _) in ONE_IDIOM {
        assert!(operations::named(name).is_some(), "no operation {name}");
    }
}
