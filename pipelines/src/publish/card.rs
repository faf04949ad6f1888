//! Cards as they stand in a repository.

use std::fmt::Write as _;

/// Where the rows come from, in the card of a dataset that has no place yet.
const PLACE: &str = "PATH_OR_REPO";

/// What lies beside the rows.
pub(super) struct Beside {
    /// Names of plots.
    pub(super) plots: Vec<&'static str>,
    /// Sessions in the Hub's own form.
    pub(super) sessions: usize,
}

/// The card of a dataset with its place, its plots, and what lies beside the rows.
pub(super) fn dataset(card: &str, repo: Option<&str>, beside: &Beside) -> String {
    let mut card = match repo {
        Some(repo) => card.replacen(PLACE, repo, 1),
        None => card.to_owned(),
    };
    let mut plots = String::new();
    for name in &beside.plots {
        let words = name.trim_end_matches(".svg");
        let _ = writeln!(plots, "![{words}](plots/{name})\n");
    }
    match card.find("\n## Split\n") {
        Some(at) => card.insert_str(at + 1, &plots),
        None => card += &format!("\n## Plots\n\n{plots}"),
    }
    let sessions = beside.sessions;
    let mut section = format!(
        "\n## Beside the rows\n\n`traces/` has the first {sessions} rows as the Hub shows sessions of agents, \
         one file each."
    );
    if let Some(repo) = repo {
        let _ = write!(
            section,
            " To check the rows on another machine:\n\n```sh\nhf download {repo} --repo-type dataset \
             --local-dir dataset\n./justw verify dataset\n```"
        );
    }
    card + &section + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_gets_its_place_and_its_plots() {
        let card = "---\n---\nload_dataset(\"PATH_OR_REPO\")\n\n## Statistics\n\ntable\n\n## Split\n\nso\n";
        let beside = Beside {
            plots: vec!["turns.svg"],
            sessions: 3,
        };
        let with = dataset(card, Some("o/n"), &beside);
        assert!(with.contains("load_dataset(\"o/n\")"), "{with}");
        assert!(
            with.contains("table\n\n![turns](plots/turns.svg)\n\n## Split\n"),
            "{with}"
        );
        assert!(
            with.contains("first 3 rows") && with.contains("hf download o/n"),
            "{with}"
        );
        let without = dataset(card, None, &beside);
        assert!(
            without.contains(PLACE) && !without.contains("hf download"),
            "{without}"
        );
    }
}
