//! License checks: evaluates SPDX expressions against a list of allowed licenses.

use std::collections::BTreeSet;

/// SPDX placeholder for a missing license.
pub const NOT_STATED: &str = "NOASSERTION";

/// Common license names that are not SPDX identifiers, and their identifiers.
const ALIASES: [(&str, &str); 22] = [
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

/// A list of allowed licenses.
#[derive(Clone, Debug, Default)]
pub struct LicenseAllowList(BTreeSet<String>);

impl LicenseAllowList {
    /// Allow only these licenses. [`NOT_STATED`] allows files without a known license.
    pub fn new<S: AsRef<str>>(licenses: &[S]) -> Self {
        Self(licenses.iter().map(|one| key(one.as_ref())).collect())
    }

    /// Whether a license, as found at its origin, is allowed. `A OR B` needs one allowed license, `A AND B` needs
    /// both, `A WITH exception` needs `A` or the whole. Text that is not an SPDX expression must be in the list
    /// literally.
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
        // Remaining tokens mean that it is not a valid expression.
        matches!(self.parse_or(&mut rest, 0), Some(true)) && rest.is_empty()
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains(&key(name))
    }

    fn parse_or(&self, rest: &mut &[String], depth: u32) -> Option<bool> {
        let mut allowed = self.parse_and(rest, depth)?;
        while self.consume(rest, "OR") {
            allowed |= self.parse_and(rest, depth)?;
        }
        Some(allowed)
    }

    fn parse_and(&self, rest: &mut &[String], depth: u32) -> Option<bool> {
        let mut allowed = self.parse_term(rest, depth)?;
        while self.consume(rest, "AND") {
            allowed &= self.parse_term(rest, depth)?;
        }
        Some(allowed)
    }

    fn parse_term(&self, rest: &mut &[String], depth: u32) -> Option<bool> {
        if depth > 32 {
            return None;
        }
        if self.consume(rest, "(") {
            let allowed = self.parse_or(rest, depth + 1)?;
            return self.consume(rest, ")").then_some(allowed);
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
        if self.consume(rest, "WITH") {
            let (exception, tail) = rest.split_first()?;
            *rest = tail;
            allowed |= self.has(&format!("{name} WITH {exception}"));
        }
        Some(allowed)
    }

    fn consume(&self, rest: &mut &[String], word: &str) -> bool {
        let next = rest
            .first()
            .is_some_and(|token| token.eq_ignore_ascii_case(word));
        if next {
            *rest = &rest[1..];
        }
        next
    }
}

/// Whether a token looks like a license identifier, not like a word of a sentence.
fn is_identifier(name: &str) -> bool {
    name.contains(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase() || c == '-')
}

fn tokens(text: &str) -> Vec<String> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// Key for comparing licenses: the identifier in lower case.
fn key(name: &str) -> String {
    spdx(name).to_lowercase()
}

/// The SPDX identifier of a license if it is a known alias, otherwise the text itself.
pub fn spdx(found: &str) -> &str {
    let found = found.trim();
    let lower = found.to_lowercase();
    let known = ALIASES.iter().find(|(name, _)| *name == lower);
    known.map_or(found, |(_, identifier)| identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_evaluated() {
        let allowed = LicenseAllowList::new(&[
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
        assert!(LicenseAllowList::new(&[NOT_STATED]).allows(None));
        assert!(LicenseAllowList::new(&["Files: *"]).allows(Some("files: *")));
    }

    #[test]
    fn fuzz_license_expressions() {
        let allowed = LicenseAllowList::new(&["MIT"]);
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let _ = allowed.allows(Some(&text));
            let _ = allowed.allows(Some(&"(".repeat(bytes.len())));
        });
    }
}
