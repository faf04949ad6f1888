//! Operations that end a task with a file of the table.

use std::collections::HashSet;

use crate::argument::{Argument, Arguments};
use crate::draw::{Draw, quotable};
use crate::frame::Class;
use crate::operation::{Operation, Role};

/// Largest table that a task asks for, in cells: a check holds all of them.
const MAX_CELLS: usize = 1_200;
/// Most lines of a text file.
const MAX_LINES: usize = 400;

pub(super) fn operations() -> Vec<Operation> {
    let small = |draw: &mut Draw<'_>| {
        let names = draw.frame.data.get_column_names_owned();
        let plain = names
            .iter()
            .all(|name| quotable(name) && draw.frame.class(name).is_some());
        let cells = draw.frame.height() * draw.frame.data.width();
        (plain && draw.frame.height() >= 2 && cells <= MAX_CELLS).then(Arguments::default)
    };
    // SQLite takes names that differ in case only for one, and has no truth values.
    let database = move |draw: &mut Draw<'_>| {
        let names = draw.frame.data.get_column_names_owned();
        let lower: HashSet<String> = names.iter().map(|name| name.to_lowercase()).collect();
        let fits = lower.len() == names.len() && draw.frame.of_class(Class::Boolean).is_empty();
        small(draw).filter(|_| fits)
    };
    let save = |name: &str| Operation::new(name, Role::Output, small, |_, t| t);
    let column = |draw: &mut Draw<'_>| {
        let column = draw.full_text()?;
        let texts = draw.texts(&column);
        let fits = |text: &String| !text.is_empty() && text.trim() == text && !text.contains('\n');
        let lines = texts.iter().flatten().all(fits) && (3..=MAX_LINES).contains(&texts.len());
        (lines && draw.frame.ordered)
            .then(|| Arguments::new([("column", Argument::Column(column))]))
    };
    vec![
        Operation::new("save_column_txt", Role::Output, column, |a, t| {
            t.select([a.col("column").alias("line")])
        })
        .needs_order()
        .pandas("with open($path, \"w\", encoding=\"utf-8\") as file:\n    file.write(\"\\n\".join($t[$column]))")
        .python("with open($path, \"w\", encoding=\"utf-8\") as file:\n    file.write(\"\\n\".join(row[$column] for row in $t))")
        .en([
            "write the values of $column to a text file, one per line, in the order of the rows",
            "save $column alone as a plain text file with one value on each line, keeping the order of the rows",
        ])
        .zh(["按行的顺序把$column的值写入文本文件，每行一个"]),
        save("save_csv")
            .pandas("$t.to_csv($path, index=False)")
            .python(
                "import csv\n\
                 with open($path, \"w\", newline=\"\", encoding=\"utf-8\") as file:\n    \
                 writer = csv.DictWriter(file, fieldnames=list($t[0]))\n    \
                 writer.writeheader()\n    writer.writerows($t)",
            )
            .en(["save the resulting table as a CSV file with a header and without an index column", "write the result to CSV (header line, no index)"])
            .zh(["把结果表保存为CSV文件（带表头，不含索引列）"]),
        save("save_xlsx")
            .pandas("$t.to_excel($path, index=False)")
            .pandas("with pd.ExcelWriter($path) as writer:\n    $t.to_excel(writer, index=False)")
            .en(["save the resulting table as an Excel workbook, header in the first row and no index column", "write the result to an .xlsx file without an index"])
            .zh(["把结果表保存为Excel文件（首行为表头，不含索引列）"]),
        save("save_json")
            .pandas("$t.to_json($path, orient=\"records\", force_ascii=False)")
            .python("import json\nwith open($path, \"w\", encoding=\"utf-8\") as file:\n    json.dump($t, file, ensure_ascii=False)")
            .en(["save the resulting rows as a JSON array of objects, keys being the column names", "write the result to JSON as a list of records"])
            .zh(["把结果保存为JSON数组，每行一个对象，键为列名"]),
        save("save_tsv")
            .pandas("$t.to_csv($path, sep=\"\\t\", index=False)")
            .python(
                "import csv\n\
                 with open($path, \"w\", newline=\"\", encoding=\"utf-8\") as file:\n    \
                 writer = csv.DictWriter(file, fieldnames=list($t[0]), delimiter=\"\\t\")\n    \
                 writer.writeheader()\n    writer.writerows($t)",
            )
            .en([
                "save the resulting table as a TSV file (tab-separated) with a header and without an index column",
                "write the result to a tab-separated file (header line, no index)",
            ])
            .zh(["把结果表保存为制表符分隔的TSV文件（带表头，不含索引列）"]),
        save("save_jsonl")
            .pandas("$t.to_json($path, orient=\"records\", lines=True, force_ascii=False)")
            .python(
                "import json\n\
                 with open($path, \"w\", encoding=\"utf-8\") as file:\n    \
                 for row in $t:\n        file.write(json.dumps(row, ensure_ascii=False) + \"\\n\")",
            )
            .en([
                "save the resulting rows as JSON Lines, one object per line with the column names as keys",
                "write the result to JSONL (one JSON object for each row)",
            ])
            .zh(["把结果保存为JSON Lines文件，每行一个对象，键为列名"]),
        Operation::new("save_sqlite", Role::Output, database, |_, t| t)
            .pandas(
                "import sqlite3\n\
                 with sqlite3.connect($path) as database:\n    \
                 $t.to_sql(\"result\", database, index=False, if_exists=\"replace\")\n\
                 database.close()",
            )
            .pandas(
                "import sqlite3\n\
                 database = sqlite3.connect($path)\n\
                 $t.to_sql(\"result\", database, index=False, if_exists=\"replace\")\n\
                 database.commit()\n\
                 database.close()",
            )
            .en([
                "save the resulting rows in an SQLite database as its only table, named result, without an index column",
                "write the result to a table named result of a new SQLite database (no index column)",
            ])
            .zh(["把结果保存到SQLite数据库中唯一的表result（不含索引列）"]),
        save("save_parquet")
            .pandas("$t.to_parquet($path, index=False)")
            .pandas("import pyarrow as pa\nimport pyarrow.parquet as pq\npq.write_table(pa.Table.from_pandas($t, preserve_index=False), $path)")
            .en(["save the resulting table as a Parquet file without an index column", "write the result to Parquet (no index)"])
            .zh(["把结果表保存为Parquet文件（不含索引列）"]),
    ]
}
