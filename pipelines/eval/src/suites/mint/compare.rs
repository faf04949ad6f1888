//! Comparisons of answers that need not be executed: the authors' and the strict ones.

use super::super::python_literal::{Literal, float_repr};
use super::super::python_number::{float_with_underscores, is_space};

/// The texts between `<solution>` and `</solution>`, without white space around them.
pub(super) fn solutions(reply: &str) -> Vec<&str> {
    const END: &str = "</solution>";
    let (mut found, mut rest) = (Vec::new(), reply);
    while let Some((_, after)) = rest.split_once("<solution>") {
        let Some((solution, after)) = after.split_once(END) else {
            break;
        };
        found.push(solution.trim_matches(is_space));
        rest = after;
    }
    found
}

/// The answer that the authors score: all solutions of a reply, one per line.
pub(super) fn answer(reply: &str) -> Option<String> {
    Some(solutions(reply).join("\n")).filter(|answer| !answer.is_empty())
}

fn normalized(text: &str) -> String {
    text.to_lowercase().trim_matches(is_space).to_owned()
}

/// The authors' comparison of `gsm8k` and `math`: 5 % of the expected number, or the expected text anywhere in the answer
/// if that is not a number.
pub(super) fn numbers_agree(reference: &str, answer: &str) -> bool {
    let (reference, answer) = (normalized(reference), normalized(answer));
    let numbers = float_with_underscores(&reference).zip(float_with_underscores(&answer));
    match numbers {
        Some((expected, found)) => (expected - found).abs() <= 0.05 * expected.abs(),
        None => answer.contains(&reference),
    }
}

/// The options of a question of `mmlu`, and the letter of the correct one.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    correct: String,
    /// Letter and content as the authors read them: up to the second closing parenthesis.
    options: Vec<(String, String)>,
    /// Letter and whole content.
    whole: Vec<(String, String)>,
}

impl Choice {
    /// Reads the options from a prompt.
    ///
    /// # Errors
    /// An option has no letter.
    pub(super) fn new(prompt: &str, reference: &str) -> Result<Self, String> {
        let list = prompt
            .rsplit_once("Options: ")
            .map_or(prompt, |(_, list)| list);
        let (mut options, mut whole) = (Vec::<(String, String)>::new(), Vec::new());
        for option in list.split(" , ") {
            let option = option.trim_matches(['[', ']', '\'', ' ']);
            let problem = || format!("the option `{option}` has no letter");
            let (letter, content) = option.split_once(')').ok_or_else(problem)?;
            let letter = normalized(letter);
            let read = content.split(')').next().unwrap_or_default().to_lowercase();
            let read = read.trim_matches('.').trim_matches(is_space).to_owned();
            match options.iter_mut().find(|(known, _)| *known == letter) {
                Some((_, known)) => *known = read,
                None => options.push((letter.clone(), read)),
            }
            whole.push((letter, unpunctuated(content)));
        }
        Ok(Self {
            correct: normalized(reference),
            options,
            whole,
        })
    }

    /// The authors' comparison. An answer with `a)` chooses `a`; of any other answer the letter of the correct option
    /// anywhere in it is correct.
    pub(super) fn agrees(&self, answer: &str) -> bool {
        let mut answer = normalized(answer);
        if answer.contains("a)") || answer.contains("a )") {
            "a".clone_into(&mut answer);
        }
        if contained(&self.correct, &answer) {
            return true;
        }
        let known = self.options.iter();
        let known = known.clone().find(|(letter, _)| *letter == self.correct);
        let Some((_, correct)) = known else {
            return false;
        };
        let mut wrong: Vec<&String> = self.options.iter().map(|(_, content)| content).collect();
        // Their loop removes from the list that it goes through, and so skips the option after each removed one.
        let mut at = 0;
        while let Some(option) = wrong.get(at).copied() {
            if correct.contains(option.as_str())
                && let Some(first) = wrong.iter().position(|one| *one == option)
            {
                wrong.remove(first);
            }
            at += 1;
        }
        let stated = |option: &String| contained(option, &answer) || answer.contains(option);
        !wrong.into_iter().any(stated) && stated(correct)
    }

    /// Whether a solution names the correct option and nothing else: its letter, its content, or both.
    pub(super) fn is_chosen(&self, solution: &str) -> bool {
        let stated = unpunctuated(solution);
        let letter_and_content = |(letter, content): &(String, String)| {
            let rest = stated.trim_start_matches('(').strip_prefix(letter.as_str());
            rest.is_some_and(|rest| {
                let rest = rest.trim_start_matches([' ', ')', ':', '.']);
                rest.is_empty() || rest == content
            })
        };
        let named = |option: &&(String, String)| option.1 == stated || letter_and_content(option);
        let named: Vec<_> = self.whole.iter().filter(named).collect();
        matches!(named[..], [(letter, _)] if *letter == self.correct)
    }

    /// Letters and contents of the options.
    pub(super) fn letters_and_contents(&self) -> &[(String, String)] {
        &self.whole
    }

    /// The letter of the correct option.
    pub(super) fn correct(&self) -> &str {
        &self.correct
    }
}

/// Lower case, without white space and full stops around it.
fn unpunctuated(text: &str) -> String {
    let text = normalized(text);
    let text = text.trim_matches(|c: char| c == '.' || is_space(c));
    text.to_owned()
}

/// The authors' `compare_w_digits` of `mmlu`.
fn contained(reference: &str, answer: &str) -> bool {
    let digits = |text: &str| {
        let whole = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        whole.then(|| text.parse::<f64>().ok()).flatten()
    };
    match digits(reference).zip(digits(answer)) {
        Some((expected, found)) => (expected - found).abs() <= 0.05 * expected,
        None => answer.contains(reference),
    }
}

/// A number as people write it: with thousands separators, a currency or percent sign, or as a fraction of two numbers.
pub(super) fn number(text: &str) -> Option<f64> {
    let text = text.trim_matches(|c: char| is_space(c) || c == '$');
    let text = text.strip_suffix('.').unwrap_or(text);
    let text = text.strip_suffix('%').unwrap_or(text);
    let text = text
        .strip_suffix("\\")
        .unwrap_or(text)
        .trim_matches(is_space);
    if let Some(found) = float_with_underscores(text).filter(|number| number.is_finite()) {
        return Some(found);
    }
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest.trim_start()),
        None => (1.0, text),
    };
    let unsigned = unsigned.strip_prefix('$').unwrap_or(unsigned);
    let latex = ["\\frac{", "\\dfrac{"].into_iter();
    let latex = latex.filter_map(|start| unsigned.strip_prefix(start)?.strip_suffix('}'));
    let parts = latex.filter_map(|inner| inner.split_once("}{")).next();
    if let Some((above, below)) = parts.or_else(|| unsigned.split_once('/')) {
        let (above, below) = (plain(above)?, plain(below)?);
        return (below != 0.0).then_some(sign * above / below);
    }
    Some(sign * plain(unsigned)?)
}

/// Digits with a fraction and thousands separators.
fn plain(text: &str) -> Option<f64> {
    let text = text.trim_matches(is_space);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let mut groups = whole.split(',');
    let first = groups.next()?;
    let grouped = whole.contains(',');
    let is_number = digits(first)
        && digits(fraction)
        && (!grouped || first.len() <= 3)
        && groups.all(|group| group.len() == 3 && digits(group));
    is_number
        .then(|| text.replace(',', "").parse().ok())
        .flatten()
}

/// The strict comparison of `gsm8k` and `math`: an expected number with a fraction may have been rounded.
pub(super) fn number_equals(reference: &str, found: f64) -> bool {
    let expected = float_with_underscores(reference);
    expected.is_some_and(|expected| match expected.fract() == 0.0 {
        true => equals(found, expected, 0.0),
        false => equals(found, expected, rounding(expected)),
    })
}

/// Whether a number is the expected one, within an error of `tolerance`.
pub(super) fn equals(found: f64, expected: f64, tolerance: f64) -> bool {
    (found - expected).abs() <= tolerance.max(expected.abs().max(1.0) * 1e-9)
}

/// The error of an expected number that its authors may have rounded: half a unit of its last digit, at most 2.6 %; of one
/// without a fraction 0.1 %.
pub(super) fn rounding(expected: f64) -> f64 {
    let digits = float_repr(expected);
    match digits.split_once('.') {
        Some((_, decimals)) if expected.fract() != 0.0 && !digits.contains('e') => {
            let unit = 0.1_f64.powi(i32::try_from(decimals.len()).unwrap_or(0));
            (unit * 0.500_000_001).min(0.026 * expected.abs())
        }
        _ => 0.001 * expected.abs(),
    }
}

/// The strict comparison of `theoremqa`.
pub(super) fn theorem_agrees(
    solution: &str,
    expected: &serde_json::Value,
    answer_type: &str,
    any_order: bool,
) -> bool {
    let text = unpunctuated(solution);
    match (answer_type, expected) {
        ("bool", serde_json::Value::Bool(expected)) => match (text.as_str(), expected) {
            ("true" | "yes", expected) => *expected,
            ("false" | "no", expected) => !*expected,
            _ => false,
        },
        ("option", serde_json::Value::String(expected)) => {
            let letter = text.trim_start_matches('(').trim_end_matches([')', ' ']);
            letter == expected
        }
        (_, serde_json::Value::Number(expected)) => {
            let numbers = number(solution).zip(expected.as_f64());
            numbers.is_some_and(|(found, expected)| {
                let rounded = answer_type == "float";
                equals(
                    found,
                    expected,
                    if rounded { rounding(expected) } else { 0.0 },
                )
            })
        }
        (_, serde_json::Value::Array(expected)) => {
            let expected: Vec<f64> = expected
                .iter()
                .filter_map(serde_json::Value::as_f64)
                .collect();
            list(solution).is_some_and(|mut found| {
                let mut expected = expected;
                if any_order {
                    found.sort_by(f64::total_cmp);
                    expected.sort_by(f64::total_cmp);
                }
                let mut pairs = found.iter().zip(&expected);
                found.len() == expected.len() && pairs.all(|(a, b)| equals(*a, *b, 0.0))
            })
        }
        _ => false,
    }
}

/// A list of numbers.
fn list(text: &str) -> Option<Vec<f64>> {
    match Literal::parse(text.trim_matches(is_space))? {
        Literal::Sequence(items) => items.iter().map(Literal::number).collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn solutions_are_read_as_the_authors_do() {
        assert_eq!(
            solutions("a <solution> 1\n</solution> b<solution>2</solution>"),
            ["1", "2"]
        );
        assert_eq!(
            answer("<solution>1</solution><solution> 2</solution>").unwrap(),
            "1\n2"
        );
        for reply in [
            "",
            "1",
            "<solution>1",
            "</solution><solution>",
            "<solution> </solution>",
        ] {
            assert_eq!(answer(reply), None, "{reply}");
        }
    }

    #[test]
    fn the_authors_numbers_are_weak_and_the_strict_ones_are_not() {
        for (expected, found, upstream, strict) in [
            ("175", "175", true, true),
            ("175", "175.0", true, true),
            ("175", "180", true, false),
            ("175", "185", false, false),
            ("175", "1750 rings", true, false),
            ("175", "not 175", true, false),
            ("1110", "$1,110", false, true),
            ("1110", "1,110.00", false, true),
            ("10.0", "10", true, true),
            ("10.0", "10 units", false, false),
            ("0.5", "1/2", false, true),
            ("1.8", "\\frac{9}{5}", false, true),
            ("-2.0", "-\\frac{4}{2}", false, true),
            ("1.3", "4/3", false, true),
            ("0.0", "0", true, true),
            ("0.0", "0.04", false, false),
            ("6", "nan", false, false),
            ("6", "", false, false),
        ] {
            assert_eq!(
                numbers_agree(expected, found),
                upstream,
                "{expected}: {found}"
            );
            let equal = number(found).is_some_and(|found| number_equals(expected, found));
            assert_eq!(equal, strict, "{expected}: {found}");
        }
    }

    #[test]
    fn options_are_chosen() {
        let prompt = "Which?\nOptions: A ) 6 , B ) 121 , C ) 18107 , D ) f(x) (or so).";
        let choice = |correct: &str| Choice::new(prompt, correct).unwrap();
        for (correct, solution, upstream, strict) in [
            ("c", "C", true, true),
            ("c", "c)", true, true),
            ("c", "(C) 18107", true, true),
            ("c", "C ) 18107", true, true),
            ("c", "18107", true, true),
            ("c", "18000", true, false),
            ("c", "because", true, false),
            ("c", "abcd", true, false),
            ("c", "C or D", true, false),
            ("c", "C) 6", true, false),
            ("c", "b", false, false),
            ("a", "a) is wrong", true, false),
            ("a", "6.", true, true),
            ("d", "f(x) (or so)", true, true),
            ("d", "D: f(x) (or so).", true, true),
            ("b", "", false, false),
        ] {
            assert_eq!(
                choice(correct).agrees(solution),
                upstream,
                "{correct}: {solution}"
            );
            assert_eq!(
                choice(correct).is_chosen(solution),
                strict,
                "{correct}: {solution}"
            );
        }
        assert!(Choice::new("Options: A 6", "a").is_err());
    }

    #[test]
    fn theorems_are_compared_by_type() {
        for (kind, expected, solution, strict) in [
            ("bool", json!(false), "No.", true),
            ("bool", json!(false), "True", false),
            ("bool", json!(true), "not True", false),
            ("integer", json!(25), "25", true),
            ("integer", json!(25), "24.6", false),
            ("integer", json!(6000), "6,000", true),
            ("float", json!(1.12), "1.1184", true),
            ("float", json!(1.12), "1.13", false),
            ("float", json!(2.0), "2", true),
            ("float", json!(2.0), "2.04", false),
            ("float", json!(0.2), "0.21", false),
            ("float", json!(1.28e-6), "0.00000128", true),
            ("float", json!(1.28e-6), "1.3e-6", false),
            ("list of integer", json!([0, 5]), "[0, 5]", true),
            ("list of integer", json!([0, 5]), "0, 5", true),
            ("list of integer", json!([0, 5]), "[5, 0]", false),
            ("list of integer", json!([0, 5]), "[0, 5, 0]", false),
            ("option", json!("c"), "(c)", true),
            ("option", json!("c"), "not c)", false),
            ("float", json!(2.0), "self.reference", false),
        ] {
            assert_eq!(
                theorem_agrees(solution, &expected, kind, false),
                strict,
                "{expected}: {solution}"
            );
        }
        assert!(theorem_agrees(
            "[6, 1]",
            &json!([1, 6]),
            "list of integer",
            true
        ));
    }
}
