//! Writes the comparison of a model with its base model into its model card (`README.md`), as a marked
//! section. Writing it again replaces only that section.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use pybench_run::{RunError, write_atomically};

use crate::record::Evaluation;
use crate::stats::{Comparison, Measure, compare, holm};
use pybench_types::text::{markdown, percent};

const BEGIN: &str = "<!-- pybench-eval: general ability, begin -->";
const END: &str = "<!-- pybench-eval: general ability, end -->";
/// File name of the card.
const CARD: &str = "README.md";
/// Maximum size of a card, in bytes.
const MAX_BYTES: u64 = 4 << 20;
/// The suites that measure general ability.
pub const SUITES: [&str; 6] = [
    "humaneval",
    "humaneval-plus",
    "mbpp",
    "mbpp-plus",
    "gsm8k",
    "mmlu",
];
/// Significance level.
const ALPHA: f64 = 0.05;

/// The section of the card; `None` if the two models share no question. The p-values have Holm's correction
/// over the benchmarks.
pub fn section(evaluation: &Evaluation, base: &str, tuned: &str) -> Option<String> {
    let compare = |suite: &&str| compare(evaluation, suite, Measure::Strict, tuned, base);
    let found: Vec<Comparison> = SUITES.iter().filter_map(compare).collect();
    if found.is_empty() {
        return None;
    }
    let corrected = holm(&found.iter().map(|c| c.p).collect::<Vec<_>>());
    let differs =
        |c: &Comparison, p: f64| p < ALPHA && (c.interval.low > 0.0 || c.interval.high < 0.0);
    let mut out = format!("{BEGIN}\n## General ability\n\n");
    let (mut rows, mut lost) = (String::new(), Vec::new());
    for (c, p) in found.iter().zip(corrected) {
        let verdict = match (differs(c, p), c.difference < 0.0) {
            (false, _) => "statistically tied",
            (true, true) => "**lost**",
            (true, false) => "gained",
        };
        if verdict == "**lost**" {
            lost.push(format!("{} (−{} points)", c.suite, percent(-c.difference)));
        }
        let _ = writeln!(
            rows,
            "| {} | {} | {} | {} | {} [{}, {}] | {p:.4} | {verdict} |",
            c.suite,
            c.tasks,
            percent(c.b_rate),
            percent(c.a_rate),
            percent(c.difference),
            percent(c.interval.low),
            percent(c.interval.high),
        );
    }
    out += &match lost.is_empty() {
        false => format!(
            "⚠️ **This model lost general ability compared with its base model: {}.**\n\n",
            lost.join(", ")
        ),
        true => {
            "No significant loss of general ability was found on these questions.\n\n".to_owned()
        }
    };
    let base = markdown(base);
    let _ = write!(
        out,
        "| benchmark | questions | `{base}` | this model | difference, 95 % | p, Holm | |\n| --- | --- | --- | --- | --- | --- | --- |\n{rows}\n\
         Percent correct by the score `strict` on the same questions; exact McNemar test with Holm's correction over the benchmarks, and paired bootstrap intervals.\n{END}\n"
    );
    Some(out)
}

/// Writes the section into the card of a model folder; creates the card if there is none.
///
/// # Errors
/// [`RunError::BadInput`] if the folder does not exist, or the card is not text or has only one of the two
/// markers.
pub fn write(folder: &Path, section: &str) -> Result<PathBuf, RunError> {
    let path = folder.join(CARD);
    let wrong = |text: &str| RunError::BadInput(format!("{}: {text}", path.display()));
    if !folder.is_dir() {
        let text = format!("{}: the model folder does not exist", folder.display());
        return Err(RunError::BadInput(text));
    }
    let old = match std::fs::File::open(&path) {
        Ok(file) => {
            let mut text = String::new();
            let read = file.take(MAX_BYTES + 1).read_to_string(&mut text);
            read.map_err(|error| wrong(&error.to_string()))?;
            text
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "# Model card\n".to_owned(),
        Err(error) => return Err(wrong(&error.to_string())),
    };
    if old.len() as u64 > MAX_BYTES {
        return Err(wrong("the file is too large for a model card"));
    }
    let new = with_section(&old, section).map_err(wrong)?;
    write_atomically(&path, new.as_bytes())?;
    Ok(path)
}

/// The card with the marked section replaced, or with the section appended.
fn with_section(card: &str, section: &str) -> Result<String, &'static str> {
    match (card.find(BEGIN), card.find(END)) {
        (None, None) => Ok(format!("{}\n\n{section}", card.trim_end())),
        (Some(begin), Some(end)) if begin < end => {
            let after = card[end + END.len()..].trim_start_matches('\n');
            let gap = if after.is_empty() { "" } else { "\n" };
            Ok(format!("{}{section}{gap}{after}", &card[..begin]))
        }
        _ => Err(
            "one of the two `pybench-eval: general ability` markers is missing or out of order: delete the remaining markers and run the command again",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{attempt, fingerprint};
    use crate::record::{AgentKind, Scores};

    /// The base model answers the first 40 questions of each set correctly, the other model as many as given.
    fn evaluation(sets: &[(&str, u32)]) -> Evaluation {
        let mut attempts = Vec::new();
        for (suite, right) in sets {
            for task in 0..60_u32 {
                for (agent, passed) in [("base", task < 40), ("tuned", task < *right)] {
                    let mut one = attempt(agent, &task.to_string(), 0, passed);
                    one.suite = (*suite).to_owned();
                    one.scores = Scores {
                        strict: Some(passed),
                        ..Scores::default()
                    };
                    attempts.push(one);
                }
            }
        }
        let agents = [("base", AgentKind::Model), ("tuned", AgentKind::Model)];
        Evaluation::new(fingerprint(&agents), attempts)
    }

    #[test]
    fn a_loss_is_written_to_the_card_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CARD);
        std::fs::write(&path, "---\nlicense: mit\n---\n# Mine\n\nWords.\n").unwrap();
        let lost = evaluation(&[("gsm8k", 15), ("mmlu", 39)]);
        let lost = section(&lost, "base", "tuned").unwrap();
        assert!(
            lost.contains("lost general ability") && lost.contains("gsm8k (−41.7 points)"),
            "{lost}"
        );
        assert!(
            lost.contains("| mmlu | 60 | 66.7 | 65.0 | -1.7 ["),
            "{lost}"
        );
        assert!(
            lost.contains("statistically tied") && !lost.contains("mmlu ("),
            "{lost}"
        );
        write(folder.path(), &lost).unwrap();
        let first = std::fs::read_to_string(&path).unwrap();
        assert!(
            first.starts_with("---\nlicense: mit\n---\n# Mine\n\nWords.\n\n"),
            "{first}"
        );
        write(folder.path(), &lost).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            first,
            "writing twice changes nothing"
        );
        // The user extends the card; a better model removes the warning and changes nothing else.
        std::fs::write(&path, format!("{first}\n## More\n")).unwrap();
        let kept = section(&evaluation(&[("gsm8k", 41)]), "base", "tuned").unwrap();
        write(folder.path(), &kept).unwrap();
        let third = std::fs::read_to_string(&path).unwrap();
        assert!(
            !third.contains("lost") && third.contains("No significant loss"),
            "{third}"
        );
        assert!(
            third.contains("Words.") && third.ends_with("\n\n## More\n"),
            "{third}"
        );
        assert_eq!(third.matches(BEGIN).count(), 1);
    }

    #[test]
    fn cards_are_created_and_invalid_ones_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &format!("{BEGIN}\na\n{END}\n")).unwrap();
        let card = std::fs::read_to_string(folder.path().join(CARD)).unwrap();
        assert_eq!(card, format!("# Model card\n\n{BEGIN}\na\n{END}\n"));
        assert!(write(&folder.path().join("absent"), "x").is_err());
        for broken in [format!("{BEGIN}\n"), format!("{END}\n{BEGIN}\n")] {
            std::fs::write(folder.path().join(CARD), &broken).unwrap();
            assert!(write(folder.path(), "x").is_err());
            assert_eq!(
                std::fs::read_to_string(folder.path().join(CARD)).unwrap(),
                broken
            );
        }
        std::fs::write(folder.path().join(CARD), [0xff]).unwrap();
        assert!(write(folder.path(), "x").is_err());
    }

    #[test]
    fn the_recipe_runs_the_suites_that_the_card_compares() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../recipes/eval/general.toml");
        let recipe = crate::run::EvalRecipe::load(Path::new(path)).unwrap();
        assert_eq!(recipe.suites, SUITES);
        assert!(recipe.single_reply && recipe.checkpoints);
    }

    #[test]
    fn other_suites_do_not_measure_general_ability() {
        assert_eq!(
            section(&evaluation(&[("pybench", 15)]), "base", "tuned"),
            None
        );
        assert_eq!(
            section(&evaluation(&[("gsm8k", 15)]), "base", "absent"),
            None
        );
    }
}
