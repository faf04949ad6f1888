//! What a crawl found, in a few lines: counts, and the most frequent reasons for what cannot be used.

use std::collections::BTreeMap;
use std::fmt;

use pybench_types::task::{FileKind, Profile};

use super::REPORT;
use super::stage::{Manifest, Remark, RemarkKind};

/// Maximum number of reasons shown.
const MAX_REASONS: usize = 6;

/// Counts of a crawl. Broken files are part of its result, but no task uses them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    usable: BTreeMap<FileKind, usize>,
    /// Number of files by reason.
    broken: BTreeMap<String, usize>,
    /// Number of files by reason, which names the key of the recipe that would keep them, if there is one.
    left_out: BTreeMap<String, usize>,
}

impl Summary {
    pub(super) fn of(chosen: &Manifest) -> Self {
        let mut summary = Self::default();
        for file in &chosen.files {
            match &file.profile {
                Profile::Broken { reason } => {
                    *summary.broken.entry(reason.clone()).or_default() += 1;
                }
                _ => *summary.usable.entry(file.kind).or_default() += 1,
            }
        }
        let left_out = |remark: &&Remark| remark.what == RemarkKind::LeftOut;
        for remark in chosen.remarks.iter().filter(left_out) {
            let reason = match remark.reason.starts_with("has the same bytes as") {
                true => "has the same bytes as another file",
                false => &remark.reason,
            };
            *summary.left_out.entry(reason.to_owned()).or_default() += 1;
        }
        summary
    }

    /// Usable files by type: `12 csv, 3 md`.
    pub(super) fn usable(&self) -> String {
        let kinds = self.usable.iter();
        let kinds: Vec<_> = kinds
            .map(|(kind, count)| format!("{count} {}", kind.name()))
            .collect();
        kinds.join(", ")
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [usable, broken, left_out] = [
            self.usable.values().sum::<usize>(),
            self.broken.values().sum(),
            self.left_out.values().sum(),
        ];
        let found = usable + broken + left_out;
        write!(f, "{found} files found: {usable} usable")?;
        if usable > 0 {
            write!(f, " ({})", self.usable())?;
        }
        writeln!(f, ", {broken} broken, {left_out} left out")?;
        let label = |what: &'static str| move |(reason, count)| (what, reason, count);
        let broken = self.broken.iter().map(label("broken"));
        let left_out = self.left_out.iter().map(label("left out"));
        let mut reasons: Vec<_> = broken.chain(left_out).collect();
        reasons.sort_by_key(|(_, _, count)| std::cmp::Reverse(*count));
        for (what, reason, count) in reasons.iter().take(MAX_REASONS) {
            writeln!(f, "{count} {what}: {reason}")?;
        }
        match reasons.len().saturating_sub(MAX_REASONS) {
            0 => Ok(()),
            more => writeln!(f, "{more} more reasons are in {REPORT}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_types::id::Digest;
    use pybench_types::task::SourceFile;

    fn file(kind: FileKind, profile: Profile) -> SourceFile {
        SourceFile {
            id: Digest::of_bytes(b""),
            name: "a".into(),
            size: 1,
            kind,
            origin: "a".into(),
            license: None,
            fetched: String::new(),
            profile,
        }
    }

    fn left_out(reason: &str) -> Remark {
        Remark {
            what: RemarkKind::LeftOut,
            origin: "a".into(),
            reason: reason.into(),
        }
    }

    #[test]
    fn files_are_counted_with_the_most_frequent_reasons_first() {
        let document = || pybench_profile::profile(FileKind::Md, b"# A title\n");
        let broken = Profile::Broken {
            reason: "not UTF-8".into(),
        };
        let mut renamed = left_out("kept as `b`");
        renamed.what = RemarkKind::Renamed;
        let chosen = Manifest {
            files: vec![
                file(FileKind::Md, document()),
                file(FileKind::Txt, document()),
                file(FileKind::Md, document()),
                file(FileKind::Csv, broken),
            ],
            remarks: vec![
                left_out("a symbolic link"),
                left_out("has the same bytes as x.md"),
                renamed,
                left_out("has the same bytes as y.md"),
            ],
        };
        let text = Summary::of(&chosen).to_string();
        assert_eq!(
            text,
            "7 files found: 3 usable (1 txt, 2 md), 1 broken, 3 left out\n\
             2 left out: has the same bytes as another file\n\
             1 broken: not UTF-8\n\
             1 left out: a symbolic link\n"
        );
    }
}
