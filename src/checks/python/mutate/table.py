"""Wrong tables."""

import contextlib
import csv
import io
import json
import os
import shutil
import sqlite3
import tempfile

from checks.table import expected_table
from common import numeric, reference, same_value, text_form
from tables import read_table, sniff, typed

from mutate import Mutant


def mutants(spec, names, candidate):
    path = spec["path"]
    full = candidate.file(path)
    table = read_table(full, path, spec.get("sheet"))
    kind = "json" if sniff(full) == "json" else sniff(full)
    columns, _ = expected_table(reference(names, spec["expected"]))
    wanted = {text_form(c) for c in columns}
    at = [i for i, c in enumerate(table.columns) if text_form(c) in wanted]
    rows = [[typed(cell) for cell in row] for row in table.rows]
    ordered = spec.get("rows", "exact") == "exact"
    for name, new_columns, new_rows in variants(table.columns, rows, at, ordered, spec):
        if new_columns != table.columns or not alike(new_rows, rows, at, ordered, spec):
            yield Mutant(name, {path: render(kind, path, spec.get("sheet"), new_columns, new_rows, full)})
    yield from _layouts(spec, kind, path, table.columns, rows, full)
    yield Mutant("truncated file", {path: candidate.bytes(path)[: max(len(candidate.bytes(path)) // 3, 1)]})
    yield Mutant("text of an error", {path: b"Traceback (most recent call last):\nKeyError: 'x'\n"})


def _layouts(spec, kind, path, columns, rows, full):
    """The same values, laid out otherwise than asked."""
    if spec.get("column_order") and len(columns) > 1:
        yield Mutant("columns in another order", {path: render(kind, path, spec.get("sheet"), columns[::-1], [row[::-1] for row in rows], full)})
    as_text = [[str(v) if isinstance(v, (int, float)) else v for v in row] for row in rows]
    if kind != "text" and as_text != rows:
        yield Mutant("numbers as text", {path: render(kind, path, spec.get("sheet"), columns, as_text, full)})
    if spec.get("primary_key") or (spec.get("only_sheets") and kind == "sqlite"):
        plain = render(kind, path, spec.get("sheet"), columns, rows, full)
        if spec.get("primary_key"):
            yield Mutant("no primary key", {path: plain})
        yield Mutant("a table more", {path: _with_table(full)})


def _with_table(full):
    """The database with a second table."""
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "t.sqlite")
        shutil.copyfile(full, copy)
        with contextlib.closing(sqlite3.connect(copy)) as database:
            database.execute("create table other_entries (id integer)")
            database.commit()
        with open(copy, "rb") as file:
            return file.read()


def variants(columns, rows, at, ordered, spec):
    """(name, columns, rows)"""
    yield "last row dropped", columns, rows[:-1]
    yield "first row dropped", columns, rows[1:]
    yield "a row twice", columns, rows + rows[-1:]
    yield "header only", columns, []
    if ordered:
        yield "reversed", columns, rows[::-1]
        yield "two rows swapped", columns, rows[1:2] + rows[:1] + rows[2:]
        yield "sorted by first column", columns, sorted(rows, key=lambda row: str(row[at[0]]))
    for i in at:
        yield f"column {i + 1} dropped", columns[:i] + columns[i + 1 :], [row[:i] + row[i + 1 :] for row in rows]
        yield f"column {i + 1} renamed", [*columns[:i], "renamed " + columns[i], *columns[i + 1 :]], rows
        yield f"column {i + 1} off by one row", columns, replaced(rows, i, [row[i] for row in rows[-1:] + rows[:-1]])
        values = [row[i] for row in rows]
        numbers = [v for v in values if isinstance(v, (int, float))]
        if numbers and len(numbers) == sum(v is not None for v in values):
            yield f"column {i + 1} all zeros", columns, replaced(rows, i, [0] * len(rows))
            yield f"column {i + 1}: one cell by 1 %", columns, replaced(rows, i, nudged(values, spec))
            yield f"column {i + 1} negated", columns, replaced(rows, i, [v if v is None else -v for v in values])
        else:
            yield f"column {i + 1} empty", columns, replaced(rows, i, [None] * len(rows))
            yield f"column {i + 1}: one cell changed", columns, replaced(rows, i, [str(values[0]) + "x", *values[1:]] if values else [])
    for i, j in zip(at, at[1:]):
        swapped = replaced(rows, i, [row[j] for row in rows])
        yield f"columns {i + 1} and {j + 1} swapped", columns, replaced(swapped, j, [row[i] for row in rows])


def nudged(values, spec):
    """The largest number changed by one percent (more where the tolerance is wider)."""
    best = max((i for i, v in enumerate(values) if isinstance(v, (int, float))), key=lambda i: abs(values[i]))
    by = max(0.01, 3 * spec["rtol"]) * abs(values[best]) + 3 * spec["atol"]
    return [v + by if i == best else v for i, v in enumerate(values)]


def replaced(rows, column, values):
    return [[*row[:column], value, *row[column + 1 :]] for row, value in zip(rows, values)]


def alike(a, b, at, ordered, spec):
    """The tables are equal as the check sees them."""
    a, b = [[row[i] for i in at] for row in a], [[row[i] for i in at] for row in b]
    if len(a) != len(b):
        return False
    if not ordered:
        key = lambda row: [(v is None, numeric(v) is None, numeric(v) or 0, str(v)) for v in row]  # noqa: E731
        a, b = sorted(a, key=key), sorted(b, key=key)
    return all(same_value(x, y, spec["rtol"], spec["atol"]) for r, s in zip(a, b) for x, y in zip(r, s))


def render(kind, path, sheet, columns, rows, full):
    """The table in the format of the original."""
    if kind == "xlsx":
        return _xlsx(sheet, columns, rows, full)
    if kind == "json":
        records = [dict(zip(columns, row)) for row in rows]
        if path.endswith((".jsonl", ".ndjson")):
            return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records).encode()
        return json.dumps(records, ensure_ascii=False).encode()
    if kind == "parquet":
        return _parquet(columns, rows)
    if kind == "sqlite":
        return _sqlite(sheet, columns, rows, full)
    out = io.StringIO()
    writer = csv.writer(out, delimiter="\t" if path.endswith(".tsv") else ",", lineterminator="\n")
    writer.writerows([columns, *[["" if v is None else v for v in row] for row in rows]])
    return out.getvalue().encode()


def _xlsx(sheet, columns, rows, full):
    import openpyxl

    book = openpyxl.load_workbook(full)
    page = book[sheet or book.sheetnames[0]]
    page.delete_rows(1, page.max_row)
    for row in [columns, *rows]:
        page.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def _parquet(columns, rows):
    import pyarrow
    import pyarrow.parquet

    values = [[row[i] for row in rows] for i in range(len(columns))]
    mixed = [any(isinstance(v, str) for v in column) for column in values]
    values = [[None if v is None else str(v) for v in c] if m else c for c, m in zip(values, mixed)]
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array(v) for v in values], names=columns), out)
    return out.getvalue()


def _sqlite(sheet, columns, rows, full):
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "t.sqlite")
        with open(full, "rb") as source, open(copy, "wb") as target:
            target.write(source.read())
        database = sqlite3.connect(copy)
        tables = [r[0] for r in database.execute("select name from sqlite_master where type = 'table' and name not like 'sqlite_%'")]
        name = (sheet or tables[0]).replace('"', '""')
        quoted = ", ".join('"' + c.replace('"', '""') + '"' for c in columns)
        database.execute(f'drop table "{name}"')
        database.execute(f'create table "{name}" ({quoted})')
        database.executemany(f'insert into "{name}" values ({", ".join("?" * len(columns))})', rows)
        database.commit()
        database.close()
        with open(copy, "rb") as file:
            return file.read()
