"""table: a table file equals the reference."""

from collections import defaultdict

from common import Fail, OursError, numeric, reference, same_value, scalar, short, text_form
from tables import read_table

MAX_GREEDY = 3000


def check(spec, names, candidate):
    columns, wanted = expected_table(reference(names, spec["expected"]))
    path = spec["path"]
    table = read_table(candidate.file(path), path, spec.get("sheet"))
    if not columns:  # a list without dicts names none, so that any header is right
        columns = table.columns
    order = _columns(spec, columns, table, path)
    found = [[row[i] for i in order] for row in table.rows]
    if len(found) != len(wanted):
        raise Fail(f"{path}: {len(wanted)} rows expected, found {len(found)}")
    same = lambda a, b: same_value(a, b, spec["rtol"], spec["atol"])  # noqa: E731
    if spec.get("rows", "exact") == "any":
        found = _matched(found, wanted, columns, same, path)
    for i, (row, expected) in enumerate(zip(found, wanted)):
        for name, cell, want in zip(columns, row, expected):
            if not same(cell, want):
                raise Fail(f"{path}: row {i + 1}, column {short(name)}: expected {short(want)}, found {short(cell)}")


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
    return [names.index(name) for name in wanted]


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
