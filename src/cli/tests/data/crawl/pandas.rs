//! Profiles agree with what pandas sees with their options: rows, columns, missing values, duplicates.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pybench_compose::reading::{self, TableFile};
use pybench_files::sniff::{Sniffed, sniff};
use pybench_profile::profile;
use pybench_types::task::{ColumnKind, FileKind, Profile, TableProfile};
use serde_json::{Value, json};

/// Reads each table as a task's solution would and says what it sees.
const SCRIPT: &str = r#"
import json, sqlite3, sys, warnings
import pandas as pd
warnings.simplefilter("ignore")
for line in sys.stdin:
    job = json.loads(line)
    kind, path = job["kind"], job["path"]
    if "expression" in job:
        frame = eval(job["expression"])
    elif kind in ("json", "jsonl"):
        frame = pd.read_json(path, lines=kind == "jsonl")
    elif kind == "parquet":
        frame = pd.read_parquet(path)
    else:
        con = sqlite3.connect(path)
        name = con.execute("select name from sqlite_master where type='table' and name not like 'sqlite\\_%' escape '\\'").fetchone()[0]
        frame = pd.read_sql(f'select * from "{name}"', con)
    try:
        duplicates = int(frame.duplicated().sum())
        distinct = [int(n) for n in frame.nunique()]
    except TypeError:
        duplicates, distinct = None, None
    number = [bool(pd.api.types.is_numeric_dtype(t)) and not pd.api.types.is_bool_dtype(t) for t in frame.dtypes]
    print(json.dumps({"path": path, "rows": len(frame), "columns": [str(c) for c in frame.columns],
                      "nulls": [int(n) for n in frame.isna().sum()], "duplicates": duplicates,
                      "distinct": distinct, "number": number}))
"#;

/// Writes Parquet files with an index that has a name and one that has none, texts with decimal commas and days that are
/// written day first, amounts of money, headers of two rows, and workbooks with a bad sheet, titles, merged cells and two header rows.
const FIXTURES: &str = r#"
import sys
import openpyxl
import pandas as pd
frame = pd.DataFrame({"place": ["a", "b", "c", "c"], "level": [1.5, None, 2.5, 2.5], "day": [1, 2, 3, 4]})
frame.set_index("place").to_parquet(sys.argv[1] + "/named.parquet")
frame.set_index(["place", "day"]).to_parquet(sys.argv[1] + "/two.parquet")
frame[frame.day > 1].to_parquet(sys.argv[1] + "/unnamed.parquet")

def text(name, sep, lines, encoding="utf-8"):
    with open(f"{sys.argv[1]}/{name}", "w", encoding=encoding) as file:
        file.writelines(sep.join(line) + "\n" for line in lines)

german = [["Ort", "Betrag", "Datum", "Stück"], ["Köln", "1.018,64", "31.12.2024", "7"], ["Bonn", "-0,5", "", "12"], ["Köln", "", "01.02.2023", "7"]]
text("german.csv", ";", german, "cp1252")
text("german.tsv", "\t", german)
french = [["lieu", "montant", "jour"], ["Lyon", "1 018,64", "31/12/2024"], ["Nice", "12 000", "03/04/2024"]]
text("french.csv", ";", french)
text("french_narrow.csv", ";", [[cell.replace(" ", "\u202f") for cell in line] for line in french])
text("plain.csv", ";", [["a", "b"], ["1,5", "x"], ["2,25", "1.2.3"]])
text("euro.csv", ";", [["Ort", "Preis", "Menge", "Tag"], ["Köln", "€ 1.018,64", "1,5", "31.12.24"], ["Bonn", "-€ 3,00", "2,25", "01.02.99"], ["Ulm", "", "", ""]])
text("dollar.csv", ",", [["town", "price", "tip"], ["Reno", '"$1,234.50"', "$2"], ["Ames", "$7.25", "$13"], ["Troy", "$7.25", ""]])
text("euro_behind.csv", ";", [["lieu", "prix"], ["Lyon", "1\u202f234,50\u00a0€"], ["Nice", "12,00\u00a0€"]])
text("two_rows.csv", ",", [["Region", "Sales", "", "Share"], ["", "2023", "2024", "of all"], ["N", "1", "2", "0.5"], ["S", "3", "", "0.25"]])
text("two_rows.tsv", "\t", [["Region", "Betrag", "", "Tag"], ["", "Q1", "Q2", ""], ["N", "1.018,64 €", "2,5", "31.12.2024"], ["S", "3,00 €", "4,75", "01.02.2024"]])

rows = [{"Ort": "Köln", "Betrag": "1.018,64", "Preis": "€ 3,50", "date": "31.12.2024"}, {"Ort": "Bonn", "Betrag": "12,5", "Preis": None, "date": "01.02.2023"}]
pd.DataFrame(rows).to_json(sys.argv[1] + "/german.json", orient="records", force_ascii=False)
pd.DataFrame(rows).to_json(sys.argv[1] + "/german.jsonl", orient="records", lines=True, force_ascii=False)
pd.DataFrame(rows).to_excel(sys.argv[1] + "/german.xlsx", index=False)

book = openpyxl.Workbook()
book.active.title = "Notes"
book.active.append(["For", None, "internal"])
book.active.append([None, 1, "use"])
sheet = book.create_sheet("Data")
for row in [["place", "level"], ["a", 1], ["b", 2.5]]:
    sheet.append(row)
book.save(sys.argv[1] + "/bad_sheet.xlsx")

book = openpyxl.Workbook()
sheet = book.active
for row in [["Sales"], [], ["Region", "Revenue", None, "Share"], [None, 2023, 2024, "Share"], ["North", 1, 2.5, 0.1], [None, 3, 4, 0.2], ["South", 5, 6, 0.3]]:
    sheet.append(row)
for area in ["A1:D1", "B3:C3", "A3:A4", "A5:A6"]:
    sheet.merge_cells(area)
book.save(sys.argv[1] + "/two_rows.xlsx")
"#;

/// The samples, the fixtures, and every file of the folder that `PYBENCH_TEST_TABLES` names.
fn tables(fixtures: &Path) -> Vec<(PathBuf, FileKind, TableProfile)> {
    let samples = Path::new(pybench_testing::ROOT).join("data/samples/files");
    let more = std::env::var_os("PYBENCH_TEST_TABLES").map(PathBuf::from);
    let mut found = Vec::new();
    let folders = [Some(samples), Some(fixtures.to_owned()), more];
    for folder in folders.into_iter().flatten() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let Ok(bytes) = std::fs::read(&path) else {
                continue;
            };
            let Sniffed::File(kind) = sniff(&path.to_string_lossy(), &bytes) else {
                continue;
            };
            if let Profile::Table(table) = profile(kind, &bytes) {
                found.push((path, kind, table));
            }
        }
    }
    found
}

#[test]
fn pandas_sees_what_the_profiles_say() {
    let python = match pybench_interpreter::environment_python() {
        Ok(python) => python,
        Err(error) => return pybench_testing::skip::missing_tool(error),
    };
    let fixtures = tempfile::tempdir().unwrap();
    let mut write = Command::new(&python);
    write.args(["-c", FIXTURES]).arg(fixtures.path());
    assert!(write.status().unwrap().success());
    let tables = tables(fixtures.path());
    assert!(tables.len() >= 30, "{}", tables.len());
    for (path, _, table) in &tables {
        let name = path.file_stem().unwrap().to_string_lossy();
        let expected = match &*name {
            "euro" | "dollar" | "euro_behind" => !table.read.numbers.is_empty(),
            "two_rows" => !table.read.names.is_empty(),
            "german" => !table.read.dates.is_empty(),
            _ => true,
        };
        assert!(expected, "{}: {:?}", path.display(), table.read);
    }
    let jobs: String = tables
        .iter()
        .map(|(path, kind, table)| {
            let mut job = json!({"path": path, "kind": kind});
            if let Some(expression) = expression(*kind, table) {
                job["expression"] = expression.into();
            }
            format!("{job}\n")
        })
        .collect();
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || stdin.write_all(jobs.as_bytes()));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap().unwrap();
    assert!(output.status.success());
    let seen: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(seen.len(), tables.len());
    let differences: Vec<String> = tables
        .iter()
        .zip(&seen)
        .flat_map(|((path, _, table), seen)| {
            differences(table, seen)
                .into_iter()
                .map(move |text| format!("{}: {text}", path.display()))
        })
        .collect();
    println!("{} tables compared", tables.len());
    assert!(differences.is_empty(), "{differences:#?}");
}

/// The pandas expression that reads text and workbooks; `path` is the file.
fn expression(kind: FileKind, table: &TableProfile) -> Option<String> {
    let quoted = |text: &str| json!(text).to_string();
    let file = TableFile {
        path: "path",
        kind,
        encoding: table.encoding.as_deref(),
        delimiter: table.delimiter,
        sheet: table.read.sheet.as_deref(),
        read: &table.read,
    };
    let read = matches!(kind, FileKind::Csv | FileKind::Tsv | FileKind::Xlsx);
    let read = read || !table.read.is_default();
    read.then(|| reading::expression(&file, quoted))
}

fn differences(table: &TableProfile, seen: &Value) -> Vec<String> {
    let columns: Vec<_> = table.columns.iter().map(|c| &c.name).collect();
    let nulls: Vec<_> = table.columns.iter().map(|c| c.nulls).collect();
    let distinct: Vec<_> = table.columns.iter().map(|c| c.distinct).collect();
    let mut found = Vec::new();
    let mut compare = |what: &str, ours: Value, theirs: &Value| {
        if ours != *theirs && !theirs.is_null() {
            found.push(format!("{what}: {ours} here, {theirs} in pandas"));
        }
    };
    compare("rows", json!(table.rows), &seen["rows"]);
    compare("columns", json!(columns), &seen["columns"]);
    compare("nulls", json!(nulls), &seen["nulls"]);
    compare(
        "duplicates",
        json!(table.duplicate_rows),
        &seen["duplicates"],
    );
    compare("distinct", json!(distinct), &seen["distinct"]);
    for (column, number) in table.columns.iter().zip(seen["number"].as_array().unwrap()) {
        let ours = matches!(column.kind, ColumnKind::Integer | ColumnKind::Float);
        if column.kind != ColumnKind::Other && json!(ours) != *number {
            found.push(format!(
                "`{}` is {:?} here; number in pandas: {number}",
                column.name, column.kind
            ));
        }
    }
    found
}
