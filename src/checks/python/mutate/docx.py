"""Wrong documents: made again from the reference, one thing wrong."""

import copy
import io

from common import reference

from mutate import Mutant


def mutants(spec, names, candidate):
    path, right = spec["path"], reference(names, spec["contains"])
    if "parts" in right:
        yield from _parts(path, right["parts"])
        right = as_lists(right["parts"])
    for name, new in variants(right):
        if new != right:
            yield Mutant(name, {path: make(new)})
    for name, hide in HIDDEN.items():
        yield Mutant(name, {path: make(right, hide)})
    yield Mutant("empty document", {path: make({})})
    yield Mutant("plain text", {path: str(right).encode()})
    data = candidate.bytes(path)
    yield Mutant("truncated", {path: data[: len(data) // 2]})
    if right.get("headings"):
        yield Mutant("headings as plain text", {path: make({**right, "headings": [], "paragraphs": right["headings"] + right.get("paragraphs", [])})})


HIDDEN = {
    "hidden text": lambda font: setattr(font, "hidden", True),
    "white text": lambda font: setattr(font.color, "rgb", _rgb(255)),
    "tiny text": lambda font: setattr(font, "size", 12700),
}  # fmt: skip


def _rgb(level):
    from docx.shared import RGBColor

    return RGBColor(level, level, level)


def _parts(path, parts):
    """The parts of a document dropped, exchanged or turned round, each otherwise whole."""
    orders = {"parts reversed": parts[::-1], "first part last": parts[1:] + parts[:1]}
    orders |= {f"part {i + 1} dropped": parts[:i] + parts[i + 1 :] for i in range(len(parts))}
    orders |= {f"parts {i + 1} and {i + 2} exchanged": [*parts[:i], parts[i + 1], parts[i], *parts[i + 2 :]] for i in range(len(parts) - 1)}
    for name, new in orders.items():
        if new != parts:
            yield Mutant(name, {path: make_parts(new)})


def as_lists(parts):
    """Parts by kind."""
    return {kind + "s": [part[kind] for part in parts if kind in part] for kind in ("heading", "paragraph", "table")}


def variants(right):
    """(name, contents) with one part changed; for every part that the reference holds."""
    for key in ("headings", "paragraphs", "texts"):
        items = right.get(key) or []
        if not items:
            continue
        changes = {
            "first dropped": items[1:], "last dropped": items[:-1], "reversed": items[::-1],
            "first changed": ["~" + items[0][1:], *items[1:]], "last cut": [*items[:-1], items[-1][:-1]],
            "case changed": [t.swapcase() for t in items], "all dropped": [],
        }  # fmt: skip
        for name, new in changes.items():
            if not _contained(items, new):
                yield f"{key}: {name}", {**right, key: new}
    for i, table in enumerate(right.get("tables") or []):
        for name, new in _tables(table):
            if new != table:
                tables = copy.deepcopy(right["tables"])
                tables[i : i + 1] = [] if new is None else [new]
                yield f"table {i + 1}: {name}", {**right, "tables": tables}


def _contained(items, new):
    """The changed list still holds all, in order."""
    rest = iter(new)
    return all(any(item in other for other in rest) for item in items)


def _tables(table):
    yield "dropped", None
    yield "last row dropped", table[:-1]
    yield "a row twice", table + table[-1:]
    yield "rows reversed", table[::-1]
    yield "columns reversed", [row[::-1] for row in table]
    yield "header dropped", table[1:]
    changed = copy.deepcopy(table)
    changed[-1][-1] = f"{changed[-1][-1]}7"
    yield "last cell changed", changed
    changed = copy.deepcopy(table)
    changed[0][0] = f"{changed[0][0]}x"
    yield "first cell changed", changed
    yield "cells emptied", [["" for _ in row] for row in table]


def make(contents, hide=None):
    """A document of headings, paragraphs and tables; `hide` takes the font of each run."""
    parts = [{kind: content} for kind in ("heading", "paragraph", "table") for content in contents.get(kind + "s", [])]
    return make_parts(parts, hide)


def make_parts(parts, hide=None):
    """A document of these parts in this order."""
    import docx

    document = docx.Document()
    for kind, content in (item for part in parts for item in part.items()):
        if kind == "heading":
            document.add_heading(str(content), 1)
        elif kind == "paragraph":
            document.add_paragraph(str(content))
        elif content:
            _add_table(document, content)
    if hide is not None:
        cells = [cell for table in document.tables for row in table.rows for cell in row.cells]
        for paragraph in [*document.paragraphs, *(p for cell in cells for p in cell.paragraphs)]:
            for run in paragraph.runs:
                hide(run.font)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def _add_table(document, rows):
    table = document.add_table(len(rows), len(rows[0]))
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            table.cell(i, j).text = str(cell)
