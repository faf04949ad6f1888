//! Extracts the final answer from a reply.

/// Maximum length of the part of a reply that is searched, in bytes.
const MAX_TAIL: usize = 1 << 20;

/// The end of a reply, which contains the answer.
fn tail(reply: &str) -> &str {
    let mut from = reply.len().saturating_sub(MAX_TAIL);
    while !reply.is_char_boundary(from) {
        from += 1;
    }
    &reply[from..]
}

/// Normalizes a number: removes separators and trailing zeros.
pub(super) fn normalize_number(number: &str) -> Option<String> {
    let digits: String = number.chars().filter(|c| !",$ ".contains(*c)).collect();
    let value: f64 = digits.trim_end_matches('.').parse().ok()?;
    value.is_finite().then(|| value.to_string())
}

/// GSM8K: the first number after the last `####`, else the last number.
pub(super) fn number(reply: &str) -> Option<String> {
    let tail = tail(reply);
    if let Some((_, after)) = tail.rsplit_once("####")
        && let Some(found) = numbers(after).next()
    {
        return Some(found);
    }
    numbers(tail).last()
}

fn numbers(text: &str) -> impl Iterator<Item = String> {
    let part = |c: char| c.is_ascii_digit() || c == ',' || c == '.';
    let runs = text.split(move |c: char| !(part(c) || c == '-'));
    // A hyphen within a range is not a minus sign.
    runs.flat_map(|run| {
        run.char_indices()
            .rfind(|(_, c)| *c == '-')
            .map_or(Some(run), |(i, _)| Some(&run[i..]))
    })
    .filter_map(|run| normalize_number(run.trim_end_matches([',', '.'])))
}

/// MMLU: the letter after the last `Answer:`, or a reply that is one letter.
pub(super) fn letter(reply: &str) -> Option<String> {
    let tail = tail(reply);
    let upper = tail.to_ascii_uppercase();
    let after = upper
        .rsplit_once("ANSWER")
        .map_or(&*upper, |(_, after)| after);
    let words = after.split(|c: char| !c.is_alphanumeric());
    let mut letters = words.filter(|word| !word.is_empty() && *word != "IS" && *word != "THE");
    let first = letters.next()?;
    ["A", "B", "C", "D"]
        .contains(&first)
        .then(|| first.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_extracted_from_replies() {
        for (reply, found) in [
            ("so 3 + 4 = 7\n#### 7", Some("7")),
            ("it costs $1,234.50.", Some("1234.5")),
            ("#### -12", Some("-12")),
            ("from 10 down to -3", Some("-3")),
            ("18.0", Some("18")),
            ("none", None),
        ] {
            assert_eq!(number(reply).as_deref(), found, "{reply}");
        }
        for (reply, found) in [
            ("Because of x.\nAnswer: B", Some("B")),
            ("The answer is (C).", Some("C")),
            ("**Answer: d**", Some("D")),
            ("A", Some("A")),
            ("Apples are red", None),
            ("", None),
        ] {
            assert_eq!(letter(reply).as_deref(), found, "{reply}");
        }
    }

    #[test]
    fn fuzz_answers_never_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let _ = (number(&text), letter(&text));
        });
    }
}
