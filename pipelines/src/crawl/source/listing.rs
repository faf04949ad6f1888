//! What is taken of the files that a service lists, and how.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use pybench::run::{Failure, FailureKind, Search};
use reqwest::Url;

use super::web::{Expected, Service, Trouble};
use super::{Outlet, blocking, known_extension};

/// Longest path of a listing.
const MAX_PATH: usize = 1000;

/// Which files of a listing are wanted.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    include: GlobSet,
    most: usize,
}

/// A file of a listing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Listed {
    pub(super) path: String,
    pub(super) expected: Expected,
}

impl Choice {
    /// Those that a glob names, or all of a known type; the first `most` of them.
    ///
    /// # Errors
    /// The glob that is none.
    pub(super) fn new(include: &[String], most: usize) -> Result<Self, Failure> {
        let wrong = |e: globset::Error| Failure::new(FailureKind::Item, format!("include: {e}"));
        let mut set = GlobSetBuilder::new();
        for pattern in include {
            let glob = GlobBuilder::new(pattern).literal_separator(true).build();
            set.add(glob.map_err(wrong)?);
        }
        let include = set.build().map_err(wrong)?;
        Ok(Self { include, most })
    }

    pub(super) fn wants(&self, path: &str) -> bool {
        // Members of an archive are shown with the archive's own name before a `!`.
        let outer = path.split('!').next().unwrap_or(path);
        match self.include.is_empty() {
            true => known_extension(path),
            false => {
                self.include.is_match(path)
                    || (outer != path && self.include.is_match(outer) && known_extension(path))
            }
        }
    }

    /// The chosen ones in the order of their paths, and how many more there are.
    pub(super) fn of(&self, mut files: Vec<Listed>) -> (Vec<Listed>, usize) {
        files.retain(|file| is_plain(&file.path) && self.wants(&file.path));
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        let more = files.len().saturating_sub(self.most);
        files.truncate(self.most);
        (files, more)
    }
}

/// Whether a path leads nowhere but down.
fn is_plain(path: &str) -> bool {
    let part = |part: &str| !matches!(part, "" | "." | "..");
    path.len() <= MAX_PATH && !path.contains(['\0', '\n', '\r', '\\']) && path.split('/').all(part)
}

/// Take files one after another. `origin` names the whole, with its revision; `place` is where a file is.
pub(super) async fn take(
    service: &Service,
    outlet: &Outlet,
    origin: &str,
    choice: &Choice,
    listed: Vec<Listed>,
    place: impl Fn(&str) -> Url,
) -> Result<(), Failure> {
    let (files, more) = choice.of(listed);
    for file in files {
        let url = place(&file.path);
        one(service, outlet, origin, choice, file, url).await?;
    }
    if more > 0 {
        left_out(
            outlet,
            origin,
            format!("{more} more files than the recipe takes"),
        )
        .await?;
    }
    Ok(())
}

async fn one(
    service: &Service,
    outlet: &Outlet,
    origin: &str,
    choice: &Choice,
    file: Listed,
    url: Url,
) -> Result<(), Failure> {
    let whole = format!("{origin}#{}", file.path);
    let limits = outlet.limits();
    if file.expected.size.is_some_and(|size| size > limits.total) {
        let reason = format!("larger than {} MiB", limits.total >> 20);
        return left_out(outlet, &whole, reason).await;
    }
    match service.download(url, &file.expected, limits).await {
        Ok(got) => {
            let (outlet, choice) = (outlet.clone(), choice.clone());
            blocking(move || {
                // Of an archive that is wanted, what is inside is wanted by its own name.
                let wants = |inner: &str| choice.wants(&format!("{}!{inner}", file.path));
                outlet.offer(&whole, &file.path, got.file, &wants);
                Ok(())
            })
            .await
        }
        Err(Trouble::Refused(reason)) => left_out(outlet, &whole, reason).await,
        Err(Trouble::Failed(failure)) => Err(failure),
    }
}

/// Say that something was left out.
pub(super) async fn left_out(outlet: &Outlet, origin: &str, reason: String) -> Result<(), Failure> {
    let (outlet, origin) = (outlet.clone(), origin.to_owned());
    blocking(move || {
        outlet.left_out(&origin, reason);
        Ok(())
    })
    .await
}

/// What a pinned name of a recipe means: `owner/name@revision`.
pub(super) fn pinned(text: &str) -> Result<(&str, &str), Failure> {
    let pinned = text.split_once('@').filter(|(name, revision)| {
        is_plain(name)
            && !revision.is_empty()
            && revision.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    pinned.ok_or_else(|| {
        let text = format!("{text}: not of the form `name@revision`");
        Failure::new(FailureKind::Item, text)
    })
}

/// The item of a search.
pub(super) fn search_item(search: &Search) -> String {
    format!("search {} ({})", search.text, search.most)
}

/// The search that an item stands for.
pub(super) fn search_of<'a>(searches: &'a [Search], item: &str) -> Option<&'a Search> {
    searches.iter().find(|search| search_item(search) == item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(paths: &[&str]) -> Vec<Listed> {
        let file = |path: &&str| Listed {
            path: (*path).to_owned(),
            expected: Expected::default(),
        };
        paths.iter().map(file).collect()
    }

    fn chosen(include: &[&str], most: usize, paths: &[&str]) -> (Vec<String>, usize) {
        let include: Vec<String> = include.iter().map(|&glob| glob.to_owned()).collect();
        let (files, more) = Choice::new(&include, most).unwrap().of(listed(paths));
        (files.into_iter().map(|file| file.path).collect(), more)
    }

    #[test]
    fn files_are_chosen_by_globs_or_types_in_order() {
        let paths = ["b/x.csv", "a.csv", "code.rs", "z.zip", "a.csv"];
        assert_eq!(chosen(&[], 9, &paths).0, ["a.csv", "b/x.csv", "z.zip"]);
        assert_eq!(chosen(&["*.csv"], 9, &paths).0, ["a.csv"]);
        assert_eq!(
            chosen(&["**/*.csv"], 1, &paths),
            (vec!["a.csv".to_owned()], 1)
        );
        assert_eq!(chosen(&["code.rs"], 9, &paths).0, ["code.rs"]);
        assert!(Choice::new(&["{".to_owned()], 1).is_err());
    }

    #[test]
    fn members_are_wanted_with_their_archive() {
        let choice = Choice::new(&["*.zip".to_owned()], 9).unwrap();
        assert!(choice.wants("z.zip!in/a.csv") && !choice.wants("z.zip!in/a.exe"));
        assert!(!choice.wants("y.tar!in/a.csv"));
    }

    #[test]
    fn pins_are_split() {
        assert_eq!(pinned("a/b@12").unwrap(), ("a/b", "12"));
        for wrong in ["a/b", "a/b@", "@1", "../b@1", "a/b@1/2", "a//b@1"] {
            assert!(pinned(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_path_leads_up(path in "[a./\\\\\n]{0,12}") {
            let (files, _) = chosen(&["**"], 9, &[&path]);
            for file in files {
                prop_assert!(!file.split('/').any(|part| part == ".." || part.is_empty()));
            }
        }
    }
}
