//! The text of a new template: a small, commented example that works.

use pybench_types::task::Category;

use super::keywords::Keywords;
use super::problem::LibraryError;

/// An example for tables that is valid in every category.
const SKELETON: &str = include_str!("skeleton.toml");

/// The text of a new template. Without a keyword, the first one of the category is used.
///
/// # Errors
/// The loader's problems, such as an invalid id or an unknown keyword.
pub(super) fn template(
    keywords: &Keywords,
    id: &str,
    category: Category,
    keyword: Option<&str>,
) -> Result<String, LibraryError> {
    let first = || keywords.iter().find(|known| known.category == category);
    let keyword = keyword.or_else(|| first().map(|known| known.name.as_str()));
    // Quotes and backslashes could end the string; the loader rejects their replacement.
    let plain = |text: &str| text.replace(['"', '\\', '\n'], "?");
    let text = SKELETON
        .replace("@ID@", &plain(id))
        .replace("@CATEGORY@", category.name())
        .replace("@KEYWORD@", &plain(keyword.unwrap_or_default()));
    let file = format!("templates/{}/{id}.toml", category.name());
    super::parse_template(&file, &text, keywords).map_err(LibraryError)?;
    Ok(text)
}

/// Parses a category by the name of its folder.
pub(super) fn category(text: &str) -> Result<Category, String> {
    let found = Category::ALL.into_iter().find(|c| c.name() == text);
    found.ok_or_else(|| {
        let names = Category::ALL.map(Category::name).join(", ");
        format!("unknown category; expected one of {names}")
    })
}

#[cfg(test)]
mod tests {
    use super::super::Library;
    use super::*;

    #[test]
    fn a_template_can_be_created_in_every_category() {
        let library = Library::embedded().unwrap();
        for name in ["chart", "text", "image_audio", "math", "software"] {
            let category = category(name).unwrap();
            let text = template(library.keywords(), "my-own", category, None).unwrap();
            assert!(text.contains("id = \"my-own\""), "{text}");
        }
        assert!(category("images").unwrap_err().contains("image_audio"));
    }

    #[test]
    fn invalid_ids_and_keywords_are_rejected() {
        let library = Library::embedded().unwrap();
        let begin = |id, keyword| template(library.keywords(), id, Category::Chart, keyword);
        let refused = |id, keyword| begin(id, keyword).unwrap_err().to_string();
        assert!(refused("My Own", None).contains("an id may contain only lower-case letters"));
        assert!(refused("../own", None).contains("an id may contain only lower-case letters"));
        assert!(
            refused("a\"\nid = \"b", None).contains("an id may contain only lower-case letters")
        );
        assert!(refused("own", Some("pie charts")).contains("did you mean `pie chart`?"));
        assert!(refused("own", Some("derivative")).contains("belongs to category math"));
        assert!(begin("own", Some("pie chart")).is_ok());
    }
}
