//! Operations that end a task with a file of the table.

use crate::argument::{Argument, Arguments};
use crate::draw::{Draw, quotable};
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
            .en(["save the resulting table as an Excel workbook, header in the first row and no index column", "write the result to an .xlsx file without an index"])
            .zh(["把结果表保存为Excel文件（首行为表头，不含索引列）"]),
        save("save_json")
            .pandas("$t.to_json($path, orient=\"records\", force_ascii=False)")
            .python("import json\nwith open($path, \"w\", encoding=\"utf-8\") as file:\n    json.dump($t, file, ensure_ascii=False)")
            .en(["save the resulting rows as a JSON array of objects, keys being the column names", "write the result to JSON as a list of records"])
            .zh(["把结果保存为JSON数组，每行一个对象，键为列名"]),
        save("save_parquet")
            .pandas("$t.to_parquet($path, index=False)")
            .en(["save the resulting table as a Parquet file without an index column", "write the result to Parquet (no index)"])
            .zh(["把结果表保存为Parquet文件（不含索引列）"]),
    ]
}
