//! Readable names of tasks.

use std::collections::HashMap;

use crate::record::{Attempt, Evaluation};
use pybench_types::text::line;

/// Maximum number of characters of a prompt in a title.
const MAX_WORDS: usize = 60;

/// The title of each task: its keyword or number and the first words of its prompt.
pub(crate) struct Titles<'a>(HashMap<(&'a str, &'a str), String>);

impl<'a> Titles<'a> {
    pub(crate) fn new(evaluation: &'a Evaluation) -> Self {
        let mut titles = HashMap::new();
        for attempt in &evaluation.attempts {
            let key = (&*attempt.suite, &*attempt.task);
            titles.entry(key).or_insert_with(|| title(attempt));
        }
        Self(titles)
    }

    /// The title of a task, or its name if no attempt is at it.
    pub(crate) fn of<'t>(&'t self, suite: &'t str, task: &'t str) -> &'t str {
        self.0.get(&(suite, task)).map_or(task, |title| title)
    }
}

fn title(attempt: &Attempt) -> String {
    let name = line(attempt.keyword.as_deref().unwrap_or(&attempt.task));
    match first_words(&line(&attempt.prompt)) {
        words if words.is_empty() => name,
        words => format!("{name}: {words}"),
    }
}

/// The words that fit into [`MAX_WORDS`] characters.
fn first_words(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_whitespace() {
        if out.chars().count() + word.chars().count() >= MAX_WORDS {
            // A text without spaces, such as Chinese, is cut anywhere.
            if out.is_empty() {
                out = word.chars().take(MAX_WORDS).collect();
            }
            return out + "…";
        }
        if !out.is_empty() {
            out.push(' ');
        }
        out += word;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::AgentKind;
    use crate::record::tests::{attempt, fingerprint};

    #[test]
    fn titles_name_the_keyword_and_the_first_words() {
        let mut library = attempt("a", "ab8b2857", 0, true);
        library.suite = "library".to_owned();
        library.keyword = Some("quantile".to_owned());
        library.prompt =
            "How is \"T\" of\n./data/x.csv spread? Write the quantiles to ./output/q.json"
                .to_owned();
        let mut chinese = attempt("a", "3", 0, true);
        chinese.prompt = "数".repeat(100);
        let attempts = vec![attempt("a", "2", 0, true), chinese, library];
        let evaluation = Evaluation::new(fingerprint(&[("a", AgentKind::Model)]), attempts);
        let titles = Titles::new(&evaluation);
        assert_eq!(titles.of("pybench", "2"), "2: Do it.");
        let cut = format!("3: {}…", "数".repeat(MAX_WORDS));
        assert_eq!(titles.of("pybench", "3"), cut);
        assert_eq!(
            titles.of("library", "ab8b2857"),
            "quantile: How is \"T\" of ./data/x.csv spread? Write the quantiles to…"
        );
        assert_eq!(titles.of("library", "2"), "2");
    }
}
