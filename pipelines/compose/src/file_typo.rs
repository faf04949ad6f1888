//! A typo in the name of a file, where only one file can be meant: the solver looks into the folder and says which one.

use pybench_types::task::{Language, MAX_QUERY, Task, TaskFile, TaskOrigin};
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::imprecise;
use crate::inputs;
use crate::plan::Plan;

/// The number of this wording among the imprecise ones.
const KIND: usize = imprecise::KINDS - 1;
/// Shortest name that gets a typo, in characters, without its extension.
const MIN_STEM: usize = 5;
/// How many changes lead from the typo to any other file, at least. One or two lead to the right one.
const MIN_DISTANCE: usize = 5;
/// Operations of a task with a typo, at most: the look into the folder takes a turn, and no script has more than ten.
const MAX_OPERATIONS: usize = 5;

/// The cell that shows the files.
pub(crate) const LOOK: &str = "import os\nprint(sorted(os.listdir(\"./data\")))";

/// The same composed task with a typo in the name of a file; `None` if its query names no file that lends itself to it.
pub fn with_file_typo(task: &Task, seed: u64) -> Option<Task> {
    if Plan::of(task).ok()?.graph.0.len() > MAX_OPERATIONS {
        return None;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let begins_another = |path: &str| {
        let paths = task.files.iter().map(inputs::path);
        paths.filter(|other| other.starts_with(path)).count() > 1
    };
    let named = |file: &&TaskFile| {
        let path = inputs::path(file);
        task.query.contains(&path) && !begins_another(&path)
    };
    let files: Vec<&TaskFile> = task.files.iter().filter(named).collect();
    let file = files.choose(&mut rng)?;
    let mut wrong = misspellings(&file.name);
    wrong.retain(|wrong| is_decidable(wrong, file, &task.files));
    let wrong = wrong.choose(&mut rng)?;
    let mut said = task.clone();
    said.query = task.query.replace(&inputs::path(file), &path(wrong));
    let TaskOrigin::Composed { wordings, .. } = &mut said.origin else {
        return None;
    };
    wordings.push(wording(task.language));
    said.id = said.compute_id();
    (said.query.chars().count() <= MAX_QUERY).then_some(said)
}

fn path(name: &str) -> String {
    format!("./data/{name}")
}

fn wording(language: Language) -> String {
    let language = match language {
        Language::En => "en",
        Language::Zh => "zh",
    };
    format!("{}/{language}/{KIND}", imprecise::NAME)
}

/// Whether a wrong name is far from all files but this one.
fn is_decidable(wrong: &str, file: &TaskFile, files: &[TaskFile]) -> bool {
    let mut others = files.iter().filter(|other| other.name != file.name);
    others.all(|other| distance(wrong, &other.name) >= MIN_DISTANCE)
}

/// The names that a typo makes of a file's name: two neighboring letters swapped, a letter left out or written twice. Its
/// first letter, its digits and its extension stay; none of a short name, of one without an
/// extension, or of one in another folder.
fn misspellings(name: &str) -> Vec<String> {
    // The typo of a name without an extension may begin another typo of it.
    let Some((stem, _)) = name.rsplit_once('.') else {
        return Vec::new();
    };
    let letters: Vec<char> = stem.chars().collect();
    if letters.len() < MIN_STEM || name.contains('/') {
        return Vec::new();
    }
    let extension = &name[stem.len()..];
    let with = |at: usize, taken: usize, put: &[char]| {
        let parts = [&letters[..at], put, &letters[at + taken..]];
        parts.concat().into_iter().collect::<String>() + extension
    };
    let mut wrong = Vec::new();
    for (at, &letter) in letters.iter().enumerate().skip(1) {
        if !letter.is_alphabetic() {
            continue;
        }
        wrong.push(with(at, 1, &[]));
        wrong.push(with(at, 1, &[letter, letter]));
        if let Some(next) = letters.get(at + 1).filter(|next| next.is_alphabetic()) {
            wrong.push(with(at, 2, &[*next, letter]));
        }
    }
    wrong.retain(|wrong| wrong.to_lowercase() != name.to_lowercase());
    wrong
}

/// Levenshtein's distance, in letters of any case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, letter) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (to, other) in b.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[to + 1];
            row[to + 1] = changed.min(diagonal + 1).min(row[to] + 1);
        }
    }
    row[b.len()]
}

/// A typo in the query of a task, and the file that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileTypo {
    wrong: String,
    right: String,
}

impl FileTypo {
    /// The typo of a task; `None` if it has none.
    pub(crate) fn of(task: &Task) -> Option<Self> {
        let TaskOrigin::Composed { wordings, .. } = &task.origin else {
            return None;
        };
        if !wordings.contains(&wording(task.language)) {
            return None;
        }
        task.files.iter().find_map(|file| {
            let mut wrong = misspellings(&file.name).into_iter();
            let wrong = wrong.find(|wrong| task.query.contains(&path(wrong)))?;
            Some(Self {
                wrong,
                right: file.name.clone(),
            })
        })
    }

    /// Why the folder is looked at.
    pub(crate) fn purpose(&self, language: Language) -> String {
        let wrong = path(&self.wrong);
        match language {
            Language::En => format!(
                "The task names {wrong}, which is not among the uploaded files. I look at what is in the folder."
            ),
            Language::Zh => {
                format!("任务里写的是 {wrong}，但上传的文件中没有这个名字。先看看文件夹里有什么。")
            }
        }
    }

    /// Which file is meant.
    pub(crate) fn finding(&self, language: Language) -> String {
        let Self { wrong, right } = self;
        match language {
            Language::En => format!(
                "There is no {wrong}, and the only similar name is {right}, so this file is meant."
            ),
            Language::Zh => {
                format!("没有名为 {wrong} 的文件，只有 {right} 与它相近，指的就是这个文件。")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_changes_one_place_and_never_digits_or_the_extension() {
        let wrong = misspellings("sales_2023.csv");
        for name in ["slaes_2023.csv", "sles_2023.csv", "saales_2023.csv"] {
            assert!(wrong.contains(&name.to_owned()), "{name} is missing");
        }
        for name in &wrong {
            assert!(
                name.ends_with("_2023.csv") && name.starts_with('s'),
                "{name}"
            );
            assert!(
                (1..=2).contains(&distance(name, "sales_2023.csv")),
                "{name}"
            );
        }
        // Swapping or halving equal letters may give the name itself.
        assert!(!misspellings("aaaaaa.csv").contains(&"aaaaaa.csv".to_owned()));
        assert!(misspellings("day.csv").is_empty());
        assert!(misspellings("2023/sales.csv").is_empty());
        assert!(misspellings("12345.csv").is_empty());
    }

    #[test]
    fn distances_count_letters() {
        for (a, b, apart) in [
            ("kitten", "Sitting", 3),
            ("", "ab", 2),
            ("städte", "stadte", 1),
            ("a", "a", 0),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (apart, apart), "{a} {b}");
        }
    }
}
