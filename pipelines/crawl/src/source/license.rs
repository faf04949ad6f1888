//! Maps the license names that services use to SPDX identifiers.

/// The SPDX identifier of a license. An unknown name is returned as it is, cut to 100 characters.
pub(super) fn spdx(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let found = creative_commons(text).or_else(|| known(text).map(str::to_owned));
    Some(found.unwrap_or_else(|| text.chars().filter(|c| !c.is_control()).take(100).collect()))
}

/// Recognizes `https://creativecommons.org/licenses/by-sa/4.0/`, `cc-by-sa-4.0` and `CC BY-SA 4.0`, also inside
/// a longer text.
fn creative_commons(text: &str) -> Option<String> {
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

fn known(text: &str) -> Option<&'static str> {
    Some(match text.to_ascii_lowercase().as_str() {
        "mit" | "mit license" | "mit-license" => "MIT",
        "apache-2.0" | "apache 2.0" | "apache2.0" => "Apache-2.0",
        "bsd-3-clause" => "BSD-3-Clause",
        "bsd-2-clause" => "BSD-2-Clause",
        "gpl-3.0" | "gpl 3" => "GPL-3.0-only",
        "gpl-2.0" | "gpl 2" => "GPL-2.0-only",
        "odbl" | "odbl-1.0" => "ODbL-1.0",
        "pddl" | "pddl-1.0" => "PDDL-1.0",
        "odc-by" | "odc-by-1.0" => "ODC-By-1.0",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
