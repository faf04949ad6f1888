//! Which templates cover which ability of the PyBench benchmark: `pipelines/library/abilities.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Deserialize;
use toml::Spanned;

use super::Template;
use super::problem::{Problem, TomlSource, closest};

/// One ability that the PyBench benchmark tests, and the templates that cover it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ability {
    /// Our name of the ability.
    pub name: String,
    /// The benchmark's categories: `category1`, `category2`, `category3`.
    pub categories: [String; 3],
    /// Ids of templates, at least one.
    pub templates: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AbilitiesFile {
    #[serde(rename = "ability", default)]
    abilities: Vec<AbilityEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AbilityEntry {
    name: Spanned<String>,
    categories: [String; 3],
    templates: Vec<Spanned<String>>,
}

/// Parses the file; `file` is its name in messages. Every listed template must exist, every ability needs a
/// template, and none may be listed twice.
pub(super) fn parse(
    file: &str,
    text: &str,
    templates: &BTreeMap<String, Template>,
) -> Result<Vec<Ability>, Vec<Problem>> {
    let source = TomlSource { file, text };
    let raw: AbilitiesFile = toml::from_str(text).map_err(|error| vec![source.toml(&error)])?;
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in &raw.abilities {
        if !seen.insert(&entry.categories) {
            let message = format!("{} is listed twice", entry.categories.join(" / "));
            problems.push(source.at(&entry.name.span(), message));
        }
        if entry.templates.is_empty() {
            let message = format!("no template covers `{}`", entry.name.get_ref());
            problems.push(source.at(&entry.name.span(), message));
        }
        for id in &entry.templates {
            let wrong = id.get_ref().as_str();
            if !templates.contains_key(wrong) {
                let hint = closest(wrong, templates.keys().map(String::as_str));
                let hint = hint.map(|h| format!("; did you mean `{h}`?"));
                let message = format!("no template `{wrong}`{}", hint.unwrap_or_default());
                problems.push(source.at(&id.span(), message));
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let plain = |ids: Vec<Spanned<String>>| ids.into_iter().map(Spanned::into_inner).collect();
    let abilities = raw.abilities.into_iter().map(|entry| Ability {
        name: entry.name.into_inner(),
        categories: entry.categories,
        templates: plain(entry.templates),
    });
    Ok(abilities.collect())
}

/// Formats a table: abilities and their templates, grouped by the benchmark's categories; then the templates of
/// `all` that no ability lists.
pub(super) fn table<'a>(abilities: &[Ability], all: impl Iterator<Item = &'a str>) -> String {
    let width = abilities.iter().map(|a| a.name.len()).max().unwrap_or(0);
    let mut groups: Vec<(&str, Vec<&Ability>)> = Vec::new();
    for ability in abilities {
        let group = ability.categories[0].as_str();
        match groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, members)) => members.push(ability),
            None => groups.push((group, vec![ability])),
        }
    }
    let mut text = String::new();
    // Writing to a String cannot fail.
    for (group, members) in groups {
        let _ = writeln!(text, "{}", flat(group));
        for ability in members {
            let names = flat(&ability.categories[1..].join(" / "));
            let templates = ability.templates.join(", ");
            let _ = writeln!(text, "  {:width$}  {templates}  [{names}]", ability.name);
        }
    }
    let named: BTreeSet<&str> = abilities
        .iter()
        .flat_map(|a| a.templates.iter().map(String::as_str))
        .collect();
    let (used, extra): (Vec<_>, Vec<_>) = all.partition(|id| named.contains(id));
    let _ = writeln!(text, "Beyond PyBench\n  {}", extra.join(", "));
    let _ = writeln!(
        text,
        "{} abilities, each with a template; {} of {} templates cover them",
        abilities.len(),
        used.len(),
        used.len() + extra.len()
    );
    text
}

/// Removes line breaks, which the benchmark's names contain.
fn flat(name: &str) -> String {
    name.split('\n').collect()
}

#[cfg(test)]
mod tests {
    use super::super::Library;
    use super::*;

    fn problems(text: &str) -> String {
        let library = Library::embedded().unwrap();
        match parse("abilities.toml", text, &library.templates) {
            Ok(abilities) => format!("{} abilities\n", abilities.len()),
            Err(problems) => problems.iter().map(|p| format!("{p}\n")).collect(),
        }
    }

    #[test]
    fn problems_have_a_line_and_a_suggestion() {
        let entry = |name: &str, templates: &str| {
            format!(
                "[[ability]]\nname = \"{name}\"\ncategories = [\"a\", \"b\", \"{name}\"]\ntemplates = {templates}\n"
            )
        };
        let good = entry("pies", "[\"plot-pie\"]");
        assert_eq!(problems(&good), "1 abilities\n");
        assert_eq!(
            problems(&format!("{good}{good}")),
            "abilities.toml:6: a / b / pies is listed twice\n"
        );
        assert_eq!(
            problems(&entry("pies", "[]")),
            "abilities.toml:2: no template covers `pies`\n"
        );
        assert_eq!(
            problems(&entry("pies", "[\"plot-pye\"]")),
            "abilities.toml:4: no template `plot-pye`; did you mean `plot-pie`?\n"
        );
        assert!(problems("[[ability]]\nname = 1").starts_with("abilities.toml:2:"));
    }

    #[test]
    fn the_table_lists_every_template() {
        let library = Library::embedded().unwrap();
        let text = library.coverage();
        for template in library.templates() {
            assert!(text.contains(template.name()), "{}", template.name());
        }
        assert!(text.contains("each with a template"), "{text}");
    }
}
