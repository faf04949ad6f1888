//! Decides which files are kept: a quota per type, spread evenly over sources, small files first.

use std::collections::{BTreeMap, HashMap, HashSet};

use pybench_run::Crawl;
use pybench_types::id::Digest;
use pybench_types::task::{FileKind, Profile, SourceFile};

use super::stage::{Manifest, Remark, RemarkKind};
use pybench_files::name::with_tag;

/// Merges the manifests of all items, in the order of the sources, and applies the quotas. Manifests that
/// differ only in the time of fetching give equal results.
pub(super) fn select(manifests: Vec<Manifest>, crawl: &Crawl, seed: u64) -> Manifest {
    let mut merged = Manifest::default();
    let mut seen: HashMap<Digest, String> = HashMap::new();
    let mut by_kind: BTreeMap<FileKind, Vec<Vec<SourceFile>>> = BTreeMap::new();
    for manifest in manifests {
        merged.remarks.extend(manifest.remarks);
        let mut of_item: BTreeMap<FileKind, Vec<SourceFile>> = BTreeMap::new();
        for file in manifest.files {
            match seen.get(&file.id) {
                Some(first) => {
                    let reason = format!("has the same bytes as {first}");
                    merged.remarks.push(left_out(&file, reason));
                }
                None => {
                    seen.insert(file.id.clone(), file.origin.clone());
                    of_item.entry(file.kind).or_default().push(file);
                }
            }
        }
        for (kind, files) in of_item {
            by_kind.entry(kind).or_default().push(files);
        }
    }
    for (kind, groups) in by_kind {
        let quota = crawl
            .quota
            .get(&kind)
            .copied()
            .unwrap_or(crawl.default_quota);
        let mut ranked = round_robin(groups, seed);
        for file in ranked.split_off(quota.min(ranked.len())) {
            let reason = format!(
                "more than {quota} {0} files; `crawl.quota.{0}` allows more",
                kind.name()
            );
            merged.remarks.push(left_out(&file, reason));
        }
        merged.files.extend(ranked);
    }
    bound_total(&mut merged, crawl.total_mib);
    make_names_unique(&mut merged.files);
    merged
        .files
        .sort_by(|a, b| (a.kind, &a.origin, &a.id).cmp(&(b.kind, &b.origin, &b.id)));
    merged.remarks.sort();
    merged.remarks.dedup();
    merged
}

fn left_out(file: &SourceFile, reason: String) -> Remark {
    Remark {
        what: RemarkKind::LeftOut,
        origin: file.origin.clone(),
        reason,
    }
}

/// Takes one file of each group in turn, the best of a group first. Broken files come last.
fn round_robin(mut groups: Vec<Vec<SourceFile>>, seed: u64) -> Vec<SourceFile> {
    for group in &mut groups {
        group.sort_by_cached_key(|file| rank(file, seed));
    }
    let mut ranked: Vec<(bool, usize, usize, SourceFile)> = Vec::new();
    for (number, group) in groups.into_iter().enumerate() {
        for (rank, file) in group.into_iter().enumerate() {
            let broken = matches!(file.profile, Profile::Broken { .. });
            ranked.push((broken, rank, number, file));
        }
    }
    ranked.sort_by_key(|(broken, rank, number, _)| (*broken, *rank, *number));
    ranked.into_iter().map(|(.., file)| file).collect()
}

/// Sort key of a file: small to medium files before large and tiny ones; within a class, a seeded
/// pseudo-random order.
fn rank(file: &SourceFile, seed: u64) -> (bool, u8, Digest) {
    let broken = matches!(file.profile, Profile::Broken { .. });
    let class = match file.size {
        256..=1_048_576 => 0,
        1_048_577..=8_388_608 => 1,
        _ => 2,
    };
    (broken, class, Digest::of_json(&(seed, &file.id)))
}

/// Drops the largest files until the total size fits.
fn bound_total(merged: &mut Manifest, total_mib: u64) {
    merged
        .files
        .sort_by(|a, b| (a.size, &a.id).cmp(&(b.size, &b.id)));
    let limit = total_mib.saturating_mul(1 << 20);
    let mut sum = 0u64;
    let fits = merged.files.iter().take_while(|file| {
        sum = sum.saturating_add(file.size);
        sum <= limit
    });
    let keep = fits.count();
    for file in merged.files.split_off(keep) {
        let reason = format!(
            "all files together would exceed {total_mib} MiB; `crawl.total_mib` allows more"
        );
        merged.remarks.push(left_out(&file, reason));
    }
}

/// Makes the file names of a run unique, so that any two files can be placed in one folder.
fn make_names_unique(files: &mut [SourceFile]) {
    files.sort_by(|a, b| (&a.origin, &a.id).cmp(&(&b.origin, &b.id)));
    let mut taken: HashSet<String> = HashSet::new();
    for file in files {
        if !taken.insert(file.name.to_lowercase()) {
            file.name = with_tag(&file.name, &file.id.as_str()[..8]);
            taken.insert(file.name.to_lowercase());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(origin: &str, size: u64, broken: bool) -> SourceFile {
        SourceFile {
            id: Digest::of_bytes(origin.as_bytes()),
            name: origin.rsplit('/').next().unwrap().into(),
            size,
            kind: FileKind::Csv,
            origin: origin.into(),
            license: None,
            fetched: String::new(),
            profile: match broken {
                true => Profile::Broken { reason: "x".into() },
                false => Profile::Image(pybench_types::task::ImageProfile {
                    width: 1,
                    height: 1,
                    mode: "L".into(),
                    frames: 1,
                    symmetric: false,
                    uniform: false,
                }),
            },
        }
    }

    fn crawl(quota: usize) -> Crawl {
        Crawl {
            sources: vec![],
            fallback: vec![],
            file_mib: 1,
            total_mib: 1,
            quota: BTreeMap::from([(FileKind::Csv, quota)]),
            default_quota: 0,
        }
    }

    fn manifest(files: Vec<SourceFile>) -> Manifest {
        Manifest {
            files,
            remarks: vec![],
        }
    }

    #[test]
    fn quotas_are_spread_over_sources_and_prefer_intact_small_files() {
        let a = (0..10)
            .map(|i| file(&format!("a/{i}.csv"), 1000, i == 3))
            .collect();
        let b = vec![
            file("b/x.csv", 1000, false),
            file("b/big.csv", 9 << 20, false),
        ];
        let chosen = select(vec![manifest(a), manifest(b)], &crawl(3), 7);
        let origins: Vec<_> = chosen.files.iter().map(|f| f.origin.as_str()).collect();
        assert_eq!(origins.len(), 3);
        assert!(
            origins.contains(&"b/x.csv") && !origins.contains(&"a/3.csv"),
            "{origins:?}"
        );
        assert_eq!(chosen.remarks.len(), 9);
    }

    #[test]
    fn the_first_source_keeps_a_duplicate_and_names_are_unique() {
        let mut copy = file("a/1.csv", 1000, false);
        copy.origin = "b/copy.csv".into();
        let parts = vec![
            manifest(vec![file("a/1.csv", 1000, false)]),
            manifest(vec![copy, file("c/1.csv", 1000, false)]),
        ];
        let chosen = select(parts, &crawl(9), 0);
        let names: HashSet<_> = chosen.files.iter().map(|f| f.name.clone()).collect();
        assert_eq!((chosen.files.len(), names.len()), (2, 2));
        assert_eq!(chosen.remarks[0].reason, "has the same bytes as a/1.csv");
    }

    #[test]
    fn the_total_size_is_bounded() {
        let files = (0..4)
            .map(|i| file(&format!("{i}.csv"), 400_000, false))
            .collect();
        let chosen = select(vec![manifest(files)], &crawl(9), 0);
        assert_eq!(chosen.files.len(), 2);
        assert!(chosen.remarks[0].reason.contains("exceed 1 MiB"));
    }
}
