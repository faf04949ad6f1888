//! Finds the columns, files, pages and frames that a query mentions, from the words around them.

use std::sync::LazyLock;

use pybench_types::task::FileKind;
use regex::Regex;

/// A name in English or Chinese quotation marks.
const QUOTED: &str =
    r#"(?:"[^"\n]{1,80}"|“[^”\n]{1,80}”|`[^`\n]{1,80}`|「[^」\n]{1,80}」|\B'[^'\n]{1,80}'\B)"#;
/// The separator between names of a list.
const SEPARATOR: &str = r"(?:\s*(?:,|，|、|/|and|or|和|与|及|或)\s*(?:and\s+|or\s+|the\s+)?)";

/// Compiles a constant pattern. A test checks that every pattern compiles.
pub(super) fn compiled(pattern: &str) -> Option<Regex> {
    Regex::new(pattern).ok()
}

/// `column "a"`, `columns "a", "b" and "c"`, `列“a”`.
static AFTER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let word =
        r"(?i:\bcolumns?\b|\bfields?\b|列|字段)(?:\s*(?i:named|called|名为|为))?\s*[:：]?\s*";
    compiled(&format!("{word}({QUOTED}(?:{SEPARATOR}{QUOTED})*)"))
});

/// `the "a" column`, `the "a" and "b" columns`, `“a”列`.
static BEFORE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let word = r"\s*(?:(?i:column|field)s?\b|列|字段)";
    compiled(&format!("({QUOTED}(?:{SEPARATOR}{QUOTED})*){word}"))
});

static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| compiled(QUOTED));

static FILE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let kinds = FileKind::ALL.map(FileKind::name).join("|");
    compiled(&format!(r"(?i)[\w()+-][\w.()+-]*\.(?:{kinds}|jpg|htm)\b"))
});

static PAGE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compiled(
        r"(?i)\bpages?\s+(\d{1,6})(?:\s*(?:-|–|to|and|through)\s*(\d{1,6}))?|\b(\d{1,6})(?:st|nd|rd|th)\s+page\b|第\s*(\d{1,6})\s*页",
    )
});

static FRAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compiled(
        r"(?i)\bframes?\s+(\d{1,6})(?:\s*(?:-|–|to|and|through)\s*(\d{1,6}))?|\b(\d{1,6})(?:st|nd|rd|th)\s+frame\b|第\s*(\d{1,6})\s*帧",
    )
});

/// Names that the query calls columns or fields.
pub(super) fn columns(query: &str) -> Vec<&str> {
    let lists = [&AFTER, &BEFORE]
        .into_iter()
        .filter_map(|pattern| pattern.as_ref());
    let lists = lists.flat_map(|pattern| pattern.captures_iter(query));
    let lists = lists
        .filter_map(|found| found.get(1))
        .map(|list| list.as_str());
    let names = lists.flat_map(|list| NAME.iter().flat_map(move |name| name.find_iter(list)));
    let mut names: Vec<&str> = names.map(|name| unquoted(name.as_str())).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Removes the quotation marks.
fn unquoted(quoted: &str) -> &str {
    let mut inner = quoted.chars();
    inner.next();
    inner.next_back();
    inner.as_str()
}

/// File names, recognized by their extension, without folders.
pub(super) fn files(query: &str) -> Vec<&str> {
    let found = FILE.iter().flat_map(|pattern| pattern.find_iter(query));
    found.map(|name| name.as_str()).collect()
}

/// Page numbers.
pub(super) fn pages(query: &str) -> Vec<u64> {
    numbers(&PAGE, query)
}

/// Frame numbers.
pub(super) fn frames(query: &str) -> Vec<u64> {
    numbers(&FRAME, query)
}

fn numbers(pattern: &Option<Regex>, query: &str) -> Vec<u64> {
    let found = pattern
        .iter()
        .flat_map(|pattern| pattern.captures_iter(query));
    let groups = found.flat_map(|found| {
        let groups = found.iter().skip(1).flatten();
        groups
            .map(|group| group.as_str().to_owned())
            .collect::<Vec<_>>()
    });
    groups.filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        for pattern in [&AFTER, &BEFORE, &NAME, &FILE, &PAGE, &FRAME] {
            assert!(pattern.is_some());
        }
    }

    #[test]
    fn columns_are_found_in_many_phrasings() {
        for (query, expected) in [
            ("the mean of the column \"price\".", vec!["price"]),
            (
                "Use the columns `a`, \"b c\" and 'd'.",
                vec!["a", "b c", "d"],
            ),
            ("Group by the \"city\" column", vec!["city"]),
            ("sum the “x” and “y” columns", vec!["x", "y"]),
            ("a column named \"total\"", vec!["total"]),
            (
                "按“城市”列分组，计算列“价格”、“数量”的均值",
                vec!["价格", "城市", "数量"],
            ),
            ("It isn't Bob's column, it's \"quoted\" text", vec![]),
            ("Print \"done\".", vec![]),
        ] {
            assert_eq!(columns(query), expected, "{query}");
        }
    }

    #[test]
    fn files_pages_and_frames_are_found() {
        let query =
            "Read ./data/my-orders_2.csv, e.g. pages 3 to 12 and the 4th page, and save a.b.PNG.";
        assert_eq!(files(query), ["my-orders_2.csv", "a.b.PNG"]);
        assert_eq!(pages(query), [3, 12, 4]);
        assert_eq!(pages("第 7 页"), [7]);
        assert_eq!(frames("frame 2 and 第3帧"), [2, 3]);
        assert!(files("Compare 3.5 with version 2.0 of it.").is_empty());
    }

    #[test]
    fn fuzz_any_query_can_be_parsed() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            assert!(columns(&text).iter().all(|name| text.contains(name)));
            assert!(files(&text).iter().all(|name| text.contains(name)));
            let _ = (pages(&text), frames(&text));
        });
    }
}
