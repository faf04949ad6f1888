//! What two versions of a text differ in.

/// Words and lines compared at most, product of both sides: what is beyond is shown as replaced.
const MOST_CELLS: usize = 16 << 20;

/// Whether a piece stands in both versions, in the old one or in the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Both,
    Old,
    New,
}

/// The new text with what was taken out as `[-…-]` and what was put in as `{+…+}`.
pub(super) fn words(old: &str, new: &str) -> String {
    let (old, new) = (pieces(old), pieces(new));
    let mut out = String::new();
    let mut open = Of::Both;
    for (of, piece) in compare(&old, &new) {
        if of != open {
            out += closing(open);
            out += match of {
                Of::Both => "",
                Of::Old => "[-",
                Of::New => "{+",
            };
            open = of;
        }
        out += piece;
    }
    out + closing(open)
}

fn closing(open: Of) -> &'static str {
    match open {
        Of::Both => "",
        Of::Old => "-]",
        Of::New => "+}",
    }
}

/// The lines that differ, with `-` or `+` before them.
pub(super) fn lines(old: &str, new: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let differing = compare(&old, &new)
        .into_iter()
        .filter_map(|(of, line)| match of {
            Of::Both => None,
            Of::Old => Some(format!("- {line}\n")),
            Of::New => Some(format!("+ {line}\n")),
        });
    differing.collect()
}

/// Words, white space, and everything that is no word as single characters.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut begin = 0;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let goes_on = c.is_ascii_alphanumeric() && before.is_ascii_alphanumeric();
        if at > begin && !goes_on {
            pieces.push(&text[begin..at]);
            begin = at;
        }
        before = c;
    }
    pieces.push(&text[begin..]);
    pieces
}

/// A longest common subsequence, and what stands between.
fn compare<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(Of, &'a str)> {
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = old.iter().zip(new).take_while(same).count();
    let (a, b) = (&old[head..], &new[head..]);
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(same).count();
    let (a, b) = (&a[..a.len() - tail], &b[..b.len() - tail]);
    let of = |of: Of, pieces: &[&'a str]| pieces.iter().map(|p| (of, *p)).collect::<Vec<_>>();
    let mut out = of(Of::Both, &old[..head]);
    if a.len().saturating_mul(b.len()) > MOST_CELLS {
        out.extend(of(Of::Old, a));
        out.extend(of(Of::New, b));
    } else {
        out.extend(middle(a, b));
    }
    out.extend(of(Of::Both, &old[old.len() - tail..]));
    out
}

fn middle<'a>(a: &[&'a str], b: &[&'a str]) -> Vec<(Of, &'a str)> {
    let width = b.len() + 1;
    // Length of the longest common subsequence of what is left from (i, j) on.
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
            out.push((Of::Both, a[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == b.len()
            || (i < a.len() && left[(i + 1) * width + j] >= left[i * width + j + 1])
        {
            out.push((Of::Old, a[i]));
            i += 1;
        } else {
            out.push((Of::New, b[j]));
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
    fn words_that_differ_are_marked() {
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
        fn both_versions_are_in_it(old in "[ab \\n均值]{0,40}", new in "[ab \\n均值]{0,40}") {
            let (a, b) = (pieces(&old), pieces(&new));
            let found = compare(&a, &b);
            let side = |other: Of| {
                let kept = found.iter().filter(|(of, _)| *of != other);
                kept.map(|(_, piece)| *piece).collect::<String>()
            };
            prop_assert_eq!(side(Of::New), &*old);
            prop_assert_eq!(side(Of::Old), &*new);
        }
    }
}
