//! Source files with their profiles, as `crawl` would make them.

use pybench_types::id::Digest;
use pybench_types::task::*;

pub fn file(name: &str, kind: FileKind, profile: Profile) -> SourceFile {
    SourceFile {
        id: Digest::of_bytes(name.as_bytes()),
        name: name.to_owned(),
        size: 1000,
        kind,
        origin: format!("fixtures/{name}"),
        license: None,
        fetched: String::new(),
        profile,
    }
}

pub fn column(name: &str, kind: ColumnKind, distinct: u64) -> ColumnProfile {
    ColumnProfile {
        name: name.to_owned(),
        kind,
        nulls: 0,
        distinct,
        min: Some("1".into()),
        max: Some("9".into()),
    }
}

pub fn table(name: &str, kind: FileKind, columns: Vec<ColumnProfile>) -> SourceFile {
    let profile = TableProfile {
        rows: 100,
        columns,
        duplicate_rows: 0,
        sample: Vec::new(),
        tables: Vec::new(),
        delimiter: Some(','),
        encoding: Some("utf-8".into()),
        read: Default::default(),
    };
    file(name, kind, Profile::Table(profile))
}

pub fn cars(name: &str) -> SourceFile {
    let columns = vec![
        column("Origin", ColumnKind::Text, 3),
        column("maker", ColumnKind::Text, 12),
        column("Miles per Gallon", ColumnKind::Float, 60),
        column("Weight", ColumnKind::Integer, 90),
        column("1990", ColumnKind::Integer, 90),
        column("", ColumnKind::Integer, 90),
        column("mean", ColumnKind::Integer, 90),
        column("say \"hi\"", ColumnKind::Integer, 90),
        column("twice", ColumnKind::Integer, 90),
        column("Twice", ColumnKind::Integer, 90),
    ];
    table(name, FileKind::Csv, columns)
}

pub fn picture(name: &str) -> SourceFile {
    let profile = ImageProfile {
        width: 40,
        height: 30,
        mode: "RGB".into(),
        frames: 1,
        symmetric: false,
        uniform: false,
    };
    file(name, FileKind::Png, Profile::Image(profile))
}
