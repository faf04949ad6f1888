use std::io::Write;

use proptest::prelude::*;

use super::*;

#[derive(Default)]
struct Collect {
    files: Vec<(String, Vec<u8>)>,
    refused: Vec<(String, String)>,
}

impl Visitor for Collect {
    fn wants(&self, _: &str) -> bool {
        true
    }
    fn file(&mut self, path: &str, bytes: Vec<u8>) {
        self.files.push((path.into(), bytes));
    }
    fn refused(&mut self, path: &str, reason: String) {
        self.refused.push((path.into(), reason));
    }
}

fn collect(kind: ArchiveKind, bytes: &[u8], bounds: Bounds) -> Collect {
    let mut seen = Collect::default();
    open(
        kind,
        "outer",
        Cursor::new(bytes),
        bytes.len() as u64,
        bounds,
        &mut seen,
    );
    seen
}

fn bounds() -> Bounds {
    Bounds::new(4 << 20, 16 << 20)
}

fn zip_of(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        let options = zip::write::SimpleFileOptions::default();
        writer.start_file(*name, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// Builds a tar with raw names, because the crate's builder refuses hostile ones.
fn tar_of(members: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, kind, bytes) in members {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_entry_type(*kind);
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gz_of(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

const FILE: tar::EntryType = tar::EntryType::Regular;

#[test]
fn members_of_every_archive_kind_are_visited() {
    let tar = tar_of(&[("a/x.csv", FILE, b"x"), ("a/y.csv", FILE, b"y")]);
    let expected: Vec<(String, Vec<u8>)> = vec![
        ("a/x.csv".into(), b"x".into()),
        ("a/y.csv".into(), b"y".into()),
    ];
    let zip = zip_of(&[("a/x.csv", b"x"), ("a/y.csv", b"y")]);
    assert_eq!(collect(ArchiveKind::Tar, &tar, bounds()).files, expected);
    assert_eq!(
        collect(ArchiveKind::Gz, &gz_of(&tar), bounds()).files,
        expected
    );
    assert_eq!(collect(ArchiveKind::Zip, &zip, bounds()).files, expected);
    let nested = zip_of(&[("in.zip", &zip)]);
    let paths: Vec<_> = collect(ArchiveKind::Zip, &nested, bounds())
        .files
        .into_iter()
        .map(|f| f.0)
        .collect();
    assert_eq!(paths, ["in.zip!a/x.csv", "in.zip!a/y.csv"]);
}

#[test]
fn escaping_paths_links_and_devices_are_refused_and_the_rest_is_read() {
    let tar = tar_of(&[
        ("../../etc/passwd.txt", FILE, b"x"),
        ("/abs.txt", FILE, b"x"),
        ("link.txt", tar::EntryType::Symlink, b""),
        ("hard.txt", tar::EntryType::Link, b""),
        ("null.txt", tar::EntryType::Char, b""),
        ("good.txt", FILE, b"x"),
    ]);
    let seen = collect(ArchiveKind::Tar, &tar, bounds());
    assert_eq!(seen.files.len(), 1);
    assert_eq!(seen.refused.len(), 5, "{:?}", seen.refused);
    let zip = zip_of(&[
        ("..\\up.txt", b"x"),
        ("C:\\up.txt", b"x"),
        ("a/../../up.txt", b"x"),
        ("ok.txt", b"x"),
    ]);
    let seen = collect(ArchiveKind::Zip, &zip, bounds());
    assert_eq!((seen.files.len(), seen.refused.len()), (1, 3));
}

#[test]
fn bombs_are_refused() {
    let zeros = vec![0u8; 3 << 20];
    for (kind, bytes) in [
        (ArchiveKind::Zip, zip_of(&[("zeros.txt", &zeros)])),
        (ArchiveKind::Gz, gz_of(&zeros)),
        (
            ArchiveKind::Gz,
            gz_of(&tar_of(&[("zeros.txt", FILE, &zeros)])),
        ),
    ] {
        let seen = collect(kind, &bytes, bounds());
        assert!(seen.files.is_empty());
        assert!(
            seen.refused[0].1.contains("200 times"),
            "{:?}",
            seen.refused
        );
    }
}

#[test]
fn size_total_count_and_depth_are_bounded() {
    let noise: Vec<u8> = (0..100_000u32)
        .flat_map(|i| blake3::hash(&i.to_le_bytes()).as_bytes()[..4].to_vec())
        .collect();
    let many: Vec<(String, &[u8])> = (0..20)
        .map(|i| (format!("{i}.txt"), noise.as_slice()))
        .collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|(n, b)| (n.as_str(), *b)).collect();
    let zip = zip_of(&many);
    let total = collect(ArchiveKind::Zip, &zip, Bounds::new(1 << 20, 1 << 20));
    assert_eq!(total.files.len(), 2);
    assert!(total.refused[0].1.contains("more than 1 MiB"));
    let member = collect(
        ArchiveKind::Zip,
        &zip,
        Bounds {
            member: 1000,
            ..bounds()
        },
    );
    assert_eq!((member.files.len(), member.refused.len()), (0, 20));
    let count = collect(
        ArchiveKind::Zip,
        &zip,
        Bounds {
            count: 5,
            ..bounds()
        },
    );
    assert_eq!((count.files.len(), count.refused.len()), (5, 1));
    let mut nested = zip_of(&[("deep.txt", b"x")]);
    for _ in 0..4 {
        nested = zip_of(&[("in.zip", &nested)]);
    }
    let deep = collect(ArchiveKind::Zip, &nested, bounds());
    assert!(deep.files.is_empty() && deep.refused[0].1.contains("nested deeper"));
}

#[test]
fn a_huge_long_name_is_refused() {
    let name = vec![b'a'; 1 << 20];
    let tar = tar_of(&[
        ("././@LongLink", tar::EntryType::GNULongName, &name),
        ("x.txt", FILE, b"x"),
    ]);
    let seen = collect(ArchiveKind::Tar, &tar, bounds());
    assert!(seen.files.is_empty() && seen.refused[0].1.contains("64 KiB"));
    let long = "d/".repeat(80) + "x.txt";
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    header.set_cksum();
    builder.append_data(&mut header, &long, &b"x"[..]).unwrap();
    let seen = collect(ArchiveKind::Tar, &builder.into_inner().unwrap(), bounds());
    assert_eq!(seen.files[0].0, long);
}

proptest! {
    #[test]
    fn truncated_and_flipped_archives_never_panic(cut in 0usize..2000, flip in 0usize..2000, bit in 0u8..8) {
        let noise: Vec<u8> = (0..=255).cycle().take(700).collect();
        let tar = tar_of(&[("a.txt", FILE, &noise), ("b.txt", FILE, b"y")]);
        for (kind, mut bytes) in [
            (ArchiveKind::Zip, zip_of(&[("a.txt", &noise), ("b.txt", b"y")])),
            (ArchiveKind::Gz, gz_of(&tar)),
            (ArchiveKind::Tar, tar),
        ] {
            let at = flip % bytes.len();
            bytes[at] ^= 1 << bit;
            bytes.truncate(bytes.len().saturating_sub(cut % 300));
            let seen = collect(kind, &bytes, bounds());
            for (path, _) in seen.files {
                prop_assert!(!path.contains("..") && !path.starts_with('/'));
            }
        }
    }
}

#[test]
fn fuzz_archives() {
    bolero::check!().for_each(|bytes: &[u8]| {
        for kind in [ArchiveKind::Zip, ArchiveKind::Tar, ArchiveKind::Gz] {
            collect(kind, bytes, Bounds::new(1 << 16, 1 << 18));
        }
    });
}
