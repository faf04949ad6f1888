//! Differences between two versions of a text, by word or by line.

use std::time::{Duration, Instant};

use similar::{Algorithm, ChangeTag, capture_diff_slices_deadline};

/// Maximum time for a comparison. Beyond it, what remains is shown as replaced.
const MAX_TIME: Duration = Duration::from_secs(1);

/// The new text, with removals marked as `[-…-]` and insertions as `{+…+}`.
pub(super) fn words(old: &str, new: &str) -> String {
    let (old, new) = (pieces(old), pieces(new));
    let marked = compare(&old, &new).into_iter().map(|(tag, pieces)| {
        let text = pieces.concat();
        match tag {
            ChangeTag::Equal => text,
            ChangeTag::Delete => format!("[-{text}-]"),
            ChangeTag::Insert => format!("{{+{text}+}}"),
        }
    });
    marked.collect()
}

/// The lines that differ, prefixed with `-` or `+`.
pub(super) fn lines(old: &str, new: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let mut text = String::new();
    for (tag, lines) in compare(&old, &new) {
        // A tag is shown as its sign.
        let signed = lines.iter().map(|line| format!("{tag} {line}\n"));
        if tag != ChangeTag::Equal {
            text.extend(signed);
        }
    }
    text
}

/// Splits a text into ASCII words; every other character is a piece of its own.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut begin = 0;
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        let same_word = c.is_ascii_alphanumeric() && previous.is_ascii_alphanumeric();
        if at > begin && !same_word {
            pieces.push(&text[begin..at]);
            begin = at;
        }
        previous = c;
    }
    pieces.push(&text[begin..]);
    pieces
}

/// Runs of pieces that are equal, removed or inserted.
fn compare<'a, 'b>(old: &'b [&'a str], new: &'b [&'a str]) -> Vec<(ChangeTag, &'b [&'a str])> {
    let deadline = Some(Instant::now() + MAX_TIME);
    let runs = capture_diff_slices_deadline(Algorithm::Myers, old, new, deadline);
    let slices = runs.iter().flat_map(|run| run.iter_slices(old, new));
    slices.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn changed_words_are_marked() {
        assert_eq!(
            words("Sum the prices.", "Sum the prices."),
            "Sum the prices."
        );
        assert_eq!(
            words("Sum the prices.", "Sum the costs, and save them."),
            "Sum the [-prices-]{+costs, and save them+}."
        );
        assert_eq!(words("求均值", "求最大值"), "求[-均-]{+最大+}值");
        assert_eq!(lines("a\nb\nc", "a\nd\nc"), "- b\n+ d\n");
    }

    proptest! {
        #[test]
        fn both_versions_can_be_recovered(old in "[ab \\n均值]{0,40}", new in "[ab \\n均值]{0,40}") {
            let (a, b) = (pieces(&old), pieces(&new));
            let found = compare(&a, &b);
            let without = |other: ChangeTag| {
                let kept = found.iter().filter(|(tag, _)| *tag != other);
                kept.map(|(_, pieces)| pieces.concat()).collect::<String>()
            };
            prop_assert_eq!(without(ChangeTag::Insert), &*old);
            prop_assert_eq!(without(ChangeTag::Delete), &*new);
        }
    }
}
