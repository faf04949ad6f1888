"""Delimited text as `pandas.read_csv` reads it by default, without pandas: names, types and missing values of columns.

A column has one type: integer, float, boolean or text. A value that is written like a number is text where any
other value of its column is.
"""

import csv
import io
import math
import re

from common import MAX_CELLS, MAX_ROWS, NA, OursError

INTEGER = re.compile(r"\s*[-+]?[0-9]+\s*", re.ASCII)
FLOAT = re.compile(r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*", re.ASCII)
INFINITE = {"inf": math.inf, "+inf": math.inf, "-inf": -math.inf, "infinity": math.inf, "+infinity": math.inf, "-infinity": -math.inf}
TRUTH = {"true": True, "false": False}


class Column:
    """The kind of a column (`integer`, `float`, `boolean`, `text`, `other`) and its values; None is missing."""

    def __init__(self, kind, values):
        self.kind, self.values = kind, values

    @property
    def missing(self):
        return sum(value is None for value in self.values)


ISO_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
DAY_FIRST = re.compile(r"([0-9]{1,2})[./-]([0-9]{1,2})[./-]([0-9]{4}|[0-9]{2})", re.ASCII)


def read(text, delimiter, options=None):
    """Names and columns. What pandas refuses, or takes for an index, is an error of ours.

    `options` names the columns whose numbers or dates are written in another way, and those of a header of two rows.
    """
    rows = _records(text, delimiter)
    if not rows:
        raise OursError("the file has no header")
    header, rows = rows[0], rows[1:]
    if "names" in (options or {}):
        header, rows = options["names"], rows[1:]
    width = len(header)
    for number, row in enumerate(rows, start=1):
        if len(row) > width:
            raise OursError(f"row {number} has {len(row)} cells, the header {width}")
        row.extend([""] * (width - len(row)))
    if len(rows) * width > MAX_CELLS:
        raise OursError("the table has too many cells")
    names = _names(header)
    columns = [_plain(name, [row[i] for row in rows], options or {}) for i, name in enumerate(names)]
    return names, [_column(cells, _rows_at_once(width)) for cells in columns]


def _plain(name, cells, options):
    """Cells with numbers and dates as pandas reads them by default."""
    if name in options.get("numbers", {}):
        return [cell if cell in NA else plain_number(cell, options["numbers"][name]) for cell in cells]
    if name in options.get("decimal_comma", ()):
        thousands = options.get("thousands") or ""
        return [cell if cell in NA else cell.replace(thousands, "").replace(",", ".") for cell in cells]
    if name in options.get("dates", {}):
        return [cell if cell in NA else iso_date(name, cell) for cell in cells]
    if name in options.get("mixed_dates", ()):
        return [cell if cell in NA else mixed_date(name, cell) for cell in cells]
    return cells


def plain_number(text, notation):
    """A number as programs write it, of a text in another notation."""
    text = text.replace(notation.get("currency") or "", "")
    text = "".join(c for c in text if c not in notation.get("ignored", ""))
    return text.replace(",", ".") if notation.get("decimal_comma") else text


def iso_date(name, cell):
    """A date in ISO 8601, of one that is written day first. Years of two digits are 1969 to 2068."""
    day = DAY_FIRST.fullmatch(cell)
    if day is None:
        raise OursError(f"column {name} has {cell!r}, which is no date that is written day first")
    year = day[3] if len(day[3]) == 4 else ("20" if day[3] < "69" else "19") + day[3]
    return f"{year}-{day[2]:0>2}-{day[1]:0>2}"


def mixed_date(name, cell):
    """A date in ISO 8601, of one that is written so or day first."""
    return cell if ISO_DAY.fullmatch(cell) else iso_date(name, cell)


def _records(text, delimiter):
    """Rows of raw cells; lines without a cell, or of white space alone, are none."""
    csv.field_size_limit(1_000_000)
    rows, lines = [], []

    def read_lines():
        for line in io.StringIO(text, newline=""):
            lines.append(line)
            yield line

    for row in csv.reader(read_lines(), delimiter=delimiter):
        # A quoted cell may be blank.
        if len(row) > 1 or "".join(lines).strip(" \t\r\n"):
            rows.append(row)
        lines.clear()
        if len(rows) > MAX_ROWS:
            raise OursError("the table has too many rows")
    return rows


def _names(header):
    """A name for each column: unnamed ones are numbered, and repeated ones get a number that makes them unique."""
    names = [name or f"Unnamed: {i}" for i, name in enumerate(header)]
    used = set()
    for i in sorted(range(len(names)), key=lambda i: not header[i]):
        name, number = names[i], 0
        while names[i] in used:
            number += 1
            if f"{name}.{number}" not in names:
                names[i] = f"{name}.{number}"
        used.add(names[i])
    return names


def _rows_at_once(width):
    """How many rows pandas reads before it decides on their types (`low_memory`): a power of two."""
    cells = 2**20 // width
    rows = 1
    while 2 * rows < cells:
        rows *= 2
    return rows


def _column(cells, rows_at_once):
    """Parts of a column that differ in kind stay as they are, except whole and other numbers."""
    parts = [_part(cells[at : at + rows_at_once]) for at in range(0, len(cells), rows_at_once)]
    kinds = {part.kind for part in parts if part.missing < len(part.values)}
    values = [value for part in parts for value in part.values]
    if not kinds:
        kind = "other"
    elif len(kinds) == 1:
        kind = kinds.pop()
    else:
        kind = "float" if kinds == {"integer", "float"} else "other"
    if kind == "float" or kind == "integer" and None in values:
        values = [None if value is None else float(value) for value in values]
    return Column(kind, values)


def _part(cells):
    known = [cell for cell in cells if cell not in NA]
    odd = next((cell for cell in known if not _is_int64(cell)), None)
    if odd is None:
        return _converted("integer", cells, int)
    if INTEGER.fullmatch(odd):
        large = _large(cells, known)
        if large:
            return large
    if all(FLOAT.fullmatch(cell) or cell.lower() in INFINITE for cell in known):
        return _converted("float", cells, _float)
    if all(cell.lower() in TRUTH for cell in known):
        return _converted("boolean", cells, lambda cell: TRUTH[cell.lower()])
    return _converted("text", cells, str)


def _converted(kind, cells, convert):
    return Column(kind, [None if cell in NA else convert(cell) for cell in cells])


def _is_int64(cell):
    return INTEGER.fullmatch(cell) is not None and -(2**63) <= int(cell) < 2**63


def _float(cell):
    return INFINITE[cell.lower()] if cell.lower() in INFINITE else float(cell)


def _large(cells, known):
    """A column with whole numbers beyond 64 bits; None where a value before the first of them is no whole number.

    Unsigned numbers that stand beside negative or missing ones leave all cells as they are, missing ones too.
    """
    negative = unsigned = False
    for cell in known:
        if cell.lstrip().startswith("-"):
            negative = True
        elif not INTEGER.fullmatch(cell):
            return None
        elif int(cell) >= 2**64:
            break
        else:
            unsigned = unsigned or int(cell) >= 2**63
    else:
        if unsigned and (negative or len(known) < len(cells)):
            return Column("other", list(cells))
    try:
        return _converted("other", cells, lambda cell: int(cell.encode()))
    except ValueError:
        return Column("other", list(cells))
