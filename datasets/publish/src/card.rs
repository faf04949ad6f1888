//! Adapts the card of a dataset to its repository.

use std::fmt::Write as _;

/// Placeholder for the repository name in the card of an unpublished dataset.
const REPO_PLACEHOLDER: &str = "PATH_OR_REPO";

/// Additional files in the repository.
pub(super) struct ExtraFiles {
    /// File names of plots.
    pub(super) plots: Vec<&'static str>,
    /// Number of sessions in the Hub's trace format.
    pub(super) sessions: usize,
}

/// The card of a dataset with the repository name, the plots, and a section about additional files.
pub(super) fn dataset(card: &str, repo: Option<&str>, extra: &ExtraFiles) -> String {
    let mut card = match repo {
        Some(repo) => card.replacen(REPO_PLACEHOLDER, repo, 1),
        None => card.to_owned(),
    };
    let mut plots = String::new();
    for name in &extra.plots {
        let words = name.trim_end_matches(".svg");
        let _ = writeln!(plots, "![{words}](plots/{name})\n");
    }
    match card.find("\n## Split\n") {
        Some(at) => card.insert_str(at + 1, &plots),
        None => card += &format!("\n## Plots\n\n{plots}"),
    }
    let sessions = extra.sessions;
    let mut section = format!(
        "\n## Additional files\n\n`traces/` contains the first {sessions} rows in the Hub's format for agent traces, \
         one file per row."
    );
    if let Some(repo) = repo {
        let _ = write!(
            section,
            " To download the dataset on another machine and re-execute its rows:\n\n```sh\npybench verify {repo}\n```"
        );
    }
    card + &section + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_gets_the_repository_name_and_the_plots() {
        let card = "---\n---\nload_dataset(\"PATH_OR_REPO\")\n\n## Statistics\n\ntable\n\n## Split\n\nso\n";
        let extra = ExtraFiles {
            plots: vec!["turns.svg"],
            sessions: 3,
        };
        let with = dataset(card, Some("o/n"), &extra);
        assert!(with.contains("load_dataset(\"o/n\")"), "{with}");
        assert!(
            with.contains("table\n\n![turns](plots/turns.svg)\n\n## Split\n"),
            "{with}"
        );
        assert!(
            with.contains("first 3 rows") && with.contains("pybench verify o/n"),
            "{with}"
        );
        let without = dataset(card, None, &extra);
        assert!(
            without.contains(REPO_PLACEHOLDER) && !without.contains("pybench verify"),
            "{without}"
        );
    }
}
