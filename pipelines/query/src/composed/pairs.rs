//! Crawled tables that share a key, which some of the tasks join.

use std::collections::HashMap;

use pybench_compose::{GraphError, Joined, MAX_TABLES, Made, Medium, Partner, TableKeys, TaskSeed};
use pybench_run::{ContentStore, RunError};
use pybench_types::id::Digest;
use pybench_types::task::SourceFile;

/// Share of the tasks on tables with plain files that join another table, if one shares a key.
const SHARE: f64 = 0.25;
/// Share of these that join two, if there are two.
const TWO: f64 = 0.3;

/// The tables of a run, and what each of them can join.
pub(super) struct Pairs {
    partners: HashMap<Digest, Vec<Partner>>,
}

/// Another table of a task.
pub(super) struct Other<'a> {
    file: &'a SourceFile,
    bytes: Vec<u8>,
    partner: &'a Partner,
}

impl Pairs {
    /// Whether a draw is to join tables: only some do, of those over a table whose file is not messy.
    pub(super) fn are_asked_for(seed: TaskSeed<'_>, drawn: &Digest) -> bool {
        let is_plain = seed.medium == Medium::Table && !seed.messy;
        is_plain && Digest::of_json(&(drawn, "joins crawled tables")).fraction() < SHARE
    }

    /// Reads the tables. Only those of which `is_apart` says the same are joined: a task that joins others would bring
    /// files of two splits together. A file that cannot be read is joined to none.
    pub(super) fn read(
        tables: &[SourceFile],
        store: &ContentStore,
        is_apart: impl Fn(&SourceFile) -> bool,
    ) -> Self {
        let compared = tables.iter().take(MAX_TABLES);
        let keys = compared.map(|file| match store.get(&file.id) {
            Ok(bytes) => TableKeys::read(file, &bytes),
            Err(_) => TableKeys::default(),
        });
        let keys: Vec<TableKeys> = keys.collect();
        let apart: Vec<bool> = tables.iter().map(is_apart).collect();
        let found = pybench_compose::partners(&keys, |one, other| apart[one] == apart[other]);
        let ids = tables.iter().map(|file| file.id.clone());
        let partners = ids.zip(found).filter(|(_, others)| !others.is_empty());
        Self {
            partners: partners.collect(),
        }
    }

    /// The other tables of a task over a file; none if no table shares a key with it.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn others<'a>(
        &'a self,
        tables: &'a [SourceFile],
        file: &SourceFile,
        drawn: &Digest,
        store: &ContentStore,
    ) -> Result<Vec<Other<'a>>, RunError> {
        let partners = self.partners.get(&file.id);
        let partners = partners.map(Vec::as_slice).unwrap_or_default();
        let two = Digest::of_json(&(drawn, "joins two")).fraction() < TWO;
        let count = if two { 2 } else { 1 };
        let first = Digest::of_json(&(drawn, "joined table")).seed() as usize;
        let mut others = Vec::new();
        for number in 0..count.min(partners.len()) {
            let partner = &partners[(first % partners.len() + number) % partners.len()];
            let Some(file) = tables.get(partner.at) else {
                continue;
            };
            others.push(Other {
                file,
                bytes: store.get(&file.id)?,
                partner,
            });
        }
        Ok(others)
    }
}

/// Makes a task over a file and these tables, or over the file alone if there are none or they give no task.
///
/// # Errors
/// [`GraphError::Unknown`].
pub(super) fn make(
    (file, bytes): (&SourceFile, &[u8]),
    others: &[Other<'_>],
    seed: TaskSeed<'_>,
    subcategory: impl Fn(&str) -> String,
) -> Result<Option<Made>, GraphError> {
    let joined = others.iter().map(|other| Joined {
        file: other.file,
        bytes: &other.bytes,
        key: &other.partner.key,
        other_key: &other.partner.other_key,
    });
    let joined: Vec<Joined<'_>> = joined.collect();
    if !joined.is_empty() {
        let made = pybench_compose::make_joined(file, bytes, &joined, seed, &subcategory)?;
        if made.is_some() {
            return Ok(made);
        }
    }
    pybench_compose::make(file, bytes, seed, subcategory)
}

#[cfg(test)]
mod tests {
    use pybench_types::held_out::HeldOutRule;
    use pybench_types::task::{FileKind, Language};

    use super::*;

    fn file(store: &ContentStore, name: &str, rows: std::ops::Range<u32>) -> SourceFile {
        let rows = rows.map(|row| format!("town {row},{}.5\n", row * row % 83));
        let text = format!("town,{name}\n{}", rows.collect::<String>());
        let bytes = text.as_bytes();
        store.put(bytes).unwrap();
        pybench_profile::source_file(&format!("{name}.csv"), FileKind::Csv, bytes)
    }

    #[test]
    fn tables_are_joined_to_those_on_their_side_only() {
        let folder = tempfile::tempdir().unwrap();
        let store = ContentStore::open(folder.path()).unwrap();
        let tables = [
            file(&store, "rain", 0..40),
            file(&store, "snow", 10..60),
            file(&store, "wind", 5..50),
        ];
        let pairs = Pairs::read(&tables, &store, |file| file.name == "wind.csv");
        let names = |file: &SourceFile| {
            let drawn = Digest::of_bytes(b"a draw");
            let others = pairs.others(&tables, file, &drawn, &store).unwrap();
            let names = others.iter().map(|other| other.file.name.clone());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(&tables[0]), ["snow.csv"]);
        assert_eq!(names(&tables[1]), ["rain.csv"]);
        assert!(names(&tables[2]).is_empty());
        let all = Pairs::read(&tables, &store, |_| false);
        assert_eq!(all.partners[&tables[0].id].len(), 2);
    }

    #[test]
    fn some_draws_over_plain_tables_join_others() {
        let avoided = HeldOutRule::default();
        let asked = |medium, messy| {
            let seed = TaskSeed {
                foreign_names: None,
                seed: 0,
                language: Language::En,
                medium,
                renamed: false,
                messy,
                avoided: &avoided,
            };
            let draws = (0..200).map(|draw| Digest::of_json(&draw));
            draws
                .filter(|drawn| Pairs::are_asked_for(seed, drawn))
                .count()
        };
        assert!((20..80).contains(&asked(Medium::Table, false)));
        assert_eq!(asked(Medium::Table, true), 0);
        assert_eq!(asked(Medium::Text, false), 0);
    }
}
