"""Tables of unknown origin, read without pandas and within bounds."""

import contextlib
import csv
import io
import json
import os
import sqlite3
import zipfile

from common import MAX_CELLS, MAX_ROWS, NA, Fail, decode, numeric, strict_json

MAX_UNPACKED = 256 * 1024 * 1024
EXTENSIONS = {
    ".csv": "text", ".tsv": "text", ".txt": "text", ".xlsx": "xlsx", ".xlsm": "xlsx", ".parquet": "parquet",
    ".json": "json", ".jsonl": "json", ".ndjson": "json", ".sqlite": "sqlite", ".db": "sqlite", ".sqlite3": "sqlite",
}  # fmt: skip


class Table:
    """Column names and rows of raw values."""

    ragged = False  # some records lack a key

    def __init__(self, columns, rows):
        self.columns, self.rows = [str(c) if c is not None else "" for c in columns], rows
        if len(rows) > MAX_ROWS or len(rows) * max(len(self.columns), 1) > MAX_CELLS:
            raise Fail("the table has too many cells")


def read_table(full, path, sheet=None, skip_rows=0):
    """The table in a file: its type is what the bytes say, and must agree with the name.

    A worksheet may have rows above its header, which are skipped.
    """
    kind = kind_of(full, path)
    try:
        if kind == "xlsx":
            return _read_xlsx(full, path, sheet, skip_rows)
        return READERS[kind](full, path, sheet)
    except Fail:
        raise
    except Exception as error:
        raise Fail(f"{path} cannot be read as {kind}: {type(error).__name__}: {error}") from None


def kind_of(full, path):
    """The kind of table that the name says, which the bytes must agree with; the bytes decide where it says none."""
    kind = sniff(full)
    wanted = EXTENSIONS.get(os.path.splitext(path)[1].lower())
    if wanted and kind != wanted and not (wanted == "text" and kind == "json"):
        raise Fail(f"{path} holds {kind}, not {wanted}")
    return wanted or kind


def sniff(full):
    """The kind of table by its first bytes."""
    with open(full, "rb") as file:
        head = file.read(64)
    if head.startswith(b"PK\x03\x04"):
        return "xlsx"
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"SQLite format 3\x00"):
        return "sqlite"
    return "json" if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"[", b"{") else "text"


def _read_text(full, path, sheet):
    with open(full, "rb") as file:
        text = decode(file.read(), path)
    if "\x00" in text:
        raise Fail(f"{path} is not text")
    csv.field_size_limit(1_000_000)
    delimiter = guess_delimiter(text, path)
    rows = []
    for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
        rows.append(row)
        if len(rows) > MAX_ROWS or len(row) > 20_000:
            raise Fail(f"{path} has too many rows or columns")
    rows = [row for row in rows if row]
    if not rows:
        raise Fail(f"{path} has no header")
    width = len(rows[0])
    ragged = next((i for i, row in enumerate(rows) if len(row) > width), None)
    if ragged is not None:
        raise Fail(f"row {ragged} of {path} has {len(rows[ragged])} cells, the header {width}")
    return Table(rows[0], [row + [""] * (width - len(row)) for row in rows[1:]])


def guess_delimiter(text, path):
    """The delimiter that the header holds most of."""
    if path.lower().endswith(".tsv"):
        return "\t"
    header = next((line for line in text.splitlines() if line.strip()), "")
    header = "".join(header.split('"')[::2])
    return max(",;\t|", key=lambda d: (header.count(d), d == ","))


def check_zip(full, path):
    """A zip whose content is bounded."""
    try:
        with zipfile.ZipFile(full) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise Fail(f"{path} is damaged: {error}") from None
    if len(entries) > 5000 or sum(e.file_size for e in entries) > MAX_UNPACKED:
        raise Fail(f"{path} unpacks to too much")
    return {e.filename for e in entries}


def _read_xlsx(full, path, sheet, skip_rows):
    import openpyxl

    if "xl/workbook.xml" not in check_zip(full, path):
        raise Fail(f"{path} is no workbook")
    book = openpyxl.load_workbook(full, read_only=True, data_only=True)
    if sheet is not None and sheet not in book.sheetnames:
        raise Fail(f"{path} has no sheet `{sheet}`, only {book.sheetnames}")
    found = book[sheet or book.sheetnames[0]]
    found.reset_dimensions()  # a sheet may say that it goes on to the last possible cell
    rows = []
    for row in found.iter_rows(min_row=skip_rows + 1):
        row = [None if cell.data_type == "e" else cell.value for cell in row[:20_000]]
        if any(cell is not None for cell in row):
            rows.append(row)
        if len(rows) > MAX_ROWS:
            raise Fail(f"{path} has too many rows")
    if not rows:
        raise Fail(f"{path} has no header")
    width = max((i + 1 for row in rows for i, cell in enumerate(row) if cell is not None), default=0)
    rows = [(row + [None] * width)[:width] for row in rows]
    return Table(rows[0], rows[1:])


def _read_json(full, path, sheet):
    with open(full, "rb") as file:
        text = decode(file.read(), path)
    if path.lower().endswith((".jsonl", ".ndjson")):
        data = _json_lines(text)
    else:
        try:
            data = strict_json(text)
        except json.JSONDecodeError:
            data = _json_lines(text)
    if isinstance(data, dict) and sheet is not None:
        data = data.get(sheet)
    if isinstance(data, dict):
        data = [data]
    if not isinstance(data, list) or not all(isinstance(row, dict) for row in data):
        raise Fail(f"{path} is no list of records")
    columns = list(dict.fromkeys(key for row in data for key in row))
    table = Table(columns, [[row.get(c) for c in columns] for row in data])
    table.ragged = any(len(row) < len(columns) for row in data)
    return table


def _json_lines(text):
    return [strict_json(line) for line in text.split("\n") if line.strip()]


def _read_parquet(full, path, sheet):
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(full)
    if file.metadata.num_rows > MAX_ROWS or file.metadata.num_rows * file.metadata.num_columns > MAX_CELLS:
        raise Fail(f"{path} has too many rows")
    data = file.read(use_threads=False)
    return Table(data.column_names, [list(row.values()) for row in data.to_pylist()])


def _open_sqlite(full):
    from urllib.parse import quote

    return contextlib.closing(sqlite3.connect(f"file:{quote(os.path.abspath(full))}?mode=ro&immutable=1", uri=True))


def sheet_names(full):
    """Names of all sheets of a workbook, or of all tables and views of a database."""
    if sniff(full) == "xlsx":
        import openpyxl

        return openpyxl.load_workbook(full, read_only=True).sheetnames
    with _open_sqlite(full) as database:
        return [row[0] for row in database.execute("select name from sqlite_master where type in ('table', 'view') and name not like 'sqlite_%'")]


def primary_key(full, table):
    """The columns of a table's primary key."""
    with _open_sqlite(full) as database:
        described = database.execute("select name, pk from pragma_table_info(?)", (table,)).fetchall()
    return [name for name, place in sorted(described, key=lambda row: row[1]) if place]


def _read_sqlite(full, path, sheet):
    with _open_sqlite(full) as database:
        # A view or a virtual table could run anything: only plain tables are read.
        query = "select name from sqlite_master where type = 'table' and name not like 'sqlite_%' and sql not like 'create virtual%'"
        tables = [row[0] for row in database.execute(query)]
        if sheet is not None and sheet not in tables:
            raise Fail(f"{path} has no table `{sheet}`, only {tables[:20]}")
        if not tables:
            raise Fail(f"{path} has no table")
        name = (sheet or tables[0]).replace('"', '""')
        cursor = database.execute(f'select * from "{name}" limit {MAX_ROWS + 1}')
        columns = [column[0] for column in cursor.description]
        return Table(columns, [list(row) for row in cursor])


READERS = {"text": _read_text, "json": _read_json, "parquet": _read_parquet, "sqlite": _read_sqlite}


def typed(value):
    """A cell of a candidate's table as int, float, str or None, whatever its column holds."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return None if value != value else value
    if not isinstance(value, str):
        return value.isoformat() if hasattr(value, "isoformat") else str(value)
    if value.strip() in NA:
        return None
    if numeric(value) is None:
        return value
    text = value.strip()
    return int(text) if text.lstrip("+-").isdigit() else float(text)
