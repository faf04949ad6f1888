use std::io::Write as _;
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::file::properties::WriterProperties;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};

use super::*;

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

fn page(kind: FileKind, bytes: &[u8], from: u64, count: usize) -> Result<TablePage, String> {
    let rows = RowRange {
        from,
        count,
        sheet: 0,
    };
    read(kind, file(bytes), rows)
}

/// The cells of a page, with `-` for missing values.
fn cells(page: &TablePage) -> Vec<String> {
    let row = |row: &Vec<Option<String>>| {
        let cells = row.iter().map(|cell| cell.as_deref().unwrap_or("-"));
        cells.collect::<Vec<_>>().join("|")
    };
    page.rows.iter().map(row).collect()
}

#[test]
fn a_page_of_delimited_text_has_its_rows_and_their_number() {
    let text = "a;\"b;c\"\r\n\r\n1;\"x \"\"y\"\"\nz\"\n2;\n3;4;5\n6";
    let all = page(FileKind::Csv, text.as_bytes(), 0, 10).unwrap();
    assert_eq!(all.columns, ["a", "b;c"]);
    assert_eq!(cells(&all), ["1|x \"y\"\nz", "2|", "3|4|5", "6"]);
    assert_eq!(all.total, Some(4));
    let second = page(FileKind::Csv, text.as_bytes(), 1, 1).unwrap();
    assert_eq!(
        (cells(&second), second.total),
        (vec!["2|".to_owned()], Some(4))
    );
    let behind = page(FileKind::Csv, text.as_bytes(), 9, 1).unwrap();
    assert_eq!((behind.rows.len(), behind.total), (0, Some(4)));
    assert!(page(FileKind::Csv, b"", 0, 1).is_err());
}

#[test]
fn long_cells_wide_rows_and_open_quotes_are_cut() {
    let long = format!("a\n{}\n", "é".repeat(5_000));
    let found = page(FileKind::Csv, long.as_bytes(), 0, 1).unwrap();
    assert_eq!(
        found.rows[0][0].as_ref().unwrap().chars().count(),
        MAX_CELL + 1
    );
    assert!(found.cut);
    let wide = format!("a\n{}\n", ",".repeat(5_000));
    let found = page(FileKind::Csv, wide.as_bytes(), 0, 1).unwrap();
    assert_eq!((found.rows[0].len(), found.cut), (MAX_COLUMNS, true));
    let open = page(FileKind::Tsv, b"a\n\"never closed\n\n", 0, 5).unwrap();
    assert_eq!(cells(&open), ["never closed\n\n"]);
}

#[test]
fn items_of_json_become_rows() {
    let text = br#" [{"a": 1, "b": null}, {"a": "x", "c": [1, 2]}, 7, {"a": 2}] "#;
    let all = page(FileKind::Json, text, 0, 3).unwrap();
    let mut columns = all.columns.clone();
    columns.sort();
    assert_eq!(columns, ["a", "b", "c", "value"]);
    assert_eq!(all.total, Some(4));
    let last = page(FileKind::Json, text, 3, 3).unwrap();
    assert_eq!(
        (&last.columns[..], cells(&last)),
        (&["a".to_owned()][..], vec!["2".to_owned()])
    );
    let lines = page(FileKind::Jsonl, b"{\"a\": 1}\n\n{\"a\": 2}\n", 1, 9).unwrap();
    assert_eq!(
        (cells(&lines), lines.total),
        (vec!["2".to_owned()], Some(2))
    );
    let broken = page(FileKind::Jsonl, b"{\"a\": 1}\n{\"a\": \n", 0, 9).unwrap_err();
    assert!(broken.starts_with("row 2: "), "{broken}");
    for (text, reason) in [(&b"{\"a\": 1}"[..], "an array"), (&b"[1, 2"[..], "EOF")] {
        let error = page(FileKind::Json, text, 0, 9).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn items_of_a_page_are_bounded_and_others_are_not() {
    let long = "x".repeat(MAX_WHOLE_ITEM);
    let text = format!("[\"{long}\", 1]");
    let error = page(FileKind::Json, text.as_bytes(), 0, 1).unwrap_err();
    assert!(error.contains("larger than"), "{error}");
    let behind = page(FileKind::Json, text.as_bytes(), 1, 1).unwrap();
    assert_eq!(
        (cells(&behind), behind.total),
        (vec!["1".to_owned()], Some(2))
    );
}

/// Larger than the items of a page may be.
const MAX_WHOLE_ITEM: usize = 5 << 20;

#[test]
fn rows_of_parquet_come_from_their_row_groups() {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
    let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
    let groups = WriterProperties::builder().set_max_row_group_row_count(Some(30));
    let mut bytes = Vec::new();
    let mut writer =
        ArrowWriter::try_new(&mut bytes, batch.schema(), Some(groups.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let found = page(FileKind::Parquet, &bytes, 58, 4).unwrap();
    assert_eq!(cells(&found), ["58", "59", "60", "61"]);
    assert_eq!(
        (found.total, &found.columns[..]),
        (Some(100), &["n".to_owned()][..])
    );
    let end = page(FileKind::Parquet, &bytes, 98, 9).unwrap();
    assert_eq!(cells(&end), ["98", "99"]);
    assert!(
        page(FileKind::Parquet, &bytes, 100, 9)
            .unwrap()
            .rows
            .is_empty()
    );
}

#[test]
fn rows_of_a_sheet_keep_their_columns() {
    let parts = [
        (
            "[Content_Types].xml",
            r#"<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"></Types>"#,
        ),
        (
            "_rels/.rels",
            r#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>"#,
        ),
        (
            "xl/workbook.xml",
            r#"<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="one" sheetId="1" r:id="r1"/><sheet name="two" sheetId="2" r:id="r1"/></sheets></workbook>"#,
        ),
        (
            "xl/_rels/workbook.xml.rels",
            r#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>"#,
        ),
        (
            "xl/worksheets/sheet1.xml",
            r#"<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData><row r="2"><c r="A2" t="inlineStr"><is><t>k</t></is></c><c r="B2" t="inlineStr"><is><t>v</t></is></c></row><row r="3"><c r="B3"><v>1.5</v></c></row><row r="5"><c r="A5"><v>2</v></c><c r="C5"><v>3</v></c></row></sheetData></worksheet>"#,
        ),
    ];
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in parts {
        let options = zip::write::SimpleFileOptions::default();
        writer.start_file(name, options).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    let bytes = writer.finish().unwrap().into_inner();
    let found = page(FileKind::Xlsx, &bytes, 0, 9).unwrap();
    assert_eq!(found.columns, ["k", "v", ""]);
    assert_eq!(cells(&found), ["-|1.5|-", "-|-|-", "2|-|3"]);
    assert_eq!(
        (found.total, &found.sheets[..]),
        (Some(3), &["one".to_owned(), "two".to_owned()][..])
    );
    let last = page(FileKind::Xlsx, &bytes, 2, 9).unwrap();
    assert_eq!(cells(&last), ["2|-|3"]);
}

#[test]
fn the_tables_of_a_database_are_shown_one_at_a_time() {
    let path = tempfile::NamedTempFile::new().unwrap();
    rusqlite::Connection::open(path.path())
        .unwrap()
        .execute_batch("CREATE TABLE a (x); CREATE TABLE b (y); INSERT INTO b VALUES ('in b');")
        .unwrap();
    let of = |sheet: usize| {
        let rows = RowRange {
            from: 0,
            count: 9,
            sheet,
        };
        read(FileKind::Sqlite, File::open(path.path()).unwrap(), rows)
    };
    let first = of(0).unwrap();
    assert_eq!(
        (&first.sheets[..], first.rows.len()),
        (&["a".to_owned(), "b".to_owned()][..], 0)
    );
    assert_eq!(cells(&of(1).unwrap()), ["in b"]);
    assert!(of(2).is_err());
}
