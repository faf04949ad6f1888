"""table: a table file equals the reference."""

from collections import defaultdict

from common import Fail, Mismatch, OursError, numeric, reference, same_value, scalar, short, text_form
from tables import primary_key, read_table, sheet_names, sniff

MAX_GREEDY = 3000


def check(spec, names, candidate):
    columns, wanted = expected_table(reference(names, spec["expected"]))
    path = spec["path"]
    full = candidate.file(path)
    table = read_table(full, path, spec.get("sheet"))
    _layout(spec, full, path)
    if not columns:  # a list without dicts names none, so that any header is right
        columns = table.columns
    order = _columns(spec, columns, table, path)
    found = [[row[i] for i in order] for row in table.rows]
    if len(found) != len(wanted):
        raise Mismatch(path, f"{len(wanted)} rows", len(found))
    same = lambda a, b: same_value(a, b, spec["rtol"], spec["atol"])  # noqa: E731
    if spec.get("rows", "exact") == "any":
        found = _matched(found, wanted, columns, same, path)
    for i, (row, expected) in enumerate(zip(found, wanted)):
        for name, cell, want in zip(columns, row, expected):
            if not same(cell, want):
                raise Mismatch(f"{path}: row {i + 1}, column {short(name)}", short(want), short(cell))
    if sniff(full) != "text":
        _stored_types(columns, found, wanted, path)
    if table.ragged:
        raise Fail(f"{path}: some objects lack a key")


def _layout(spec, full, path):
    """The file's other sheets or tables, and the table's key."""
    if (only := spec.get("only_sheets")) and sorted(sheet_names(full)) != sorted(only):
        raise Mismatch(path, f"only {short(only)}", short(sheet_names(full)))
    if (key := spec.get("primary_key")) and primary_key(full, spec["sheet"]) != [key]:
        raise Fail(f"{path}: {short(key)} is not the primary key of {spec['sheet']}")


def _stored_types(columns, found, wanted, path):
    """Formats that know types hold numbers as numbers, texts as texts, and nothing where a value is missing."""
    for i, name in enumerate(columns):
        kind = _kind([row[i] for row in wanted if row[i] is not None])
        for row, want in zip(found, wanted):
            if want[i] is None and isinstance(row[i], str):
                raise Fail(f"{path}: column {short(name)} holds the text {short(row[i])} where the value is missing")
            if want[i] is not None and kind and _kind([row[i]]) not in (kind, None):
                raise Fail(f"{path}: column {short(name)} holds {row[i]!r:.80} instead of a {kind}")


def _kind(values):
    """`text`, `number` or `boolean` where all values are; None otherwise, and for others such as dates."""
    names = {str: "text", bool: "boolean", int: "number", float: "number"}
    kinds = {names.get(type(v)) for v in values}
    return kinds.pop() if len(kinds) == 1 else None


def expected_table(value):
    """Columns and rows of a reference: a list of dicts or a DataFrame."""
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        return [str(c) for c in value.columns], [[scalar(v) for v in row] for row in value.itertuples(index=False)]
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise OursError("the reference of a table is no list of dicts")
    columns = list(dict.fromkeys(key for row in value for key in row))
    return [str(c) for c in columns], [[scalar(row.get(c)) for c in columns] for row in value]


def _columns(spec, columns, table, path):
    """Where each expected column stands."""
    names = [text_form(name) for name in table.columns]
    wanted = [text_form(name) for name in columns]
    absent = [c for c, name in zip(columns, wanted) if name not in names]
    if absent:
        raise Fail(f"{path}: no column {short(absent[0])}; found {short(table.columns, 200)}")
    extra = [name for name in names if name not in wanted]
    if extra and not spec.get("extra_columns"):
        raise Fail(f"{path}: unexpected column {short(extra[0] or '(unnamed)')}")
    twice = [name for name in wanted if names.count(name) > 1]
    if twice:
        raise Fail(f"{path}: column {short(twice[0])} stands there twice")
    order = [names.index(name) for name in wanted]
    if spec.get("column_order") and order != sorted(order):
        raise Mismatch(path, f"the columns {short(columns, 200)} in this order", short(table.columns, 200))
    return order


def _matched(found, wanted, columns, same, path):
    """The found rows in the order of the wanted ones."""
    numeric_column = [all(w is None or isinstance(w, (int, float)) for w in col) for col in zip(*wanted)]
    key = lambda row: tuple("" if n else _text(c) for c, n in zip(row, numeric_column))  # noqa: E731
    rest = defaultdict(list)
    for row in found:
        rest[key(row)].append(row)
    for rows in rest.values():
        rows.sort(key=_numbers)
    places = sorted(range(len(wanted)), key=lambda i: _numbers(wanted[i]))
    out = [None] * len(wanted)
    for i in places:
        rows = rest.get(key(wanted[i]), [])
        at = next((j for j, row in enumerate(rows[:MAX_GREEDY]) if all(map(same, row, wanted[i]))), None)
        if at is None:
            raise Fail(f"{path}: no row is {short(dict(zip(columns, wanted[i])), 200)}")
        out[i] = rows.pop(at)
    return out


def _numbers(row):
    return [(n is None, n or 0.0) for n in (numeric(scalar(c)) for c in row)]


def _text(value):
    value = scalar(value)
    number = numeric(value)
    if number is not None:
        return f"{number:.6g}"
    return "" if value is None else text_form(value)
