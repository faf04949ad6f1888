//! Full-text search. What a person types becomes quoted words, so that nothing of it is syntax to SQLite.

use pybench_run::RunError;

/// Maximum number of characters of a search.
const MAX_SEARCH: usize = 1000;
/// Roles to search in; the columns of the index.
const ROLES: [&str; 3] = ["user", "assistant", "tool"];

/// A text as it is indexed. Chinese and Japanese are written without spaces; each of their characters is a word.
pub(crate) fn indexed(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len());
    for c in text.chars() {
        match is_ideograph(c) {
            true => spaced.extend([' ', c, ' ']),
            false => spaced.push(c),
        }
    }
    spaced
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// The condition of FTS5 for what was typed; `None` if that is empty. All words must occur: `word`, `star*`, `"a phrase"`.
///
/// # Errors
/// [`RunError::BadInput`] for another role, for a text without any letter or digit, and for one that is too long.
pub(crate) fn condition(search: &str, role: &str) -> Result<Option<String>, RunError> {
    if !role.is_empty() && !ROLES.contains(&role) {
        return Err(RunError::BadInput(format!(
            "`role` is `{role}`; expected user, assistant or tool"
        )));
    }
    if search.trim().is_empty() {
        return Ok(None);
    }
    if search.chars().count() > MAX_SEARCH {
        return Err(RunError::BadInput(format!(
            "`search` has more than {MAX_SEARCH} characters"
        )));
    }
    let words: Vec<String> = parts(search).filter_map(quoted).collect();
    if words.is_empty() {
        return Err(RunError::BadInput(
            "`search` has no letters or digits; only words can be found".to_owned(),
        ));
    }
    let words = words.join(" AND ");
    Ok(Some(match role {
        "" => words,
        role => format!("{{{role}}} : ({words})"),
    }))
}

/// The words outside of quotes, and what stands between each pair of quotes.
fn parts(search: &str) -> impl Iterator<Item = &str> {
    search.split('"').enumerate().flat_map(|(at, part)| {
        let (phrase, words) = match at % 2 {
            1 => (Some(part), None),
            _ => (None, Some(part.split_whitespace())),
        };
        phrase.into_iter().chain(words.into_iter().flatten())
    })
}

/// A word or phrase between quotes; `None` if it has nothing that is indexed.
fn quoted(part: &str) -> Option<String> {
    let star = if part.ends_with('*') { "*" } else { "" };
    let plain: String = part
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { ' ' })
        .collect();
    let plain = indexed(&plain);
    let words: Vec<&str> = plain.split_whitespace().collect();
    match words.is_empty() {
        true => None,
        false => Some(format!("\"{}\"{star}", words.join(" "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_phrases_are_quoted() {
        let of = |search: &str| condition(search, "").unwrap().unwrap();
        assert_eq!(of("mean value"), r#""mean" AND "value""#);
        assert_eq!(
            of(r#"the "mean value" of"#),
            r#""the" AND "mean value" AND "of""#
        );
        assert_eq!(of("NOT df.mean() *"), r#""NOT" AND "df mean""#);
        assert_eq!(of("comp*"), r#""comp"*"#);
        assert_eq!(of("平均"), r#""平 均""#);
        assert_eq!(
            condition("x", "tool").unwrap().unwrap(),
            r#"{tool} : ("x")"#
        );
        assert_eq!(condition("  ", "user").unwrap(), None);
    }
}
