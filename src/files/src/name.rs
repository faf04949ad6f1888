//! File names that are safe in a task's `./data` folder, and paths that are safe to print in a report.

use crate::sniff::extension_kind;
use pybench_types::task::FileKind;

/// Longest file name including its extension, in bytes; short enough for file systems and prompts.
const MAX_NAME: usize = 80;

/// The last component of a path or URL as a safe file name with an extension that fits `kind`.
///
/// Letters and digits of any script, `-`, `_` and `.` stay; everything else becomes `_`.
pub fn safe_name(path: &str, kind: FileKind) -> String {
    let last = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let (stem, extension) = match last.rsplit_once('.') {
        Some((stem, extension)) if extension_kind(extension) == Some(kind) => {
            (stem, extension.to_ascii_lowercase())
        }
        // The content determined the type: replace a wrong extension, keep an unknown one in the stem.
        Some((stem, extension)) if extension_kind(extension).is_some() => {
            (stem, kind.name().to_owned())
        }
        _ => (last, kind.name().to_owned()),
    };
    let mut stem = replace_unsafe(stem);
    while stem.len() + extension.len() + 1 > MAX_NAME {
        stem.pop();
    }
    if stem.is_empty() {
        stem.push_str("file");
    }
    format!("{stem}.{extension}")
}

fn replace_unsafe(stem: &str) -> String {
    let safe = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let replaced: String = stem
        .chars()
        .map(|c| if safe(c) { c } else { '_' })
        .collect();
    replaced.trim_start_matches(['.', '-']).to_owned()
}

/// Adds a tag to a file name to make it unique: `cars.csv` becomes `cars-1a2b3c.csv`.
pub fn with_tag(name: &str, tag: &str) -> String {
    match name.rsplit_once('.') {
        Some((stem, extension)) => format!("{stem}-{tag}.{extension}"),
        None => format!("{name}-{tag}"),
    }
}

/// A path or member name that is safe to print: control characters are escaped, and the text is cut to 300
/// characters.
pub fn printable(path: &str) -> String {
    let escaped = path.chars().flat_map(|c| {
        let control = c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202e}');
        let escape = control.then(|| c.escape_default());
        let plain = (!control).then_some(c);
        escape.into_iter().flatten().chain(plain)
    });
    escaped.take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_made_safe_and_stay_readable() {
        let cases = [
            ("data/cars.csv", FileKind::Csv, "cars.csv"),
            ("photo.JPG", FileKind::Jpeg, "photo.jpg"),
            ("wrong.csv", FileKind::Png, "wrong.png"),
            ("a b\n'c'.txt", FileKind::Txt, "a_b__c_.txt"),
            ("数据.csv", FileKind::Csv, "数据.csv"),
            ("../..", FileKind::Csv, "file.csv"),
            (".hidden.md", FileKind::Md, "hidden.md"),
            ("archive.tar", FileKind::Txt, "archive.tar.txt"),
        ];
        for (path, kind, expected) in cases {
            assert_eq!(safe_name(path, kind), expected, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_name_escapes(path in "\\PC{0,200}|.{0,200}") {
            let name = safe_name(&path, FileKind::Csv);
            prop_assert!(!name.contains(['/', '\\', '\0', '\n', '\'', '"', ' ']));
            prop_assert!(!name.starts_with('.') && name.len() <= MAX_NAME);
            prop_assert!(name.ends_with(".csv"));
            prop_assert!(!printable(&path).contains(char::is_control));
        }
    }
}
