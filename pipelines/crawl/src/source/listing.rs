//! Selects and downloads files from the listing of a service.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use pybench_run::{Failure, FailureKind, Search};
use reqwest::Url;

use super::{Sink, blocking, known_extension};
use pybench_net::{Expected, FetchError, Fetched, Service};

/// Longest path of a listed file, in bytes.
const MAX_PATH: usize = 1000;

/// Selects files of a listing by glob.
#[derive(Clone, Debug)]
pub(super) struct FileFilter {
    include: GlobSet,
    max_files: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListedFile {
    pub(super) path: String,
    pub(super) expected: Expected,
}

impl FileFilter {
    /// Selects the first `max_files` files that match a glob of `include`, or all of a known type when
    /// `include` is empty.
    ///
    /// # Errors
    /// An invalid glob.
    pub(super) fn new(include: &[String], max_files: usize) -> Result<Self, Failure> {
        let wrong = |e: globset::Error| Failure::new(FailureKind::Item, format!("include: {e}"));
        let mut set = GlobSetBuilder::new();
        for pattern in include {
            let glob = GlobBuilder::new(pattern).literal_separator(true).build();
            set.add(glob.map_err(wrong)?);
        }
        let include = set.build().map_err(wrong)?;
        Ok(Self { include, max_files })
    }

    pub(super) fn wants(&self, path: &str) -> bool {
        // The path of an archive member starts with the archive's own path and a `!`.
        let outer = path.split('!').next().unwrap_or(path);
        match self.include.is_empty() {
            true => known_extension(path),
            false => {
                self.include.is_match(path)
                    || (outer != path && self.include.is_match(outer) && known_extension(path))
            }
        }
    }

    /// The selected files in the order of their paths, and how many more match.
    pub(super) fn select(&self, mut files: Vec<ListedFile>) -> (Vec<ListedFile>, usize) {
        files.retain(|file| is_plain(&file.path) && self.wants(&file.path));
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        let more = files.len().saturating_sub(self.max_files);
        files.truncate(self.max_files);
        (files, more)
    }
}

/// Whether a path is relative and stays below its folder.
fn is_plain(path: &str) -> bool {
    let part = |part: &str| !matches!(part, "" | "." | "..");
    path.len() <= MAX_PATH && !path.contains(['\0', '\n', '\r', '\\']) && path.split('/').all(part)
}

/// Downloads the selected files one after another. `origin` names the repository or record with its
/// revision; `url_of` maps a path to its URL.
pub(super) async fn download_all(
    service: &Service,
    sink: &Sink,
    origin: &str,
    filter: &FileFilter,
    listed: Vec<ListedFile>,
    url_of: impl Fn(&str) -> Url,
) -> Result<(), Failure> {
    let (files, more) = filter.select(listed);
    for file in files {
        let url = url_of(&file.path);
        download_one(service, sink, origin, filter, file, url).await?;
    }
    if more > 0 {
        left_out(
            sink,
            origin,
            format!("{more} more files match than the source's `files` allows"),
        )
        .await?;
    }
    Ok(())
}

async fn download_one(
    service: &Service,
    sink: &Sink,
    origin: &str,
    filter: &FileFilter,
    file: ListedFile,
    url: Url,
) -> Result<(), Failure> {
    let whole = format!("{origin}#{}", file.path);
    let limits = sink.limits();
    if file.expected.size.is_some_and(|size| size > limits.total) {
        let reason = format!(
            "larger than {} MiB; `crawl.total_mib` allows more",
            limits.total >> 20
        );
        return left_out(sink, &whole, reason).await;
    }
    let (filter, path) = (filter.clone(), file.path);
    let offer = move |sink: &Sink, origin: &str, got: Fetched| {
        // Members of a selected archive are selected by their own names.
        let wants = |inner: &str| filter.wants(&format!("{path}!{inner}"));
        sink.offer(origin, &path, got.file, &wants);
    };
    download(service, sink, whole, (url, &file.expected), offer).await
}

/// Downloads one file and offers it to the sink. If the service refuses it, it is left out.
pub(super) async fn download(
    service: &Service,
    sink: &Sink,
    origin: String,
    (url, expected): (Url, &Expected),
    offer: impl FnOnce(&Sink, &str, Fetched) + Send + 'static,
) -> Result<(), Failure> {
    match service.download(url, expected, sink.limits()).await {
        Ok(got) => {
            let sink = sink.clone();
            blocking(move || {
                offer(&sink, &origin, got);
                Ok(())
            })
            .await
        }
        Err(FetchError::Refused(reason)) => left_out(sink, &origin, reason).await,
        Err(FetchError::Failed(failure)) => Err(failure),
    }
}

/// Reports that something was left out.
pub(super) async fn left_out(sink: &Sink, origin: &str, reason: String) -> Result<(), Failure> {
    let (sink, origin) = (sink.clone(), origin.to_owned());
    blocking(move || {
        sink.left_out(&origin, reason);
        Ok(())
    })
    .await
}

/// Splits a pinned name of a recipe, `owner/name@revision`, into name and revision.
pub(super) fn parse_pinned(text: &str) -> Result<(&str, &str), Failure> {
    let pinned = text.split_once('@').filter(|(name, revision)| {
        is_plain(name)
            && !revision.is_empty()
            && revision.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    pinned.ok_or_else(|| {
        let text = format!("{text}: expected the form `name@revision`");
        Failure::new(FailureKind::Item, text)
    })
}

/// The item name of a search.
pub(super) fn search_item(search: &Search) -> String {
    format!("search {} ({})", search.text, search.most)
}

/// The search that an item names; `None` if the item is not a search.
pub(super) fn find_search<'a>(searches: &'a [Search], item: &str) -> Option<&'a Search> {
    searches.iter().find(|search| search_item(search) == item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(paths: &[&str]) -> Vec<ListedFile> {
        let file = |path: &&str| ListedFile {
            path: (*path).to_owned(),
            expected: Expected::default(),
        };
        paths.iter().map(file).collect()
    }

    fn chosen(include: &[&str], max_files: usize, paths: &[&str]) -> (Vec<String>, usize) {
        let include: Vec<String> = include.iter().map(|&glob| glob.to_owned()).collect();
        let (files, more) = FileFilter::new(&include, max_files)
            .unwrap()
            .select(listed(paths));
        (files.into_iter().map(|file| file.path).collect(), more)
    }

    #[test]
    fn files_are_selected_by_glob_or_type_in_order() {
        let paths = ["b/x.csv", "a.csv", "code.rs", "z.zip", "a.csv"];
        assert_eq!(chosen(&[], 9, &paths).0, ["a.csv", "b/x.csv", "z.zip"]);
        assert_eq!(chosen(&["*.csv"], 9, &paths).0, ["a.csv"]);
        assert_eq!(
            chosen(&["**/*.csv"], 1, &paths),
            (vec!["a.csv".to_owned()], 1)
        );
        assert_eq!(chosen(&["code.rs"], 9, &paths).0, ["code.rs"]);
        assert!(FileFilter::new(&["{".to_owned()], 1).is_err());
    }

    #[test]
    fn members_are_selected_with_their_archive() {
        let filter = FileFilter::new(&["*.zip".to_owned()], 9).unwrap();
        assert!(filter.wants("z.zip!in/a.csv") && !filter.wants("z.zip!in/a.exe"));
        assert!(!filter.wants("y.tar!in/a.csv"));
    }

    #[test]
    fn pinned_names_are_split() {
        assert_eq!(parse_pinned("a/b@12").unwrap(), ("a/b", "12"));
        for wrong in ["a/b", "a/b@", "@1", "../b@1", "a/b@1/2", "a//b@1"] {
            assert!(parse_pinned(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_path_escapes_its_folder(path in "[a./\\\\\n]{0,12}") {
            let (files, _) = chosen(&["**"], 9, &[&path]);
            for file in files {
                prop_assert!(!file.split('/').any(|part| part == ".." || part.is_empty()));
            }
        }
    }
}
