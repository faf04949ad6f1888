//! The beginning of a template: a small one that works, with comments.

use pybench::task::Category;

use super::keywords::Keywords;
use super::problem::LibraryError;
use super::validate::folder;

/// Works for tables, under every category.
const SKELETON: &str = include_str!("skeleton.toml");

/// The text of a new template. Without a keyword it has the first one of its category.
///
/// # Errors
/// What the loader would say of it: an id of other letters, an unknown keyword.
pub(super) fn template(
    keywords: &Keywords,
    id: &str,
    category: Category,
    keyword: Option<&str>,
) -> Result<String, LibraryError> {
    let first = || keywords.iter().find(|known| known.category == category);
    let keyword = keyword.or_else(|| first().map(|known| known.name.as_str()));
    // Quotes and backslashes would end the string; the loader refuses what is left of them.
    let plain = |text: &str| text.replace(['"', '\\', '\n'], "?");
    let text = SKELETON
        .replace("@ID@", &plain(id))
        .replace("@CATEGORY@", folder(category))
        .replace("@KEYWORD@", &plain(keyword.unwrap_or_default()));
    let file = format!("templates/{}/{id}.toml", folder(category));
    super::parse_template(&file, &text, keywords).map_err(LibraryError)?;
    Ok(text)
}

/// A category by the name of its folder.
pub(super) fn category(text: &str) -> Result<Category, String> {
    let all = [
        Category::Chart,
        Category::Text,
        Category::ImageAudio,
        Category::Math,
        Category::Software,
    ];
    let names: Vec<_> = all.iter().map(|c| folder(*c)).collect();
    let found = all.into_iter().find(|c| folder(*c) == text);
    found.ok_or_else(|| format!("categories are {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::Library;
    use super::*;

    #[test]
    fn a_template_begins_in_every_category() {
        let library = Library::embedded().unwrap();
        for name in ["chart", "text", "image_audio", "math", "software"] {
            let category = category(name).unwrap();
            let text = template(library.keywords(), "my-own", category, None).unwrap();
            assert!(text.contains("id = \"my-own\""), "{text}");
        }
        assert!(category("images").unwrap_err().contains("image_audio"));
    }

    #[test]
    fn what_the_loader_would_refuse_is_refused() {
        let library = Library::embedded().unwrap();
        let begin = |id, keyword| template(library.keywords(), id, Category::Chart, keyword);
        let refused = |id, keyword| begin(id, keyword).unwrap_err().to_string();
        assert!(refused("My Own", None).contains("an id has lower-case letters"));
        assert!(refused("../own", None).contains("an id has lower-case letters"));
        assert!(refused("a\"\nid = \"b", None).contains("an id has lower-case letters"));
        assert!(refused("own", Some("pie charts")).contains("did you mean `pie chart`?"));
        assert!(refused("own", Some("derivative")).contains("is of category math"));
        assert!(begin("own", Some("pie chart")).is_ok());
    }
}
