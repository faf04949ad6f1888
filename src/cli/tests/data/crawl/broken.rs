//! A folder of broken and hostile files, crawled by the real binary: no crash, bounded memory, and
//! every file reported.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Cursor, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use pybench_crawl::stage::{Remark, RemarkKind};
use pybench_types::task::{FileKind, Profile, SourceFile};

const RECIPE: &str = r#"
name = "broken"

[crawl]
file_mib = 32

[[crawl.sources]]
source = "local"
path = "broken"

[query]
tasks = 1

[teacher]
kind = "expert"
"#;

/// Peak resident memory of a command in KiB, and its exit code: `wait4` knows both.
const MEASURE: &str = "import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, code)";

#[test]
fn broken_files_are_reported_and_memory_stays_bounded() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("recipe.toml"), RECIPE).unwrap();
    let folder = root.path().join("broken");
    fs::create_dir(&folder).unwrap();
    make_broken(&folder);
    let output = Command::new("python3")
        .args([
            "-c",
            MEASURE,
            crate::support::PYBENCH,
            "crawl",
            "recipe.toml",
        ])
        .args(["--runs-dir", "runs"])
        .current_dir(root.path())
        .env("PYBENCH_CACHE", root.path().join("cache"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let words: Vec<u64> = said
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    assert_eq!(words[1], 0, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(words[0] < 1 << 20, "peak memory {} KiB", words[0]);
    println!("peak memory {} MiB", words[0] >> 10);
    let run = root.path().join("runs/broken");
    check_files(&read_lines(&run.join("files.jsonl")));
    check_report(&read_lines(&run.join("crawl-report.jsonl")));
}

fn read_lines<T: serde::de::DeserializeOwned>(path: &Path) -> Vec<T> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn make_broken(folder: &Path) {
    let samples = Path::new(pybench_testing::ROOT).join("data/samples/files");
    let sample = |name: &str| fs::read(samples.join(name)).unwrap();
    let write = |name: &[u8], bytes: &[u8]| {
        fs::write(folder.join(OsStr::from_bytes(name)), bytes).unwrap();
    };
    write(b"empty.csv", b"");
    for name in TRUNCATED {
        let bytes = sample(name);
        write(format!("cut-{name}").as_bytes(), &bytes[..bytes.len() / 3]);
    }
    write(b"really-a-png.csv", &sample("hills.png"));
    write(b"noise.xlsx", &[7, 0, 9, 200, 31, 0, 0, 1].repeat(500));
    write(b"ragged.csv", b"a,b\n1,2\n1,2,3\n");
    write(
        b"deep.json",
        &[b"[".repeat(200_000), b"]".repeat(200_000)].concat(),
    );
    write(b"bomb.zip", &zip_of(&[("zeros.txt", &vec![0; 300 << 20])]));
    write(
        b"bomb.xlsx",
        &zip_of(&[
            ("[Content_Types].xml", b"spreadsheetml.sheet.main+xml"),
            ("xl/sharedStrings.xml", &vec![b' '; 300 << 20]),
        ]),
    );
    write(b"far-cell.xlsx", &far_cell());
    write(
        b"escape.zip",
        &zip_of(&[
            ("../../escaped.csv", b"a\n1\n"),
            ("inside.csv", b"a,b\n1,x\n2,y\n"),
        ]),
    );
    write(
        b"name with\nnewline.txt",
        b"A file whose name has a newline in it.\n",
    );
    write(
        b"invalid-\xff\xfe.txt",
        b"A file whose name is not UTF-8.\n",
    );
    write(b"good.csv", b"a,b\n3,x\n4,y\n");
    File::create(folder.join("gigabyte.txt"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    File::create(folder.join("zeros.txt"))
        .unwrap()
        .set_len(20 << 20)
        .unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.join("link.txt")).unwrap();
}

const TRUNCATED: [&str; 13] = [
    "trips.parquet",
    "library.sqlite",
    "budget.xlsx",
    "garden_minutes.docx",
    "repair_cafe.pdf",
    "hills.png",
    "coast.jpg",
    "bouncing.gif",
    "meadow.webp",
    "melody.wav",
    "notebook.ipynb",
    "chart.svg",
    "books.json",
];

fn zip_of(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        writer
            .start_file(*name, zip::write::SimpleFileOptions::default())
            .unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// A sheet whose only cells are at its opposite corners: dense, it would be 17 billion cells.
fn far_cell() -> Vec<u8> {
    let types = r#"<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/></Types>"#;
    let book = r#"<?xml version="1.0"?><workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="s" sheetId="1" r:id="rId1"/></sheets></workbook>"#;
    let relations = r#"<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>"#;
    let sheet = r#"<?xml version="1.0"?><worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData><row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData></worksheet>"#;
    let root = r#"<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>"#;
    zip_of(&[
        ("[Content_Types].xml", types.as_bytes()),
        ("_rels/.rels", root.as_bytes()),
        ("xl/workbook.xml", book.as_bytes()),
        ("xl/_rels/workbook.xml.rels", relations.as_bytes()),
        ("xl/worksheets/sheet1.xml", sheet.as_bytes()),
    ])
}

fn check_files(files: &[SourceFile]) {
    let of = |origin: &str| {
        let found = files.iter().find(|file| file.origin == origin);
        found.unwrap_or_else(|| panic!("{origin} is not among the files"))
    };
    for good in ["good.csv", "escape.zip#inside.csv", "really-a-png.csv"] {
        assert!(
            !matches!(of(good).profile, Profile::Broken { .. }),
            "{good}"
        );
    }
    let png = of("really-a-png.csv");
    assert_eq!(
        (png.kind, png.name.as_str()),
        (FileKind::Png, "really-a-png.png")
    );
    let broken = [
        "ragged.csv",
        "deep.json",
        "noise.xlsx",
        "bomb.xlsx",
        "far-cell.xlsx",
        "zeros.txt",
    ];
    let cut = TRUNCATED.iter().map(|name| format!("cut-{name}"));
    for origin in broken.iter().map(ToString::to_string).chain(cut) {
        assert!(
            matches!(of(&origin).profile, Profile::Broken { .. }),
            "{origin}"
        );
    }
    for file in files {
        assert!(
            !file.name.contains(['/', '\n', '\u{fffd}']),
            "{:?}",
            file.name
        );
    }
}

fn check_report(remarks: &[Remark]) {
    let has = |what: RemarkKind, origin: &str, reason: &str| {
        let found = remarks
            .iter()
            .any(|r| r.what == what && r.origin.contains(origin) && r.reason.contains(reason));
        assert!(found, "{what:?} {origin}: {reason}\n{remarks:#?}");
    };
    has(RemarkKind::LeftOut, "empty.csv", "empty");
    has(RemarkKind::LeftOut, "gigabyte.txt", "larger than 32 MiB");
    has(RemarkKind::LeftOut, "link.txt", "symbolic link");
    has(RemarkKind::LeftOut, "bomb.zip", "larger than 32 MiB");
    has(RemarkKind::LeftOut, "../../escaped.csv", "escapes");
    has(
        RemarkKind::Renamed,
        "really-a-png.csv",
        "its content is png",
    );
    has(RemarkKind::Renamed, "name with\\nnewline.txt", "kept as");
    has(RemarkKind::Renamed, "invalid-", "kept as");
    has(RemarkKind::Broken, "bomb.xlsx", "unpacks to more than");
    has(RemarkKind::Broken, "far-cell.xlsx", "too large");
    has(RemarkKind::Broken, "ragged.csv", "line 3");
    for name in TRUNCATED {
        has(RemarkKind::Broken, &format!("cut-{name}"), "");
    }
}
