//! Takes secrets and persons out of what leaves the machine: keys, tokens, passwords, mail addresses,
//! user names and host paths, in every text of a row. [`metadata`] reads what pictures say of
//! themselves, so that a file with such a thing in it is not shipped.
//!
//! What is found is replaced by a word in brackets, the same for every find, so that no digest and no
//! number gives away what stood there. Scrubbing twice changes nothing.

mod metadata;
mod rules;

use std::collections::BTreeMap;
use std::path::Path;

use pybench::grade::CheckSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Row;

pub use metadata::metadata;
pub use rules::Kind;

/// A text without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clean {
    /// The text.
    pub text: String,
    /// What was found.
    pub found: Found,
}

/// Finds by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found(pub BTreeMap<Kind, usize>);

impl Found {
    /// All of them.
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// Add other finds.
    pub fn merge(&mut self, other: &Self) {
        for (kind, count) in &other.0 {
            *self.0.entry(*kind).or_default() += count;
        }
    }
}

/// What scrubbing a dataset came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Finds in rows.
    pub found: Found,
    /// Rows with a find.
    pub rows: usize,
    /// Input files left out because of what they hold: digest, name and finds.
    pub withheld: Vec<(String, String, Found)>,
}

/// Scrub by the rules that need to know nothing of this machine.
pub fn text(text: &str) -> Clean {
    let (text, found) = rules::apply(text);
    Clean { text, found }
}

/// The rules, and what this machine adds: values of secret environment variables, its home folder and
/// its name.
#[derive(Clone, Debug, Default)]
pub struct Scrubber {
    /// Exact words and what they are, longest first.
    words: Vec<(String, Kind)>,
}

impl Scrubber {
    /// With those words besides the rules.
    pub fn with(words: impl IntoIterator<Item = (String, Kind)>) -> Self {
        let mut words: Vec<_> = words.into_iter().filter(|(w, _)| w.len() >= 6).collect();
        words.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then(a.cmp(b)));
        words.dedup();
        Self { words }
    }

    /// With what this process knows that nobody else should.
    pub fn of_machine() -> Self {
        let secret = |name: &str| {
            let name = name.to_ascii_uppercase();
            let parts = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];
            parts.iter().any(|part| name.contains(part)) && !name.ends_with("_PATH")
        };
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            let telling = value.len() >= 8 && rules::entropy(&value) >= 2.5;
            (secret(&name) && telling && !Path::new(&value).exists()).then_some((value, Kind::Key))
        });
        let home = std::env::var("HOME").ok();
        // `/root` and the like name nobody.
        let home = home.filter(|home| home.matches('/').count() > 1);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let telling = |c: char| c.is_ascii_digit() || c == '-' || c == '.';
        let host = host.map(|host| host.trim().to_owned());
        let host = host.filter(|host| host.contains(telling));
        let named = home.map(|home| (home, Kind::Path));
        let host = host.map(|host| (host, Kind::Host));
        Self::with(variables.chain(named).chain(host))
    }

    /// The text without secrets.
    pub fn text(&self, text: &str) -> Clean {
        let (mut text, mut found) = (text.to_owned(), Found::default());
        for (word, kind) in &self.words {
            let count = text.matches(word.as_str()).count();
            if count > 0 {
                text = text.replace(word.as_str(), kind.placeholder());
                *found.0.entry(*kind).or_default() += count;
            }
        }
        let clean = self::text(&text);
        found.merge(&clean.found);
        Clean {
            text: clean.text,
            found,
        }
    }

    /// Scrub every text of a row; [`Row::scrubbed`] counts the finds.
    pub fn row(&self, row: &mut Row) -> Found {
        let mut found = Found::default();
        let mut clean = |text: &mut String| {
            let scrubbed = self.text(text);
            if scrubbed.found.total() > 0 {
                *text = scrubbed.text;
                found.merge(&scrubbed.found);
            }
        };
        row.messages.iter_mut().for_each(|m| clean(&mut m.content));
        for text in [
            &mut row.query,
            &mut row.subcategory,
            &mut row.keyword,
            &mut row.template,
            &mut row.teacher,
            &mut row.environment,
            &mut row.grading.reference,
        ] {
            clean(text);
        }
        for file in &mut row.files {
            clean(&mut file.name);
            clean(&mut file.origin);
            file.licence.iter_mut().for_each(&mut clean);
        }
        for file in &mut row.grading.held_out {
            clean(&mut file.name);
            clean(&mut file.origin);
            file.licence.iter_mut().for_each(&mut clean);
        }
        row.outputs.iter_mut().for_each(|o| clean(&mut o.path));
        row.grading.outputs.iter_mut().for_each(&mut clean);
        row.checks.iter_mut().for_each(|c| clean(&mut c.subject));
        row.interpreter.network.iter_mut().for_each(&mut clean);
        for check in &mut row.grading.checks {
            scrub_check(check, &mut clean);
        }
        row.scrubbed += u32::try_from(found.total()).unwrap_or(u32::MAX);
        found
    }

    /// What a file holds that should not leave: in its text, where it is one, or in what it says of
    /// itself, where it is a picture.
    pub fn file(&self, bytes: &[u8]) -> Found {
        let mut found = Found::default();
        let texts = match std::str::from_utf8(bytes) {
            Ok(text) => vec![text.to_owned()],
            Err(_) => metadata(bytes),
        };
        for text in texts {
            found.merge(&self.text(&text).found);
        }
        found
    }
}

/// Every text of a check; one that is no check any more without its secret keeps its shape.
fn scrub_check(check: &mut CheckSpec, clean: &mut impl FnMut(&mut String)) {
    let Ok(mut value) = serde_json::to_value(&*check) else {
        return;
    };
    let before = value.clone();
    walk(&mut value, clean);
    if value != before
        && let Ok(scrubbed) = serde_json::from_value(value)
    {
        *check = scrubbed;
    }
}

fn walk(value: &mut Value, clean: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => clean(text),
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, clean)),
        Value::Object(map) => map.values_mut().for_each(|item| walk(item, clean)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_machine_go_too() {
        let words = [
            ("Zq9-very-private".to_owned(), Kind::Key),
            ("/home/somebody/work".to_owned(), Kind::Path),
        ];
        let clean = Scrubber::with(words).text("k=Zq9-very-private at /home/somebody/work/a.csv");
        assert_eq!(clean.text, "k=[KEY] at [PATH]/a.csv");
        assert_eq!(clean.found.total(), 2);
    }

    #[test]
    fn a_clean_text_is_left_as_it_is() {
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
        fn scrubbing_twice_changes_nothing(
            sample in "[a-z@:/ .=\"'-]{0,60}(sk-[A-Za-z0-9]{30}|a.b@c.com|/home/jane/x|)[a-z@:/ .]{0,30}"
        ) {
            let once = text(&sample).text;
            proptest::prop_assert_eq!(&text(&once).text, &once);
        }
    }

    #[test]
    fn fuzz_any_bytes_are_scrubbed() {
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
