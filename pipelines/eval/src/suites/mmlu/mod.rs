//! MMLU: multiple-choice questions of 57 subjects.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use pybench_profile::preview::records;
use pybench_run::RunError;
use pybench_types::task::Category;
use regex::Regex;

use super::Entry;
use super::answers::{AnswerSuite, Question, frequent, read_text};
use crate::suite::Origin;

/// The repository. Later commits have no questions: the authors moved them to an archive outside it.
pub const ORIGIN: Origin = Origin {
    repository: "https://github.com/hendrycks/test.git",
    commit: "785eba57b455b9f9be12a0d3c1106d67274fea0e",
    files: &["LICENSE", "data/test/*.csv"],
    license: "MIT",
    cache: "suites/mmlu",
};

/// MMLU in the list of suites.
pub const ENTRY: Entry = Entry {
    name: "mmlu",
    origin: &ORIGIN,
    open: |place| {
        let suite = open(&ENTRY.checkout(place)?).map_err(RunError::BadInput)?;
        Ok(Arc::new(suite))
    },
};

/// Folder of the questions: a file per subject.
const FOLDER: &str = "data/test";
/// What follows the subject in the name of a file.
const SUFFIX: &str = "_test.csv";
/// Maximum number of files, and of questions of a subject.
const MAX_FILES: usize = 1_000;
const MAX_ROWS: usize = 100_000;
const LETTERS: [&str; 4] = ["A", "B", "C", "D"];

/// The authors' groups of subjects; the others are their group of business, health and miscellaneous.
const GROUPS: [(&str, &[&str]); 3] = [
    (
        "STEM",
        &[
            "abstract_algebra",
            "astronomy",
            "college_biology",
            "college_chemistry",
            "college_computer_science",
            "college_mathematics",
            "college_physics",
            "computer_security",
            "conceptual_physics",
            "electrical_engineering",
            "elementary_mathematics",
            "high_school_biology",
            "high_school_chemistry",
            "high_school_computer_science",
            "high_school_mathematics",
            "high_school_physics",
            "high_school_statistics",
            "machine_learning",
        ],
    ),
    (
        "humanities",
        &[
            "formal_logic",
            "high_school_european_history",
            "high_school_us_history",
            "high_school_world_history",
            "international_law",
            "jurisprudence",
            "logical_fallacies",
            "moral_disputes",
            "moral_scenarios",
            "philosophy",
            "prehistory",
            "professional_law",
            "world_religions",
        ],
    ),
    (
        "social sciences",
        &[
            "econometrics",
            "high_school_geography",
            "high_school_government_and_politics",
            "high_school_macroeconomics",
            "high_school_microeconomics",
            "high_school_psychology",
            "human_sexuality",
            "professional_psychology",
            "public_relations",
            "security_studies",
            "sociology",
            "us_foreign_policy",
        ],
    ),
];

const NOTES: &[&str] = &[
    "There is no `upstream` score. The authors compare the probabilities of the four letters as the next token after five solved examples, which chat APIs do not give; here a model writes its answer and sees no example, so scores are not comparable with published ones.",
    "`strict` reads the option after `Answer:`, by letter or by letter and text, or a reply that is a letter alone. Every `Answer:` in the reply must name the correct option. Guessing passes a quarter of the tasks.",
    "The questions are those of the authors' repository before they moved them to an archive outside it (September 2020). Copies made from the archive may differ in some questions.",
];

static ANSWER: LazyLock<Regex> = LazyLock::new(|| {
    // The pattern is a constant that the tests compile.
    #[allow(clippy::unwrap_used)]
    Regex::new(r"(?i)\banswer(?: is)?[*_]*:([^\r\n]*)").unwrap()
});

/// A question with its four options.
struct ChoiceQuestion {
    subject: Arc<str>,
    /// Position in the file.
    index: usize,
    question: String,
    options: [String; 4],
    /// Position of the correct option.
    correct: usize,
}

/// Opens a checkout.
///
/// # Errors
/// Files are missing or invalid.
fn open(root: &Path) -> Result<AnswerSuite, String> {
    let mut questions: Vec<Arc<dyn Question>> = Vec::new();
    for subject in subjects(root)? {
        let path = format!("{FOLDER}/{subject}{SUFFIX}");
        let text = read_text(root, &path)?;
        let found = subject_questions(&text, &subject.into());
        let found = found.map_err(|problem| format!("{}: {problem}", root.join(path).display()))?;
        questions.extend(
            found
                .into_iter()
                .map(|one| Arc::new(one) as Arc<dyn Question>),
        );
    }
    Ok(AnswerSuite {
        name: ENTRY.name,
        title: "MMLU",
        origin: &ORIGIN,
        notes: NOTES,
        version: 1,
        category: Category::Text,
        questions,
        constants: frequent,
    })
}

/// The subjects that the folder has files of, sorted.
fn subjects(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join(FOLDER);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut subjects = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)?.take(MAX_FILES) {
        let name = entry.map_err(failed)?.file_name();
        let subject = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
        subjects.extend(subject.map(str::to_owned));
    }
    if subjects.is_empty() {
        return Err(format!(
            "{}: no file is named SUBJECT{SUFFIX}",
            folder.display()
        ));
    }
    subjects.sort();
    Ok(subjects)
}

/// The questions of a file: rows of question, four options and letter.
fn subject_questions(text: &str, subject: &Arc<str>) -> Result<Vec<ChoiceQuestion>, String> {
    let rows = records(text, ',', MAX_ROWS).into_iter().enumerate();
    let parse = |(index, row): (usize, Vec<String>)| {
        let wrong = || {
            let row = index + 1;
            format!("row {row}: expected a question, four options and a letter from A to D")
        };
        let [question, a, b, c, d, letter] = <[String; 6]>::try_from(row).map_err(|_| wrong())?;
        let correct = LETTERS.iter().position(|one| *one == letter.trim());
        Ok(ChoiceQuestion {
            subject: subject.clone(),
            index,
            question,
            options: [a, b, c, d],
            correct: correct.ok_or_else(wrong)?,
        })
    };
    rows.map(parse).collect()
}

fn group(subject: &str) -> &'static str {
    let found = GROUPS
        .iter()
        .find(|(_, subjects)| subjects.contains(&subject));
    found.map_or("other", |(name, _)| name)
}

fn stated(letter: &str) -> String {
    format!("Answer: {letter}")
}

impl ChoiceQuestion {
    /// The question and its options, as the authors write them.
    fn text(&self) -> String {
        let options = LETTERS.iter().zip(&self.options);
        let options = options.map(|(letter, option)| format!("\n{letter}. {option}"));
        format!("{}{}", self.question, options.collect::<String>())
    }

    /// The option that an answer names: a letter, alone or before the text of its option.
    fn chosen(&self, answer: &str) -> Option<usize> {
        let around = |c: char| c.is_whitespace() || "*_`()[]{}.:\"'".contains(c);
        let answer = answer.trim_matches(around);
        let letter = answer.get(..1)?.to_ascii_uppercase();
        let at = LETTERS.iter().position(|one| *one == letter)?;
        let rest = &answer[1..];
        let text = rest.trim_matches(around);
        let is_option = || text.eq_ignore_ascii_case(self.options[at].trim_matches(around));
        (rest.is_empty() || (rest.starts_with(around) && is_option())).then_some(at)
    }
}

impl Question for ChoiceQuestion {
    fn name(&self) -> String {
        format!("{}/{}", self.subject, self.index)
    }

    fn category(&self) -> String {
        group(&self.subject).to_owned()
    }

    fn prompt(&self) -> String {
        format!(
            "{}\n\nEnd your reply with the letter of the correct option alone on a line of its own, in the form Answer: LETTER",
            self.text()
        )
    }

    fn texts(&self) -> Vec<String> {
        vec![self.question.clone(), self.text()]
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(Vec::new())
    }

    fn reference(&self) -> String {
        stated(LETTERS[self.correct])
    }

    fn expected(&self) -> String {
        format!("{}. {}", LETTERS[self.correct], self.options[self.correct])
    }

    fn upstream(&self, _: &str) -> Option<bool> {
        None
    }

    fn strict(&self, reply: &str) -> Result<(), String> {
        let answers = ANSWER.captures_iter(reply);
        let mut answers: Vec<&str> = answers
            .filter_map(|found| found.get(1))
            .map(|found| found.as_str())
            .collect();
        if answers.is_empty() && reply.trim().len() == 1 {
            answers.push(reply);
        }
        if answers.is_empty() {
            return Err("the reply has no `Answer: LETTER`".to_owned());
        }
        for answer in answers {
            match self.chosen(answer) {
                Some(option) if option == self.correct => {}
                Some(_) => return Err("an answer names another option".to_owned()),
                None => return Err("an `Answer:` names no single option".to_owned()),
            }
        }
        Ok(())
    }

    fn mutants(&self) -> Vec<(&'static str, String)> {
        let correct = LETTERS[self.correct];
        let others = (0..4).filter(|at| *at != self.correct);
        let mut mutants: Vec<_> = others
            .map(|at| ("another option", stated(LETTERS[at])))
            .collect();
        let other = LETTERS[(self.correct + 1) % 4];
        mutants.extend([
            ("an empty answer", stated("")),
            ("a fifth option", stated("E")),
            ("two options", stated(&format!("{correct} or {other}"))),
            ("all options", stated("A, B, C, D")),
            (
                "another option after the correct one",
                self.reference() + "\n" + &stated(other),
            ),
            (
                "another option before the correct one",
                stated(other) + "\n" + &self.reference(),
            ),
        ]);
        mutants
    }
}

#[cfg(test)]
mod tests;
