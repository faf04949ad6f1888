//! Removes secrets and personal data from every text of a row before it is published: keys, tokens, passwords, email
//! addresses, user names and host paths. [`metadata`] extracts the texts from image metadata, so that images with such
//! data are not included in a dataset.
//!
//! A finding is replaced by a placeholder such as `[KEY]`. The placeholder depends only on the kind of finding and
//! reveals nothing about the original. Scrubbing is idempotent.

mod file;
mod metadata;
mod rules;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use file::FileScan;
pub use metadata::metadata;
pub use rules::SecretKind;

/// A scrubbed text and what was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubbedText {
    pub text: String,
    pub found: SecretCounts,
}

/// Number of findings by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretCounts(pub BTreeMap<SecretKind, usize>);

impl SecretCounts {
    /// Number of all findings.
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// Add other counts.
    pub fn merge(&mut self, other: &Self) {
        for (kind, count) in &other.0 {
            *self.0.entry(*kind).or_default() += count;
        }
    }
}

impl fmt::Display for SecretCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.0.keys().map(|kind| kind.placeholder()).collect();
        write!(f, "secrets or personal data: {}", kinds.join(", "))
    }
}

/// Result of scrubbing a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Findings in rows.
    pub found: SecretCounts,
    /// Number of rows with findings.
    pub rows: usize,
    /// Input files that are not included because of their contents: digest, name, and what the search found.
    pub withheld: Vec<(String, String, FileScan)>,
}

/// Scrub a text by the rules that do not depend on this machine.
pub fn text(text: &str) -> ScrubbedText {
    let (text, found) = rules::apply(text);
    ScrubbedText { text, found }
}

/// Scrubs texts by the rules, and by literal strings such as the values of secret environment variables, the home
/// folder and the host name.
#[derive(Clone, Debug, Default)]
pub struct Scrubber {
    /// Literal strings and their kinds, longest first.
    literals: Vec<(String, SecretKind)>,
}

impl Scrubber {
    /// A scrubber with additional literal strings. Strings shorter than 6 bytes are ignored.
    pub fn with(literals: impl IntoIterator<Item = (String, SecretKind)>) -> Self {
        let mut literals: Vec<_> = literals.into_iter().filter(|(w, _)| w.len() >= 6).collect();
        literals.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then(a.cmp(b)));
        literals.dedup();
        Self { literals }
    }

    /// A scrubber with the secrets of this process and machine: values of secret environment variables, home folder
    /// and host name.
    pub fn of_machine() -> Self {
        let is_secret = |name: &str| {
            let name = name.to_ascii_uppercase();
            let parts = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];
            parts.iter().any(|part| name.contains(part)) && !name.ends_with("_PATH")
        };
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            let is_random = value.len() >= 8 && rules::entropy(&value) >= 2.5;
            (is_secret(&name) && is_random && !Path::new(&value).exists())
                .then_some((value, SecretKind::Key))
        });
        let home = std::env::var("HOME").ok();
        // `/root` and the like do not identify a user.
        let home = home.filter(|home| home.matches('/').count() > 1);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let is_distinctive = |c: char| c.is_ascii_digit() || c == '-' || c == '.';
        let host = host.map(|host| host.trim().to_owned());
        let host = host.filter(|host| host.contains(is_distinctive));
        let home = home.map(|home| (home, SecretKind::Path));
        let host = host.map(|host| (host, SecretKind::Host));
        Self::with(variables.chain(home).chain(host))
    }

    /// Scrub a text.
    pub fn text(&self, text: &str) -> ScrubbedText {
        let (mut text, mut found) = (text.to_owned(), SecretCounts::default());
        for (word, kind) in &self.literals {
            let count = text.matches(word.as_str()).count();
            if count > 0 {
                text = text.replace(word.as_str(), kind.placeholder());
                *found.0.entry(*kind).or_default() += count;
            }
        }
        let clean = self::text(&text);
        found.merge(&clean.found);
        ScrubbedText {
            text: clean.text,
            found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_strings_are_scrubbed() {
        let literals = [
            ("Zq9-very-private".to_owned(), SecretKind::Key),
            ("/home/somebody/work".to_owned(), SecretKind::Path),
        ];
        let clean =
            Scrubber::with(literals).text("k=Zq9-very-private at /home/somebody/work/a.csv");
        assert_eq!(clean.text, "k=[KEY] at [PATH]/a.csv");
        assert_eq!(clean.found.total(), 2);
    }

    #[test]
    fn a_text_without_secrets_is_not_changed() {
        let texts = [
            "df.groupby('a').mean() @ W.T",
            "y = X@W.T + b",
            "M = A@B.dot(C)",
            "sk-learn and sk-image",
            "password: str",
            "key = 'price'",
            "token_count = 12",
            "/data/a.csv ./output/b.png /usr/lib/python3.11",
            "https://example.org/a?b=c",
            "请把结果保存到 ./output/结果.csv",
            "sha256 3d7c63917be6ca9b154b565f4779a31fedce57b01b5b9d99d8a34a7608062a1d",
            "AKIAAAAA",
            "secret_key_column = 'customer_name'",
        ];
        for sample in texts {
            let clean = text(sample);
            assert_eq!((clean.text.as_str(), clean.found.total()), (sample, 0));
        }
    }

    proptest::proptest! {
        #[test]
        fn scrubbing_is_idempotent(
            sample in "[a-z@:/ .=\"'-]{0,60}(sk-[A-Za-z0-9]{30}|a.b@c.com|/home/jane/x|)[a-z@:/ .]{0,30}"
        ) {
            let once = text(&sample).text;
            proptest::prop_assert_eq!(&text(&once).text, &once);
        }
    }

    #[test]
    fn fuzz_scrubbing() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let scrubber = Scrubber::default();
            let clean = scrubber.text(&String::from_utf8_lossy(bytes));
            assert_eq!(scrubber.text(&clean.text).text, clean.text);
            let starts: [&[u8]; 4] = [
                b"\x89PNG\r\n\x1a\n",
                b"\xff\xd8",
                b"GIF89a",
                b"RIFF\0\0\0\0WEBP",
            ];
            for start in starts {
                let _ = scrubber.file(&[start, bytes].concat());
            }
        });
    }
}
