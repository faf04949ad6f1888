//! Which file each draw of composed tasks is over.

use pybench_compose::Medium;
use pybench_types::task::{Category, SourceFile};

/// Files that tasks can be composed over, by what the tasks work on. Draws go round these groups, so that many files of
/// one kind make no more tasks than a few of another, and then round the files of each group.
pub(super) struct Rounds {
    groups: Vec<(Medium, Vec<SourceFile>)>,
}

impl Rounds {
    /// The files that suit these categories, or any category if none is named.
    pub(super) fn new(files: &[SourceFile], categories: &[Category]) -> Self {
        let wanted =
            |medium: &Medium| categories.is_empty() || categories.contains(&medium.category());
        let of = |medium: Medium| {
            let fits = |file: &&SourceFile| pybench_compose::media_of(file).contains(&medium);
            (medium, files.iter().filter(fits).cloned().collect())
        };
        let groups = Medium::ALL.into_iter().filter(wanted).map(of);
        Self {
            groups: groups
                .filter(|(_, files): &(_, Vec<_>)| !files.is_empty())
                .collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The tables; none if tasks work on other files only.
    pub(super) fn tables(&self) -> &[SourceFile] {
        let mut groups = self.groups.iter();
        let tables = groups.find(|(medium, _)| *medium == Medium::Table);
        tables
            .map(|(_, files)| files.as_slice())
            .unwrap_or_default()
    }

    /// The file of a draw, and what its task works on; `None` if there are no files.
    pub(super) fn at(&self, draw: usize) -> Option<(&SourceFile, Medium)> {
        let count = self.groups.len();
        let (medium, files) = self.groups.get(draw.checked_rem(count)?)?;
        let file = files.get((draw / count) % files.len())?;
        Some((file, *medium))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pybench_profile::source_file;
    use pybench_types::task::FileKind;

    use super::*;

    /// Nine tables, and a text, which is also given as a document.
    fn files() -> Vec<SourceFile> {
        let table = |at: usize| {
            let rows = (0..30).map(|row| format!("{row},{at}.5,north\n"));
            let csv = format!("n,price,region\n{}", rows.collect::<String>());
            source_file(&format!("{at}.csv"), FileKind::Csv, csv.as_bytes())
        };
        let text = "The quay was built long before the harbour.\n".repeat(20);
        let mut files: Vec<SourceFile> = (0..9).map(table).collect();
        files.push(source_file("quay.txt", FileKind::Txt, text.as_bytes()));
        files
    }

    #[test]
    fn each_kind_of_files_has_as_many_draws_and_each_file_its_turn() {
        let files = files();
        let rounds = Rounds::new(&files, &[]);
        let mut media: BTreeMap<Medium, usize> = BTreeMap::new();
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for (file, medium) in (0..27).filter_map(|draw| rounds.at(draw)) {
            *media.entry(medium).or_default() += 1;
            *names.entry(&file.name).or_default() += 1;
        }
        let expected = [(Medium::Table, 9), (Medium::Text, 9), (Medium::Document, 9)];
        assert_eq!(media, BTreeMap::from(expected));
        assert_eq!(
            (names["0.csv"], names["8.csv"], names["quay.txt"]),
            (1, 1, 18)
        );
    }

    #[test]
    fn only_the_categories_that_are_named_are_drawn() {
        let (files, charts) = (files(), [Category::Chart]);
        let rounds = Rounds::new(&files, &charts);
        assert!((0..20).all(|draw| rounds.at(draw).unwrap().1 == Medium::Table));
        let rounds = Rounds::new(&files, &[Category::ImageAudio]);
        assert!(rounds.is_empty() && rounds.at(3).is_none());
    }
}
