//! Operations that read a table of a document.

use polars::prelude::DataFrame;
use pybench_profile::Cells;
use pybench_types::task::FileKind;
use rand::seq::IndexedRandom;

use crate::argument::{Argument, Arguments};
use crate::content::{Content, Medium};
use crate::document::{Document, Tables};
use crate::draw::{Draw, quotable};
use crate::operation::{Operation, Role};

pub(super) fn operations() -> Vec<Operation> {
    vec![word_table(), page_table(), ruled_table()]
}

/// The table of these cells as `pandas.read_csv` types it; `None` if its values can be read in two ways.
fn typed(cells: &Cells) -> Option<DataFrame> {
    let lines = cells.iter().map(|row| {
        let quoted = row.iter().map(|cell| match cell.as_str() {
            "" => String::new(),
            cell => format!("\"{}\"", cell.replace('"', "\"\"")),
        });
        quoted.collect::<Vec<_>>().join(",") + "\n"
    });
    let csv: String = lines.collect();
    let format = pybench_profile::profile(FileKind::Csv, csv.as_bytes()).format()?;
    let delimiter = format.delimiter.is_none_or(|delimiter| delimiter == ',');
    let (data, kinds) = pybench_profile::frame(FileKind::Csv, csv.as_bytes())?;
    let plain = !kinds.contains(&pybench_types::task::ColumnKind::Other);
    let names = data.get_column_names_owned();
    let header = cells.first()?;
    let named = names
        .iter()
        .map(|name| name.as_str())
        .eq(header.iter().map(String::as_str));
    let whole = data.height() + 1 == cells.len();
    let quoted = names.iter().all(|name| quotable(name));
    (delimiter && format.read.is_default() && plain && named && whole && quoted).then_some(data)
}

/// Reads a table by its place among those that `of` finds in a document.
fn table_of(name: &str, of: fn(&Tables) -> &[Cells]) -> Operation {
    let draw = move |draw: &mut Draw<'_>| {
        let document = draw.document()?;
        let tables = of(&document.tables).iter().enumerate();
        let readable = tables.filter(|(_, cells)| typed(cells).is_some());
        let places: Vec<usize> = readable.map(|(at, _)| at).collect();
        let number = Argument::Count(*places.choose(draw.rng)? as i64 + 1);
        Some(Arguments::new([("number", number)]))
    };
    let meaning = move |a: &Arguments, content: &Content| {
        let document: &Document = content.document()?;
        let place = usize::try_from(a.count("number")).ok()?.checked_sub(1)?;
        typed(of(&document.tables).get(place)?)
    };
    Operation::read(Medium::Document, name, Role::Read, draw, meaning)
        .en([
            "take table number $number of the document (counted from 1), whose first row has the names of the columns",
            "extract the table that stands at position $number among the tables of the document (the first one is 1; its first row is the header)",
        ])
        .zh([
            "取文档中的第$number个表格（从1数起，首行为列名）",
            "提取文档里第$number个表格（第一个为1），以首行为表头",
        ])
}

fn word_table() -> Operation {
    table_of("read_word_table", |tables| match tables {
        Tables::Word(tables) => tables,
        _ => &[],
    })
    .counted_as("docx tables")
    .pandas(
        "import io\n\
         import pandas as pd\n\
         from docx import Document\n\
         rows = [[\" \".join(cell.text.split()) for cell in row.cells] for row in Document($input).tables[$number - 1].rows]\n\
         cells = pd.DataFrame(rows[1:], columns=rows[0])\n\
         $t = pd.read_csv(io.StringIO(cells.to_csv(index=False)))",
    )
    .pandas(
        "import io\n\
         import zipfile\n\
         import xml.etree.ElementTree as ET\n\
         import pandas as pd\n\
         W = \"{http://schemas.openxmlformats.org/wordprocessingml/2006/main}\"\n\
         with zipfile.ZipFile($input) as package:\n    \
         body = ET.fromstring(package.read(\"word/document.xml\")).find(W + \"body\")\n\
         def cell_text(cell):\n    \
         paragraphs = (\"\".join(part.text or \"\" for part in p.iter(W + \"t\")) for p in cell.iter(W + \"p\"))\n    \
         return \" \".join(\" \".join(paragraphs).split())\n\
         rows = [[cell_text(cell) for cell in row.findall(W + \"tc\")] for row in body.findall(W + \"tbl\")[$number - 1].findall(W + \"tr\")]\n\
         cells = pd.DataFrame(rows[1:], columns=rows[0])\n\
         $t = pd.read_csv(io.StringIO(cells.to_csv(index=False)))",
    )
}

fn page_table() -> Operation {
    table_of("read_html_table", |tables| match tables {
        Tables::Page(tables) => tables,
        _ => &[],
    })
    .counted_as("html tables")
    .pandas("import pandas as pd\n$t = pd.read_html($input, thousands=None)[$number - 1]")
    .pandas(
        "import io\n\
         import lxml.html\n\
         import pandas as pd\n\
         with open($input, encoding=\"utf-8\") as file:\n    \
         tables = lxml.html.fromstring(file.read()).findall(\".//table\")\n\
         rows = [[\" \".join(cell.text_content().split()) for cell in row.iter(\"th\", \"td\")] for row in tables[$number - 1].iter(\"tr\")]\n\
         cells = pd.DataFrame(rows[1:], columns=rows[0])\n\
         $t = pd.read_csv(io.StringIO(cells.to_csv(index=False)))",
    )
}

/// Not with PyMuPDF: its tables have signs and points in other places of a cell.
fn ruled_table() -> Operation {
    const TYPED: &str = "rows = [[\" \".join((cell or \"\").split()) for cell in row] for row in tables[$number - 1]]\n\
         cells = pd.DataFrame(rows[1:], columns=rows[0])\n\
         $t = pd.read_csv(io.StringIO(cells.to_csv(index=False)))";
    table_of("read_pdf_table", |tables| match tables {
        Tables::Ruled(tables) => tables,
        _ => &[],
    })
    .counted_as("pdf text")
    .pandas(format!(
        "import io\n\
         import pandas as pd\n\
         import pdfplumber\n\
         with pdfplumber.open($input) as pdf:\n    \
         tables = [table for page in pdf.pages for table in page.extract_tables()]\n{TYPED}"
    ))
    .pandas(format!(
        "import io\n\
         import pandas as pd\n\
         import pdfplumber\n\
         tables = []\n\
         with pdfplumber.open($input) as pdf:\n    \
         for page in pdf.pages:\n        \
         tables.extend(found.extract() for found in page.find_tables())\n{TYPED}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(rows: &[[&str; 2]]) -> Cells {
        rows.iter()
            .map(|row| row.map(str::to_owned).to_vec())
            .collect()
    }

    #[test]
    fn cells_are_typed_as_a_csv_file_is() {
        let data = typed(&cells(&[
            ["a b", "n"],
            ["x, \"y\"", "1"],
            ["z", ""],
            ["", "2.5"],
        ]))
        .unwrap();
        assert_eq!(data.height(), 3);
        let numbers = data.column("n").unwrap().f64().unwrap();
        assert_eq!(
            numbers.iter().collect::<Vec<_>>(),
            [Some(1.0), None, Some(2.5)]
        );
        let german = cells(&[["a", "n"], ["x", "1,50"], ["y", "2,25"]]);
        assert!(typed(&german).is_none(), "numbers in another notation");
    }
}
