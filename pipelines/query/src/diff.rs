//! Differences between two versions of a text, by word or by line.

/// Maximum product of the number of pieces on both sides. Beyond it, the middle is shown as replaced.
const MAX_CELLS: usize = 16 << 20;

/// The versions that contain a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Both,
    Old,
    New,
}

/// The new text, with removals marked as `[-…-]` and insertions as `{+…+}`.
pub(super) fn words(old: &str, new: &str) -> String {
    let (old, new) = (pieces(old), pieces(new));
    let mut out = String::new();
    let mut open = Side::Both;
    for (side, piece) in compare(&old, &new) {
        if side != open {
            out += closing(open);
            out += match side {
                Side::Both => "",
                Side::Old => "[-",
                Side::New => "{+",
            };
            open = side;
        }
        out += piece;
    }
    out + closing(open)
}

fn closing(open: Side) -> &'static str {
    match open {
        Side::Both => "",
        Side::Old => "-]",
        Side::New => "+}",
    }
}

/// The lines that differ, prefixed with `-` or `+`.
pub(super) fn lines(old: &str, new: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let differing = compare(&old, &new)
        .into_iter()
        .filter_map(|(side, line)| match side {
            Side::Both => None,
            Side::Old => Some(format!("- {line}\n")),
            Side::New => Some(format!("+ {line}\n")),
        });
    differing.collect()
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

/// Aligns both sides by a longest common subsequence.
fn compare<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(Side, &'a str)> {
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = old.iter().zip(new).take_while(same).count();
    let (a, b) = (&old[head..], &new[head..]);
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(same).count();
    let (a, b) = (&a[..a.len() - tail], &b[..b.len() - tail]);
    let tag =
        |side: Side, pieces: &[&'a str]| pieces.iter().map(|p| (side, *p)).collect::<Vec<_>>();
    let mut out = tag(Side::Both, &old[..head]);
    if a.len().saturating_mul(b.len()) > MAX_CELLS {
        out.extend(tag(Side::Old, a));
        out.extend(tag(Side::New, b));
    } else {
        out.extend(middle(a, b));
    }
    out.extend(tag(Side::Both, &old[old.len() - tail..]));
    out
}

/// Aligns two sides that share neither head nor tail.
fn middle<'a>(a: &[&'a str], b: &[&'a str]) -> Vec<(Side, &'a str)> {
    let width = b.len() + 1;
    // left[i * width + j]: length of the longest common subsequence of a[i..] and b[j..].
    let mut left = vec![0_u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            left[i * width + j] = match a[i] == b[j] {
                true => left[(i + 1) * width + j + 1] + 1,
                false => left[(i + 1) * width + j].max(left[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            out.push((Side::Both, a[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == b.len()
            || (i < a.len() && left[(i + 1) * width + j] >= left[i * width + j + 1])
        {
            out.push((Side::Old, a[i]));
            i += 1;
        } else {
            out.push((Side::New, b[j]));
            j += 1;
        }
    }
    out
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
            let side = |other: Side| {
                let kept = found.iter().filter(|(side, _)| *side != other);
                kept.map(|(_, piece)| *piece).collect::<String>()
            };
            prop_assert_eq!(side(Side::New), &*old);
            prop_assert_eq!(side(Side::Old), &*new);
        }
    }
}
