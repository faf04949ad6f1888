//! Licences as SPDX expressions: which rows may be used under a list of allowed ones.

use std::collections::BTreeSet;

/// What stands for a licence that nobody stated.
pub const NOT_STATED: &str = "NOASSERTION";

/// Names in common use that are no identifiers, and what they mean.
const NAMES: [(&str, &str); 22] = [
    ("mit license", "MIT"),
    ("the mit license", "MIT"),
    ("expat", "MIT"),
    ("apache 2.0", "Apache-2.0"),
    ("apache-2", "Apache-2.0"),
    ("apache license 2.0", "Apache-2.0"),
    ("apache license, version 2.0", "Apache-2.0"),
    ("apache software license", "Apache-2.0"),
    ("bsd", "BSD-3-Clause"),
    ("new bsd", "BSD-3-Clause"),
    ("bsd 3-clause", "BSD-3-Clause"),
    ("bsd 3-clause license", "BSD-3-Clause"),
    ("3-clause bsd", "BSD-3-Clause"),
    ("bsd 2-clause", "BSD-2-Clause"),
    ("cc0", "CC0-1.0"),
    ("cc0 1.0", "CC0-1.0"),
    ("public domain", "CC0-1.0"),
    ("cc by 4.0", "CC-BY-4.0"),
    ("cc-by 4.0", "CC-BY-4.0"),
    ("mozilla public license 2.0 (mpl 2.0)", "MPL-2.0"),
    ("lgpl", "LGPL-2.0-or-later"),
    ("psf", "PSF-2.0"),
];

/// Licences that are allowed, by identifier.
#[derive(Clone, Debug, Default)]
pub struct Allowed(BTreeSet<String>);

impl Allowed {
    /// These, and nothing else. [`NOT_STATED`] allows files of which nothing is known.
    pub fn new<S: AsRef<str>>(licences: &[S]) -> Self {
        Self(licences.iter().map(|one| key(one.as_ref())).collect())
    }

    /// Whether a licence as found is allowed: of `A OR B` one has to be, of `A AND B` both, and of
    /// `A WITH exception` the whole or `A`. What is no expression has to be allowed by its words.
    pub fn allows(&self, found: Option<&str>) -> bool {
        let found = found.map(str::trim).filter(|text| !text.is_empty());
        let Some(found) = found else {
            return self.0.contains(&key(NOT_STATED));
        };
        if self.has(found) {
            return true;
        }
        let tokens = tokens(found);
        let mut rest = tokens.as_slice();
        // What is left over says that it was no expression.
        matches!(self.any(&mut rest, 0), Some(true)) && rest.is_empty()
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains(&key(name))
    }

    fn any(&self, rest: &mut &[String], depth: u32) -> Option<bool> {
        let mut allowed = self.all(rest, depth)?;
        while self.word(rest, "OR") {
            allowed |= self.all(rest, depth)?;
        }
        Some(allowed)
    }

    fn all(&self, rest: &mut &[String], depth: u32) -> Option<bool> {
        let mut allowed = self.one(rest, depth)?;
        while self.word(rest, "AND") {
            allowed &= self.one(rest, depth)?;
        }
        Some(allowed)
    }

    fn one(&self, rest: &mut &[String], depth: u32) -> Option<bool> {
        if depth > 32 {
            return None;
        }
        if self.word(rest, "(") {
            let allowed = self.any(rest, depth + 1)?;
            return self.word(rest, ")").then_some(allowed);
        }
        let (name, tail) = rest.split_first()?;
        if ["(", ")", "AND", "OR", "WITH"].contains(&name.as_str()) {
            return None;
        }
        let mut allowed = self.has(name);
        if !allowed && !is_identifier(name) {
            return None;
        }
        *rest = tail;
        if self.word(rest, "WITH") {
            let (exception, tail) = rest.split_first()?;
            *rest = tail;
            allowed |= self.has(&format!("{name} WITH {exception}"));
        }
        Some(allowed)
    }

    fn word(&self, rest: &mut &[String], word: &str) -> bool {
        let next = rest
            .first()
            .is_some_and(|token| token.eq_ignore_ascii_case(word));
        if next {
            *rest = &rest[1..];
        }
        next
    }
}

/// Whether that may be the identifier of a licence, and is no word of a sentence.
fn is_identifier(name: &str) -> bool {
    name.contains(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase() || c == '-')
}

fn tokens(text: &str) -> Vec<String> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// By what licences are compared: the identifier, in lower case.
fn key(name: &str) -> String {
    spdx(name).to_lowercase()
}

/// The identifier of a licence as found, where it is plain; what was found otherwise.
pub fn spdx(found: &str) -> &str {
    let found = found.trim();
    let lower = found.to_lowercase();
    let known = NAMES.iter().find(|(name, _)| *name == lower);
    known.map_or(found, |(_, identifier)| identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read() {
        let allowed = Allowed::new(&[
            "mit",
            "Apache-2.0",
            "GPL-2.0-only WITH Classpath-exception-2.0",
        ]);
        for yes in [
            "MIT",
            "MIT License",
            "Apache 2.0",
            "MIT OR GPL-3.0-only",
            "GPL-3.0-only or mit",
            "MIT AND Apache-2.0",
            "(MIT AND Apache-2.0) OR GPL-3.0-only",
            "MIT WITH some-exception",
            "GPL-2.0-only WITH Classpath-exception-2.0",
        ] {
            assert!(allowed.allows(Some(yes)), "{yes}");
        }
        for no in [
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "MIT or so",
            "(MIT",
            "MIT)",
            "OR MIT",
            "Files: *",
            "",
            "not MIT",
        ] {
            assert!(!allowed.allows(Some(no)), "{no}");
        }
        assert!(!allowed.allows(None));
        assert!(Allowed::new(&[NOT_STATED]).allows(None));
        assert!(Allowed::new(&["Files: *"]).allows(Some("files: *")));
    }

    #[test]
    fn fuzz_any_text_is_allowed_or_not() {
        let allowed = Allowed::new(&["MIT"]);
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let _ = allowed.allows(Some(&text));
            let _ = allowed.allows(Some(&"(".repeat(bytes.len())));
        });
    }
}
