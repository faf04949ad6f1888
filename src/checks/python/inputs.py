"""The task's input files, read as their profiles say: one encoding, one delimiter and one type per column, for all."""

import os

import delimited
from common import NA, OursError, decode, numeric
from tables import guess_delimiter, kind_of, read_table

# Path in the workspace → {"encoding", "delimiter", "columns": [{"kind", "nulls"}], "read": {…}}, each absent where it is
# unknown or the default; `read` is described in src/types/src/read_options.rs.
FORMATS = {}


def describe(formats):
    """From now on, files are read as these formats say."""
    FORMATS.clear()
    FORMATS.update(formats)


def text(path):
    """The text of a file."""
    with open(path, "rb") as file:
        data = file.read()
    encoding = _format(path).get("encoding")
    if encoding is None:
        return decode(data, path)
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise OursError(f"{path} is not in {encoding}: {error}") from None


def table(path, sheet=None):
    """Column names and, for each column, its values as pandas has them; None is missing."""
    found = _format(path)
    options = found.get("read", {})
    if "delimiter" not in found and kind_of(path, path) != "text":
        raw = read_table(path, path, sheet or options.get("sheet"), options.get("skip_rows", 0))
        names, rows = raw.columns, raw.rows
        if "names" in options:
            names, rows = _second_header(path, options["names"], rows)
        columns = [list(column) for column in zip(*rows)] or [[] for _ in names]
        columns = [_converted(name, column, options) for name, column in zip(names, columns)]
        columns = [_unified(column, kind_of(path, path)) for column in columns]
        return names, [_filled(column) if name in options.get("filled", ()) else column for name, column in zip(names, columns)]
    content = text(path)
    names, columns = delimited.read(content, found.get("delimiter") or guess_delimiter(content, path), options)
    if "columns" in found:
        _agree(path, names, columns, found["columns"])
    return names, [column.values for column in columns]


def _format(path):
    return FORMATS.get(os.path.normpath(path), {})


def _second_header(path, names, rows):
    """Joined names, and the rows below the second row of the header."""
    if not rows or len(names) != len(rows[0]):
        raise OursError(f"{path} has another number of columns than {len(names)}, as its profile says")
    return names, rows[1:]


def _converted(name, column, options):
    """Numbers and dates of the texts of a column, where its profile says how they are written."""
    if name in options.get("numbers", {}):
        notation = options["numbers"][name]
        return [_number(delimited.plain_number(value, notation)) if isinstance(value, str) and value not in NA else None for value in column]
    if name in options.get("dates", {}):
        return [delimited.iso_date(name, value) if isinstance(value, str) and value not in NA else None for value in column]
    if name in options.get("mixed_dates", ()):
        return [delimited.mixed_date(name, value) if isinstance(value, str) and value not in NA else None for value in column]
    return column


def _filled(column):
    """The value of merged cells for each of their rows."""
    last, filled = None, []
    for value in column:
        last = last if value is None else value
        filled.append(last)
    return filled


def _agree(path, names, columns, profile):
    """The profile, which the query and the expert rely on, says the same of every column."""
    if len(columns) != len(profile):
        raise OursError(f"{path} has {len(columns)} columns, {len(profile)} in its profile")
    for name, column, said in zip(names, columns, profile):
        kind = {"date": "text"}.get(said["kind"], said["kind"])
        # pandas keeps the names of missing values in some columns of large numbers.
        if column.kind != kind or (kind != "other" and column.missing != said["nulls"]):
            raise OursError(
                f"column {name} of {path} is {column.kind} with {column.missing} missing values, "
                f"in its profile {kind} with {said['nulls']}"
            )


def _unified(values, kind):
    """Values whose file states their types. Whole numbers are floats beside others or missing ones."""
    values = [_plain(value) for value in values]
    if kind == "xlsx":
        values = _of_workbook(values)
    known = [value for value in values if value is not None]
    if all(map(_is_number, known)) and (len(known) < len(values) or any(isinstance(value, float) for value in known)):
        return [None if value is None else float(value) for value in values]
    return values


def _of_workbook(values):
    """A workbook has floats alone, and text where there are no numbers. Truth values beside missing ones are numbers."""
    values = [None if isinstance(value, str) and value in NA else value for value in values]
    values = [int(value) if isinstance(value, float) and value.is_integer() else value for value in values]
    known = [value for value in values if value is not None]
    if None in values and all(isinstance(value, bool) for value in known):
        return [None if value is None else float(value) for value in values]
    if all(_is_number(value) or isinstance(value, str) and numeric(value) is not None for value in known):
        return [_number(value) if isinstance(value, str) else value for value in values]
    return values


def _plain(value):
    """A value as bool, int, float, str or None."""
    if isinstance(value, float):
        return None if value != value else value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(text):
    return int(text) if delimited.INTEGER.fullmatch(text) else float(text)
