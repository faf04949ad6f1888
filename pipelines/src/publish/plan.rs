//! What has to change in a repository so that it is as it is to be.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::package::{Package, bytes, list};
use crate::hub::{Content, Kept};

/// A comparison of what is to be with what is there.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// New files, and files with other bytes.
    pub put: Vec<&'a Content>,
    /// Files that are there with their bytes.
    pub same: usize,
    /// Files that are there and no longer wanted.
    pub delete: Vec<String>,
}

impl<'a> Plan<'a> {
    /// Compare by size and hash.
    pub fn new(package: &'a Package, tree: &BTreeMap<String, Kept>) -> Self {
        let is_there = |content: &&Content| {
            let kept = tree.get(&content.path);
            kept.is_some_and(|kept| kept.is(content))
        };
        let (same, put): (Vec<_>, Vec<_>) = package.contents.iter().partition(is_there);
        let wanted = package.contents.iter().map(|content| content.path.as_str());
        let wanted: BTreeSet<&str> = wanted.collect();
        let gone = tree.keys().filter(|path| {
            let path = path.as_str();
            (package.owns)(path) && !wanted.contains(path)
        });
        Self {
            put,
            same: same.len(),
            delete: gone.cloned().collect(),
        }
    }

    /// Whether nothing has to change.
    pub fn is_done(&self) -> bool {
        self.put.is_empty() && self.delete.is_empty()
    }
}

impl fmt::Display for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size: u64 = self.put.iter().map(|content| content.size).sum();
        let mut text = String::new();
        let put = self.put.iter().map(|c| (c.path.as_str(), c.size));
        list(&mut text, put, "send ");
        for path in &self.delete {
            text += &format!("  delete           {path}\n");
        }
        let (count, same) = (self.put.len(), self.same);
        writeln!(
            f,
            "{text}{count} files to send, {} at most; {same} are there already",
            bytes(size)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::Kind;

    #[test]
    fn nothing_of_others_is_deleted() {
        let mut package = Package::new(Kind::Dataset, "t".into(), |path| path.starts_with("data/"));
        package.bytes("data/a", "new").unwrap();
        let package = package.with_card("card".into()).unwrap();
        let kept = |text: &str| -> BTreeMap<String, Kept> {
            let content = Content::of_bytes("x", text.to_owned()).unwrap();
            let kept = Kept::of(&content);
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
        assert_eq!((plan.put.len(), plan.same), (1, 1));
        assert_eq!(plan.put[0].path, "data/a");
        assert_eq!(plan.delete, ["data/b"]);
        assert!(!plan.is_done());
        let all = Plan::new(&package, &BTreeMap::new());
        assert_eq!((all.put.len(), all.delete.len()), (2, 0));
        let text = all.to_string();
        assert!(
            text.contains("2 files to send, 7 B at most; 0 are"),
            "{text}"
        );
    }
}
