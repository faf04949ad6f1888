//! Compares a package with a repository: which files must be uploaded or deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::package::{Package, bytes, list};
use pybench_hub::{RemoteFile, UploadFile};

/// The changes that make a repository match a package.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// New and changed files.
    pub put: Vec<&'a UploadFile>,
    /// Number of unchanged files.
    pub unchanged: usize,
    /// Files to delete.
    pub delete: Vec<String>,
}

impl<'a> Plan<'a> {
    /// Compare files by size and hash.
    pub fn new(package: &'a Package, tree: &BTreeMap<String, RemoteFile>) -> Self {
        let is_unchanged = |content: &&UploadFile| {
            let kept = tree.get(&content.path);
            kept.is_some_and(|kept| kept.matches(content))
        };
        let (unchanged, put): (Vec<_>, Vec<_>) = package.contents.iter().partition(is_unchanged);
        let wanted = package.contents.iter().map(|content| content.path.as_str());
        let wanted: BTreeSet<&str> = wanted.collect();
        let gone = tree.keys().filter(|path| {
            let path = path.as_str();
            (package.owns)(path) && !wanted.contains(path)
        });
        Self {
            put,
            unchanged: unchanged.len(),
            delete: gone.cloned().collect(),
        }
    }

    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.put.is_empty() && self.delete.is_empty()
    }
}

impl fmt::Display for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size: u64 = self.put.iter().map(|content| content.size).sum();
        let mut text = String::new();
        let put = self.put.iter().map(|c| (c.path.as_str(), c.size));
        list(&mut text, put, "upload ");
        for path in &self.delete {
            text += &format!("  delete             {path}\n");
        }
        let (count, unchanged) = (self.put.len(), self.unchanged);
        writeln!(
            f,
            "{text}{count} files to upload (at most {}), {unchanged} unchanged",
            bytes(size)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_hub::Kind;

    #[test]
    fn files_of_others_are_not_deleted() {
        let mut package = Package::new(Kind::Dataset, "t".into(), |path| path.starts_with("data/"));
        package.bytes("data/a", "new").unwrap();
        let package = package.with_card("card".into()).unwrap();
        let kept = |text: &str| -> BTreeMap<String, RemoteFile> {
            let content = UploadFile::of_bytes("x", text.to_owned()).unwrap();
            let kept = RemoteFile::of(&content);
            let paths = [
                "README.md",
                "data/a",
                "data/b",
                "notes.md",
                ".gitattributes",
            ];
            paths.map(|path| (path.to_owned(), kept.clone())).into()
        };
        let plan = Plan::new(&package, &kept("card"));
        assert_eq!((plan.put.len(), plan.unchanged), (1, 1));
        assert_eq!(plan.put[0].path, "data/a");
        assert_eq!(plan.delete, ["data/b"]);
        assert!(!plan.is_empty());
        let all = Plan::new(&package, &BTreeMap::new());
        assert_eq!((all.put.len(), all.delete.len()), (2, 0));
        let text = all.to_string();
        assert!(
            text.contains("2 files to upload (at most 7 B), 0 unchanged"),
            "{text}"
        );
    }
}
