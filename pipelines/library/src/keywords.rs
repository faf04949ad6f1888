//! The keyword dictionary of the PyBench paper: category → subcategory → keyword.

use std::collections::BTreeMap;

use pybench_types::task::{Category, FileKind};
use serde::Deserialize;
use toml::Spanned;

use super::problem::{Problem, TomlSource, closest};

/// A keyword, which names a topic of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyword {
    /// Unique in the dictionary.
    pub name: String,
    /// Category of the paper.
    pub category: Category,
    /// Group within the category.
    pub subcategory: String,
    /// File types that the keyword applies to; empty if it needs no file.
    pub files: Vec<FileKind>,
    /// Python packages that tasks of this keyword use.
    pub packages: Vec<String>,
}

/// The keyword dictionary, by name.
#[derive(Clone, Debug, Default)]
pub struct Keywords(BTreeMap<String, Keyword>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeywordEntry {
    files: Vec<FileKind>,
    packages: Vec<String>,
}

type Subcategories = BTreeMap<String, BTreeMap<Spanned<String>, KeywordEntry>>;

impl Keywords {
    /// Parses the dictionary; `file` is its name in messages.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let source = TomlSource { file, text };
        let raw: BTreeMap<Category, Subcategories> =
            toml::from_str(text).map_err(|error| vec![source.toml(&error)])?;
        let mut keywords = BTreeMap::new();
        let mut problems = Vec::new();
        for (category, subcategories) in raw {
            for (subcategory, entries) in subcategories {
                for (name, entry) in entries {
                    let span = name.span();
                    let keyword = Keyword {
                        name: name.into_inner(),
                        category,
                        subcategory: subcategory.clone(),
                        files: entry.files,
                        packages: entry.packages,
                    };
                    if let Some(earlier) = keywords.insert(keyword.name.clone(), keyword) {
                        let Keyword {
                            name, subcategory, ..
                        } = earlier;
                        problems.push(source.at(
                            &span,
                            format!("keyword `{name}` is already listed under `{subcategory}`"),
                        ));
                    }
                }
            }
        }
        if problems.is_empty() {
            Ok(Self(keywords))
        } else {
            Err(problems)
        }
    }

    /// The subcategory of a keyword; empty for an unknown one.
    pub fn subcategory(&self, name: &str) -> String {
        let keyword = self.get(name);
        keyword
            .map(|keyword| keyword.subcategory.clone())
            .unwrap_or_default()
    }

    pub fn get(&self, name: &str) -> Option<&Keyword> {
        self.0.get(name)
    }

    /// All keywords, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &Keyword> {
        self.0.values()
    }

    /// The known keyword that is most similar to an unknown one.
    pub fn suggest(&self, wrong: &str) -> Option<&str> {
        closest(wrong, self.0.keys().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        let problems = Keywords::parse("keywords.toml", text).unwrap_err();
        problems[0].to_string()
    }

    #[test]
    fn errors_have_file_line_and_suggestion() {
        let cases = [
            (
                "[chart.x.\"a\"]\nfile = []\npackages = []\n",
                "keywords.toml:2: unknown field `file`, expected `files` or `packages`; did you mean `files`?",
            ),
            (
                "\n[charts.x.\"a\"]\nfiles = []\npackages = []\n",
                "keywords.toml:2: unknown variant `charts`, expected one of `chart`, `text`, `image_audio`, `math`, `software`; did you mean `chart`?",
            ),
            (
                "[text.x.a]\nfiles = []\npackages = []\n[text.y.a]\nfiles = []\npackages = []\n",
                "keywords.toml:4: keyword `a` is already listed under `x`",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(problem(text), expected);
        }
    }
}
