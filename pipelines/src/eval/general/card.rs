//! What a model lost, or kept, against the one it was tuned from: a marked part of the `README.md` of its
//! folder. Written again, it is replaced; everything else of the card stays.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use pybench::run::RunError;

use super::load::SUITES;
use crate::eval::record::Evaluation;
use crate::eval::report::text::{markdown, percent};
use crate::eval::stats::{Comparison, Measure, compare, holm};

const BEGIN: &str = "<!-- pybench-eval: general ability, begin -->";
const END: &str = "<!-- pybench-eval: general ability, end -->";
/// The file in a model's folder.
const CARD: &str = "README.md";
/// Largest card, bytes.
const MOST_BYTES: u64 = 4 << 20;
/// Differences less likely than this are told from chance.
const ALPHA: f64 = 0.05;

/// The part of the card; `None` where the two share no question of general ability. Holm's correction is
/// over the sets: a model has several chances to look worse by chance.
pub fn section(evaluation: &Evaluation, base: &str, tuned: &str) -> Option<String> {
    let compare = |suite: &&str| compare(evaluation, suite, Measure::Upstream, tuned, base);
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
            "⚠️ **This model lost general ability against the one it was tuned from: {}.**\n\n",
            lost.join(", ")
        ),
        true => "No loss of general ability was found with these questions.\n\n".to_owned(),
    };
    let base = markdown(base);
    let _ = write!(
        out,
        "| set | questions | `{base}` | this model | difference, 95 % | p, Holm | |\n| --- | --- | --- | --- | --- | --- | --- |\n{rows}\n\
         Percent of the same questions, one reply each; exact McNemar, corrected over the sets, and paired bootstrap.\n{END}\n"
    );
    Some(out)
}

/// Puts the part into the card of a model's folder; the card is made where there is none.
///
/// # Errors
/// [`RunError::BadInput`] for what is no folder or no text, and for a mark without its other end.
pub fn write(folder: &Path, section: &str) -> Result<PathBuf, RunError> {
    let path = folder.join(CARD);
    let wrong = |text: &str| RunError::BadInput(format!("{}: {text}", path.display()));
    if !folder.is_dir() {
        let text = format!("{} is no folder of a model", folder.display());
        return Err(RunError::BadInput(text));
    }
    let old = match std::fs::File::open(&path) {
        Ok(file) => {
            let mut text = String::new();
            let read = file.take(MOST_BYTES + 1).read_to_string(&mut text);
            read.map_err(|error| wrong(&error.to_string()))?;
            text
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "# Model card\n".to_owned(),
        Err(error) => return Err(wrong(&error.to_string())),
    };
    if old.len() as u64 > MOST_BYTES {
        return Err(wrong("larger than a card"));
    }
    let new = replaced(&old, section).map_err(wrong)?;
    let io = || RunError::io(path.display().to_string());
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(io())?;
    std::io::Write::write_all(&mut file, new.as_bytes()).map_err(io())?;
    open_to_readers(file.path()).map_err(io())?;
    file.persist(&path).map_err(|error| io()(error.error))?;
    Ok(path)
}

/// Temporary files are closed to others; cards are not.
fn open_to_readers(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
}

/// The card with this part instead of the marked one, or behind everything else.
fn replaced(card: &str, section: &str) -> Result<String, &'static str> {
    match (card.find(BEGIN), card.find(END)) {
        (None, None) => Ok(format!("{}\n\n{section}", card.trim_end())),
        (Some(begin), Some(end)) if begin < end => {
            let after = card[end + END.len()..].trim_start_matches('\n');
            let gap = if after.is_empty() { "" } else { "\n" };
            Ok(format!("{}{section}{gap}{after}", &card[..begin]))
        }
        _ => Err("the mark of our part has lost its other end: delete what is left of it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::record::tests::{attempt, frozen};
    use crate::eval::record::{AgentKind, Scores};

    /// The base is right on the first 40 questions of each set, the other on as many as given.
    fn evaluation(sets: &[(&str, u32)]) -> Evaluation {
        let mut attempts = Vec::new();
        for (suite, right) in sets {
            for task in 0..60_u32 {
                for (agent, passed) in [("base", task < 40), ("tuned", task < *right)] {
                    let mut one = attempt(agent, &task.to_string(), 0, passed);
                    one.suite = (*suite).to_owned();
                    one.scores = Scores {
                        upstream: Some(passed),
                        ..Scores::default()
                    };
                    attempts.push(one);
                }
            }
        }
        let agents = [("base", AgentKind::Model), ("tuned", AgentKind::Model)];
        Evaluation::new(frozen(&agents), attempts)
    }

    #[test]
    fn a_loss_stands_on_the_card_once() {
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
            "twice is once"
        );
        // The user goes on writing; a better model takes the warning away and nothing else.
        std::fs::write(&path, format!("{first}\n## More\n")).unwrap();
        let kept = section(&evaluation(&[("gsm8k", 41)]), "base", "tuned").unwrap();
        write(folder.path(), &kept).unwrap();
        let third = std::fs::read_to_string(&path).unwrap();
        assert!(
            !third.contains("lost") && third.contains("No loss"),
            "{third}"
        );
        assert!(
            third.contains("Words.") && third.ends_with("\n\n## More\n"),
            "{third}"
        );
        assert_eq!(third.matches(BEGIN).count(), 1);
    }

    #[test]
    fn cards_are_made_and_foreign_ones_left() {
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
    fn other_suites_are_no_general_ability() {
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
