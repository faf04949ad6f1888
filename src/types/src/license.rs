//! Licenses: SPDX identifiers of the names that services use, and lists of allowed licenses.

use std::collections::BTreeSet;

use ::spdx::{AdditionItem, Expression, LicenseItem, LicenseReq, ParseMode};

/// SPDX placeholder for a missing license.
pub const NOT_STATED: &str = "NOASSERTION";
/// Maximum length of a license that is not an SPDX identifier, in characters.
const MAX_NAME: usize = 100;

/// Names of services and package indexes, in lower case, and their SPDX identifiers.
const NAMES: [(&str, &str); 26] = [
    ("mit", "MIT"),
    ("mit license", "MIT"),
    ("mit-license", "MIT"),
    ("the mit license", "MIT"),
    ("apache-2.0", "Apache-2.0"),
    ("apache 2.0", "Apache-2.0"),
    ("apache2.0", "Apache-2.0"),
    ("apache license 2.0", "Apache-2.0"),
    ("apache software license", "Apache-2.0"),
    ("bsd-3-clause", "BSD-3-Clause"),
    ("bsd 3-clause", "BSD-3-Clause"),
    ("bsd 3-clause license", "BSD-3-Clause"),
    ("new bsd", "BSD-3-Clause"),
    ("bsd-2-clause", "BSD-2-Clause"),
    ("gpl-3.0", "GPL-3.0-only"),
    ("gpl 3", "GPL-3.0-only"),
    ("gpl-2.0", "GPL-2.0-only"),
    ("gpl 2", "GPL-2.0-only"),
    (
        "gnu general public license v2 or later (gplv2+)",
        "GPL-2.0-or-later",
    ),
    ("historical permission notice and disclaimer (hpnd)", "HPND"),
    ("odbl", "ODbL-1.0"),
    ("odbl-1.0", "ODbL-1.0"),
    ("pddl", "PDDL-1.0"),
    ("pddl-1.0", "PDDL-1.0"),
    ("odc-by", "ODC-By-1.0"),
    ("odc-by-1.0", "ODC-By-1.0"),
];

/// Less exact names, in lower case. They count for lists of allowed licenses only.
const LOOSE_NAMES: [(&str, &str); 14] = [
    ("expat", "MIT"),
    ("apache-2", "Apache-2.0"),
    ("apache license, version 2.0", "Apache-2.0"),
    ("bsd", "BSD-3-Clause"),
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

/// The SPDX identifier of a license. An unknown name is returned as it is, cut to 100 characters.
pub fn spdx(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let found = creative_commons(text).or_else(|| known(&NAMES, text).map(str::to_owned));
    let plain = || text.chars().filter(|c| !c.is_control()).take(MAX_NAME);
    Some(found.unwrap_or_else(|| plain().collect()))
}

/// Recognizes `https://creativecommons.org/licenses/by-sa/4.0/`, `cc-by-sa-4.0` and `CC BY-SA 4.0`, also inside
/// a longer text.
fn creative_commons(text: &str) -> Option<String> {
    // Part of an expression must not stand for the whole.
    if text.contains(" AND ") || text.contains(" OR ") {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    if lower.contains("publicdomain/zero") || lower.starts_with("cc0") {
        return Some("CC0-1.0".to_owned());
    }
    let rest = match lower.split_once("creativecommons.org/licenses/") {
        Some((_, rest)) => rest.to_owned(),
        // The short name may follow the long one in brackets.
        None => lower
            .get(lower.find("cc by").or_else(|| lower.find("cc-by"))? + 3..)?
            .to_owned(),
    };
    let mut words = rest
        .split(['-', '/', ' ', ')'])
        .filter(|word| !word.is_empty());
    let mut name = vec!["CC".to_owned()];
    for word in words.by_ref() {
        match word {
            "by" | "nc" | "nd" | "sa" => name.push(word.to_uppercase()),
            "1.0" | "2.0" | "2.5" | "3.0" | "4.0" => {
                name.push(word.to_owned());
                return (name.len() > 2 && name[1] == "BY").then(|| name.join("-"));
            }
            _ => return None,
        }
    }
    None
}

fn known(names: &[(&str, &'static str)], text: &str) -> Option<&'static str> {
    let lower = text.to_lowercase();
    let found = names.iter().find(|(name, _)| *name == lower);
    found.map(|(_, identifier)| *identifier)
}

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
            return self.has(NOT_STATED);
        };
        if self.has(found) {
            return true;
        }
        // Licenses that are not in SPDX's list may be in ours.
        let mode = ParseMode {
            allow_deprecated: true,
            allow_postfix_plus_on_gpl: true,
            allow_unknown: true,
            ..ParseMode::STRICT
        };
        Expression::parse_mode(found, mode).is_ok_and(|expression| {
            let mut terms = expression.requirements();
            terms.all(|term| self.is_license(&term.req))
                && expression.evaluate(|term| self.covers(term))
        })
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains(&key(name))
    }

    /// Whether a term is a license, not a word of a sentence.
    fn is_license(&self, term: &LicenseReq) -> bool {
        let name = name(&term.license);
        let looks_so = |c: char| c.is_ascii_digit() || c.is_ascii_uppercase() || c == '-';
        self.has(&name) || name.contains(looks_so)
    }

    fn covers(&self, term: &LicenseReq) -> bool {
        let name = name(&term.license);
        let exception = term.addition.as_ref().map(|addition| match addition {
            AdditionItem::Spdx(exception) => exception.name.to_owned(),
            AdditionItem::Other(exception) => exception.add_ref.clone(),
        });
        let with = |exception| self.has(&format!("{name} WITH {exception}"));
        self.has(&name) || exception.is_some_and(with)
    }
}

/// The name of a license as written; the parser makes a reference of an unknown one.
fn name(license: &LicenseItem) -> String {
    match license {
        LicenseItem::Other(other) if other.doc_ref.is_none() => other.lic_ref.clone(),
        license => license.to_string(),
    }
}

/// Key for comparing licenses: the identifier in lower case.
fn key(name: &str) -> String {
    let name = name.trim();
    let found = known(&NAMES, name).or_else(|| known(&LOOSE_NAMES, name));
    let key = found.unwrap_or(name).to_lowercase();
    key.strip_prefix("licenseref-")
        .map_or(key.clone(), str::to_owned)
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
            "LicenseRef-ours",
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
            "LicenseRef-ours OR GPL-3.0+",
            "Our-1.0 OR MIT",
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

    #[test]
    fn licenses_map_to_spdx_identifiers() {
        for (text, name) in [
            ("http://creativecommons.org/licenses/by/4.0/", "CC-BY-4.0"),
            (
                "https://creativecommons.org/licenses/by-nc-sa/3.0",
                "CC-BY-NC-SA-3.0",
            ),
            (
                "http://creativecommons.org/publicdomain/zero/1.0/",
                "CC0-1.0",
            ),
            ("CC0: Public Domain", "CC0-1.0"),
            ("cc-by-4.0", "CC-BY-4.0"),
            ("CC BY-SA 4.0", "CC-BY-SA-4.0"),
            ("Attribution 4.0 International (CC BY 4.0)", "CC-BY-4.0"),
            ("mit", "MIT"),
            ("apache-2.0", "Apache-2.0"),
            (
                "Other (specified in description)",
                "Other (specified in description)",
            ),
            ("cc-by-odd", "cc-by-odd"),
            ("GPL-3.0-only AND CC-BY-4.0", "GPL-3.0-only AND CC-BY-4.0"),
        ] {
            assert_eq!(spdx(text).as_deref(), Some(name), "{text}");
        }
        assert_eq!(spdx("  "), None);
    }

    #[test]
    fn fuzz_licenses() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let found = spdx(&String::from_utf8_lossy(bytes));
            assert!(found.is_none_or(|name| name.chars().count() <= 100));
        });
    }
}
