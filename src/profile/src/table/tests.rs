use pybench_types::task::ColumnKind;

use super::*;

fn csv(text: &str) -> TableProfile {
    profile(FileKind::Csv, text.as_bytes()).unwrap()
}

#[test]
fn columns_are_typed_counted_and_ordered() {
    let table = csv(
        "i,f,b,d,t,n\n10,1.0,True,2024-01-31,x,\n9,1.00,False,2023-12-01,NA,NaN\n10,1.0,True,2024-01-31,x,\n",
    );
    let kinds: Vec<_> = table.columns.iter().map(|c| c.kind).collect();
    use ColumnKind::*;
    assert_eq!(kinds, [Integer, Float, Boolean, Date, Text, Other]);
    assert_eq!((table.rows, table.duplicate_rows), (3, 1));
    let of = |n: usize| {
        let c = &table.columns[n];
        (c.nulls, c.distinct, c.min.as_deref(), c.max.as_deref())
    };
    assert_eq!(of(0), (0, 2, Some("9"), Some("10")));
    assert_eq!(of(1), (0, 1, Some("1.0"), Some("1.0")));
    assert_eq!(of(3), (0, 2, Some("2023-12-01"), Some("2024-01-31")));
    assert_eq!(of(4), (1, 1, Some("x"), Some("x")));
    assert_eq!(of(5), (3, 0, None, None));
    assert_eq!(
        table.sample[1][1].as_deref(),
        Some("1.00"),
        "samples keep the text of the file"
    );
}

#[test]
fn only_valid_dates_are_recognized() {
    for good in ["2024-02-29", "2024-01-01T23:59:59.5Z", "2024-01-01 00:00"] {
        assert!(value::is_iso_date(good), "{good}");
    }
    for bad in [
        "2023-02-29",
        "2024-13-01",
        "2024-01-01T25:00",
        "01/02/2024",
        "2024",
    ] {
        assert!(!value::is_iso_date(bad), "{bad}");
    }
}

#[test]
fn only_json_arrays_of_flat_objects_are_tables() {
    let table = json_records(br#"[{"a":1,"b":"x"},{"a":2.5,"c":null}]"#)
        .unwrap()
        .unwrap();
    let names: Vec<_> = table.columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(table.columns[0].kind, ColumnKind::Float);
    assert_eq!(table.columns[1].nulls, 1);
    for other in ["{}", "[]", "[1]", r#"[{"a":[1]}]"#] {
        assert!(json_records(other.as_bytes()).unwrap().is_none(), "{other}");
    }
    assert!(json_records(b"[{").is_err());
}

#[test]
fn sqlite_runs_no_code_from_the_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let make = |sql: &str| {
        std::fs::write(file.path(), b"").unwrap();
        rusqlite::Connection::open(file.path())
            .unwrap()
            .execute_batch(sql)
            .unwrap();
        profile(FileKind::Sqlite, &std::fs::read(file.path()).unwrap())
    };
    let good = make("CREATE TABLE \"a \"\"b\" (x INTEGER, y TEXT); INSERT INTO \"a \"\"b\" VALUES (1,'p'),(2,NULL); CREATE TABLE z (q);").unwrap();
    assert_eq!(
        (good.rows, good.columns[1].nulls, good.tables.len()),
        (2, 1, 2)
    );
    let bomb = make("CREATE TABLE t (x, y AS (zeroblob(900000000))); INSERT INTO t VALUES (1);");
    assert!(bomb.unwrap_err().contains("generated"));
    assert!(
        make("CREATE VIEW v AS SELECT 1;")
            .unwrap_err()
            .contains("no table")
    );
}

#[test]
fn kinds_are_those_of_pandas() {
    use ColumnKind::*;
    for (cells, kind) in [
        (["007", "7", "-0"], Integer),
        (["007", "7", "x"], Text),
        ([" 7\t", "+7", "9007199254740993"], Integer),
        (["1e3", "1000", "inf"], Float),
        (["1e3", "1000", " inf"], Text),
        (["TRUE", "true", "fALSE"], Boolean),
        (["TRUE", "True", "yes"], Text),
        ([" NA ", "1", "2"], Text),
        (["9223372036854775808", "1", "2"], Other),
        (["9223372036854775808", "99999999999999999999", "x"], Other),
        (["9223372036854775808", "x", "99999999999999999999"], Text),
        (["1.5", "99999999999999999999", "2"], Float),
    ] {
        let [a, b, c] = cells;
        let table = csv(&format!("c,d\n\"{a}\",1\n\"{b}\",1\n\"{c}\",1\n"));
        assert_eq!(table.columns[0].kind, kind, "{cells:?}");
    }
}

/// With 512 columns, pandas decides on the types of 1024 rows at a time.
#[test]
fn parts_of_different_types_make_a_column_mixed() {
    let header: Vec<_> = (0..512).map(|n| format!("c{n}")).collect();
    let row = |number: usize| {
        let cells = match number < 1024 {
            true => ["7", "1", "", "1"],
            false => ["x", "0.5", "x", "2"],
        };
        cells.join(",") + &",".repeat(508)
    };
    let rows: Vec<_> = (0..1030).map(row).collect();
    let table = csv(&format!("{}\n{}\n", header.join(","), rows.join("\n")));
    let kinds: Vec<_> = table.columns[..4].iter().map(|c| c.kind).collect();
    use ColumnKind::*;
    assert_eq!(kinds, [Other, Float, Text, Integer]);
}
