//! What the expert sees of a file before it reads it with options.

use pybench_types::id::Digest;
use pybench_types::task::TaskFile;
use regex::Regex;

use super::*;
use crate::code::read_expression;

/// Options of a reader, as code names them.
const OPTIONS: [&str; 8] = [
    ", sep=",
    ", encoding=",
    ", decimal=",
    ", thousands=",
    ", dtype={",
    ", skiprows=",
    ", sheet_name=",
    ".assign(",
];

/// Whether a file is read with options that its extension does not tell.
fn has_options(file: &TaskFile) -> bool {
    let expression = read_expression(file);
    let told = |option: &str| file.kind == FileKind::Tsv && option == ", sep=";
    let mut options = OPTIONS.into_iter();
    options.any(|option| expression.contains(option) && !told(option))
}

/// What the cell that looks at a text prints.
fn printed(bytes: &[u8]) -> String {
    let units = bytes
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let (encoding, text) = match bytes.starts_with(b"\xff\xfe") {
        true => {
            let units: Vec<u16> = units.skip(1).collect();
            ("utf-16", String::from_utf16(&units).unwrap())
        }
        false => ("utf-8", permissive(bytes)),
    };
    let mut printed = vec![encoding.to_owned()];
    printed.extend(text.lines().take(raw_look::ROWS).map(str::to_owned));
    for sign in raw_look::SIGNS {
        let sign = Regex::new(sign).unwrap();
        printed.extend(
            sign.find_iter(&text)
                .take(3)
                .map(|found| found.as_str().to_owned()),
        );
    }
    printed.join("\n")
}

/// The text of bytes; those that are no UTF-8 are escaped.
fn permissive(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text += chunk.valid();
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// The options that a text file is read with, and whether what is printed shows each of them.
fn evidence(file: &TaskFile, printed: &str) -> Vec<(&'static str, bool)> {
    let format = file.format.as_ref().unwrap();
    let read = &format.read;
    let has = |pattern: &str| Regex::new(pattern).unwrap().is_match(printed);
    let mut evidence = Vec::new();
    if let Some(sign) = format.delimiter.filter(|sign| *sign != ',') {
        evidence.push(("separator", printed.contains(sign)));
    }
    match format.encoding.as_deref() {
        Some("utf-8" | "ascii") | None => {}
        Some("utf-16") => evidence.push(("encoding", printed.starts_with("utf-16"))),
        Some(_) => evidence.push(("encoding", printed.contains("\\x"))),
    }
    if !read.decimal_comma.is_empty() {
        evidence.push(("decimal comma", has(r"\d,\d")));
    }
    if let Some(sign) = read.thousands {
        let sign = regex::escape(&sign.to_string());
        evidence.push(("thousands", has(&format!(r"\d{sign}\d{{3}}"))));
    }
    if !read.dates.is_empty() {
        evidence.push(("days", has(raw_look::SIGNS[2])));
    }
    if !read.mixed_dates.is_empty() {
        let forms = [r"\b\d\d\.\d\d\.\d{4}\b", r"\b\d{4}-\d\d-\d\d\b"];
        evidence.push(("days in two forms", forms.into_iter().all(has)));
    }
    for notation in read.numbers.values() {
        let unit = notation.currency.as_deref().unwrap_or_default();
        let latin1: Vec<u8> = unit.chars().map(|c| u32::from(c) as u8).collect();
        let is_shown = printed.contains(unit) || printed.contains(&permissive(&latin1));
        evidence.push(("units", is_shown));
    }
    if !read.names.is_empty() {
        let lower = printed.lines().nth(2).unwrap_or_default();
        let mut words = lower.split(format.delimiter.unwrap_or(','));
        evidence.push(("two rows", words.any(str::is_empty)));
    }
    evidence
}

#[test]
fn a_file_that_needs_options_is_shown_before_it_is_read() {
    let (source, crawled) = file(&table(120));
    let makes = |seed: u64| {
        let seed = TaskSeed {
            foreign_names: None,
            seed,
            language: [Language::En, Language::Zh][seed as usize % 2],
            medium: Medium::Table,
            messy: !seed.is_multiple_of(4),
            renamed: seed.is_multiple_of(3),
            avoided: &HeldOutRule::default(),
        };
        make(&source, &crawled, seed, str::to_owned).unwrap()
    };
    let (mut seen, mut plain) = (BTreeSet::new(), 0);
    let shown_rows = Regex::new(r"rows\[:(\d+)\]").unwrap();
    for Made { task, files } in (0..90).filter_map(makes) {
        let script = script::Script::new(&task, 0, None).unwrap();
        let cells = script.cells();
        let needing: Vec<&TaskFile> = task.files.iter().filter(|file| has_options(file)).collect();
        if needing.is_empty() {
            plain += 1;
            continue;
        }
        let reads = ["pd.read_", "DictReader"];
        assert!(
            !reads.iter().any(|read| cells[0].contains(read)),
            "{}",
            cells[0]
        );
        for file in needing {
            assert!(cells[0].contains(&file.name), "{}", cells[0]);
            let read = &file.format.as_ref().unwrap().read;
            if file.kind == FileKind::Xlsx {
                let rows: u32 = shown_rows.captures(cells[0]).unwrap()[1].parse().unwrap();
                assert!(rows > read.skip_rows + 2, "{}", cells[0]);
                seen.insert("workbook");
                continue;
            }
            let is_it = |bytes: &&Vec<u8>| Digest::of_bytes(bytes) == file.id;
            let printed = printed(files.iter().find(is_it).unwrap_or(&crawled));
            for (option, is_shown) in evidence(file, &printed) {
                assert!(is_shown, "{option} of {file:?} in\n{printed}");
                seen.insert(option);
            }
        }
    }
    assert!(plain > 0, "files that the defaults read");
    for option in [
        "separator",
        "encoding",
        "decimal comma",
        "days",
        "units",
        "two rows",
        "workbook",
    ] {
        assert!(seen.contains(option), "{option} is missing in {seen:?}");
    }
}

#[test]
fn a_file_read_with_the_defaults_by_mistake_is_looked_at_next() {
    let (source, crawled) = file(&table(120));
    let makes = |seed: u64| {
        let seed = TaskSeed {
            foreign_names: None,
            seed,
            language: Language::En,
            medium: Medium::Table,
            messy: true,
            renamed: false,
            avoided: &HeldOutRule::default(),
        };
        make(&source, &crawled, seed, str::to_owned).unwrap()
    };
    let mut repaired = 0;
    for Made { task, .. } in (0..40).filter_map(makes) {
        for sample in 0..3 {
            let script = script::Script::new(&task, sample, None).unwrap();
            let script = script.with_slip();
            let is_unread = script
                .slip()
                .is_some_and(|slip| slip.kind == slip::SlipKind::ReadOptions);
            if !is_unread {
                continue;
            }
            repaired += 1;
            let said = |observations: &[&str]| match script.next(observations).unwrap() {
                script::Action::Step { thought, cell } => (thought, cell),
                script::Action::Answer(answer) => panic!("no step: {answer}"),
            };
            let (first, wrong) = said(&[]);
            let (second, shown) = said(&["failed"]);
            let (third, right) = said(&["failed", "shown"]);
            assert!(!first.contains("raw"), "{first}");
            assert!(wrong.contains("pd.read_"), "{wrong}");
            assert!(second.contains("how it is written"), "{second}");
            assert!(!shown.contains("pd.read_"), "{shown}");
            assert!(third.ends_with("I read it accordingly."), "{third}");
            assert!(right.contains(&read_expression(&task.files[0])), "{right}");
        }
    }
    assert!(repaired > 0);
}
