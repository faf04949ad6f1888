//! Upstream's comparison of denotations (`evaluator.py`, version 1.0.2): sets of texts, numbers and dates.

use super::super::python_number::{float, int};
use super::normalize::{Details, normalize};

/// Numbers closer than this are equal.
const TOLERANCE: f64 = 1e-6;

/// An item of a denotation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Value {
    kind: Kind,
    /// The text of the item, normalized.
    normalized: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Text,
    /// An integer of any length, in canonical digits.
    Integer(String),
    /// A number that is no integer.
    Float(f64),
    /// Year, month and day; `None` is an unknown part.
    Date(Option<String>, Option<u8>, Option<u8>),
}

impl Value {
    /// Upstream's `to_value`: `canon` is the machine-readable form of a target, where it is known.
    pub(super) fn new(text: &str, canon: Option<&str>) -> Self {
        let canon = canon.filter(|canon| !canon.is_empty()).unwrap_or(text);
        Self {
            kind: number(canon).or_else(|| date(canon)).unwrap_or(Kind::Text),
            normalized: normalize(text, Details::Removed),
        }
    }

    /// Whether this target is matched by a prediction.
    pub(super) fn matches(&self, predicted: &Self) -> bool {
        if self.normalized == predicted.normalized {
            return true;
        }
        match (&self.kind, &predicted.kind) {
            (Kind::Float(a), Kind::Float(b)) => (a - b).abs() < TOLERANCE,
            // A float is at least the tolerance away from every integer.
            (Kind::Text, _) | (_, Kind::Text) => false,
            (a, b) => a == b,
        }
    }

    /// Whether a set holds only one of the two.
    fn same(&self, other: &Self) -> bool {
        self.kind == other.kind && (self.kind != Kind::Text || self.normalized == other.normalized)
    }
}

/// A set of items: of equal ones, the first.
pub(super) fn denotation(items: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let mut set: Vec<Value> = Vec::new();
    for item in items {
        if !set.iter().any(|known| known.same(&item)) {
            set.push(item);
        }
    }
    set
}

/// Upstream's `check_denotation`: as many items, and each target is matched by some prediction.
pub(super) fn check(targets: &[Value], predicted: &[Value]) -> bool {
    let found = |target: &Value| predicted.iter().any(|one| target.matches(one));
    targets.len() == predicted.len() && targets.iter().all(found)
}

/// Whether each target is matched by a prediction of its own.
pub(super) fn one_to_one(targets: &[Value], predicted: &[Value]) -> bool {
    let mut owner: Vec<Option<usize>> = vec![None; predicted.len()];
    let assigned = (0..targets.len()).all(|target| {
        let mut visited = vec![false; predicted.len()];
        assign(target, targets, predicted, &mut owner, &mut visited)
    });
    targets.len() == predicted.len() && assigned
}

/// Finds a prediction for `target`, moving earlier targets to other predictions where necessary.
fn assign(
    target: usize,
    targets: &[Value],
    predicted: &[Value],
    owner: &mut [Option<usize>],
    visited: &mut [bool],
) -> bool {
    for at in 0..predicted.len() {
        if visited[at] || !targets[target].matches(&predicted[at]) {
            continue;
        }
        visited[at] = true;
        let free = match owner[at] {
            None => true,
            Some(other) => assign(other, targets, predicted, owner, visited),
        };
        if free {
            owner[at] = Some(target);
            return true;
        }
    }
    false
}

fn number(text: &str) -> Option<Kind> {
    if let Some(digits) = int(text) {
        return Some(Kind::Integer(digits));
    }
    let amount = float(text).filter(|amount| amount.is_finite())?;
    // As upstream, `int(amount)` cuts off: 2.9999999 is 2.
    if (amount - amount.round()).abs() < TOLERANCE {
        let digits = format!("{:.0}", amount.trunc());
        return Some(Kind::Integer(match digits.as_str() {
            "-0" => "0".to_owned(),
            _ => digits,
        }));
    }
    Some(Kind::Float(amount))
}

/// `yyyy-mm-dd`, with `xx` for unknown parts. A year alone is a number.
fn date(text: &str) -> Option<Kind> {
    let text = text.to_lowercase();
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else {
        return None;
    };
    let year = match year {
        "xx" | "xxxx" => None,
        year => Some(int(year)?),
    };
    let part = |text: &str, max: u8| match text {
        "xx" => Some(None),
        text => {
            let number: u8 = int(text)?.parse().ok()?;
            (1..=max).contains(&number).then_some(Some(number))
        }
    };
    let (month, day) = (part(month, 12)?, part(day, 31)?);
    match (year, month, day) {
        (None, None, None) => None,
        (Some(year), None, None) => Some(Kind::Integer(year)),
        (year, month, day) => Some(Kind::Date(year, month, day)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(items: &[&str]) -> Vec<Value> {
        denotation(items.iter().map(|item| Value::new(item, None)))
    }

    #[test]
    fn values_match_as_upstream_documents() {
        for (target, canon, predicted, matches) in [
            ("100,000", Some("100000.0"), "100000", true),
            ("100,000", Some("100000.0"), "100,000", true),
            ("100,000", Some("100000.0"), "100001", false),
            ("17 years", Some("17.0"), "17", true),
            ("January 26, 1995", Some("1995-01-26"), "1995-1-26", true),
            ("January 26, 1995", Some("1995-01-26"), "xx-01-26", false),
            ("1995", None, "1995-xx-xx", true),
            ("3", None, "2.9999999", false),
            ("2", None, "2.9999999", true),
            ("0.3333333", None, "0.3333337", true),
            ("0.33", None, "0.3300011", false),
            ("Italy", Some("Italy"), "ITALY (host)", true),
            ("1e3", None, "1000", true),
            ("nan", None, "nan", true),
            ("-0.0", None, "0", true),
        ] {
            let (target, predicted) = (Value::new(target, canon), Value::new(predicted, None));
            assert_eq!(
                target.matches(&predicted),
                matches,
                "{target:?} {predicted:?}"
            );
        }
    }

    #[test]
    fn sets_are_compared() {
        let targets = set(&["a", "b"]);
        assert!(check(&targets, &set(&["b", "A"])));
        assert!(
            check(&targets, &set(&["b", "A", "a"])),
            "equal items count once"
        );
        assert!(!check(&targets, &set(&["a"])));
        assert!(!check(&targets, &set(&["a", "b", "c"])));
        assert!(check(&[], &[]));
    }

    #[test]
    fn one_prediction_cannot_stand_for_two_targets() {
        let targets = denotation([
            Value::new("5 (a)", Some("5")),
            Value::new("5 (b)", Some("x")),
        ]);
        let predicted = set(&["5", "zebra"]);
        assert!(check(&targets, &predicted), "upstream accepts it");
        assert!(!one_to_one(&targets, &predicted));
        // The first target has to give way to the second.
        let predicted = set(&["5", "5 †"]);
        assert_eq!(predicted.len(), 2);
        assert!(one_to_one(&targets, &predicted));
    }

    #[test]
    fn fuzz_values() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let value = Value::new(&text, None);
            assert!(value.matches(&value));
        });
    }
}
