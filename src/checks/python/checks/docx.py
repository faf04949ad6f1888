"""docx: a document visibly contains the reference's headings, paragraphs and tables in order."""

import re

from common import Fail, OursError, numeric, reference, same_value, short, text_form
from tables import check_zip

MAX_CELLS = 200_000  # of all tables
LEAST_SIZE = 3  # points: a smaller text cannot be read


def check(spec, names, candidate):
    path, wanted = spec["path"], reference(names, spec["contains"])
    if not isinstance(wanted, dict) or set(wanted) - {"headings", "paragraphs", "tables", "parts"}:
        raise OursError("the reference of a docx has an unknown key")
    parts = read_parts(candidate.file(path), path)
    for kind in ("heading", "paragraph", "table"):
        found = [content for other, content in parts if other == kind]
        in_order(wanted.get(kind + "s", []), found, f"{path}: {kind}", equal_table if kind == "table" else equal_text)
    in_order([part for item in wanted.get("parts", []) for part in item.items()], parts, f"{path}: part", equal_part)


def read_parts(full, path):
    """The visible contents of a document in their order: (`heading`, text), (`paragraph`, text), (`table`, rows)."""
    import docx
    from docx.table import Table
    from docx.text.paragraph import Paragraph

    if "word/document.xml" not in check_zip(full, path):
        raise Fail(f"{path} is no Word document")
    try:
        document = docx.Document(full)
        bound_spans(document, path)
        blocks = [(block, block.tag.rsplit("}")[-1]) for block in document.element.body]
        parts = [_paragraph(Paragraph(block, document)) for block, tag in blocks if tag == "p"]
        tables = [("table", _rows(Table(block, document))) for block, tag in blocks if tag == "tbl"]
    except Fail:
        raise
    except Exception as error:
        raise Fail(f"{path} cannot be read: {type(error).__name__}: {error}") from None
    places = iter(parts), iter(tables)
    return [next(places[tag == "tbl"]) for _, tag in blocks if tag in ("p", "tbl")]


def _paragraph(paragraph):
    style = paragraph.style.name if paragraph.style is not None else ""
    return "heading" if style.startswith(("Heading", "Title")) else "paragraph", visible_text(paragraph)


def _rows(table):
    return [["\n".join(visible_text(p) for p in cell.paragraphs) for cell in row.cells] for row in table.rows]


def visible_text(paragraph):
    """The text of a paragraph without its hidden, white and tiny runs."""
    from docx.text.run import Run

    runs = [Run(element, paragraph) for element in paragraph._p.xpath(".//w:r")]
    if not any(_hidden(run, paragraph) for run in runs):
        return paragraph.text
    return "".join(run.text for run in runs if not _hidden(run, paragraph))


def _hidden(run, paragraph):
    fonts = [run.font, *(part.style.font for part in (run, paragraph) if part.style is not None)]
    color = next((font.color.rgb for font in fonts if font.color is not None and font.color.rgb is not None), None)
    size = next((font.size.pt for font in fonts if font.size is not None), None)
    shaded = bool(run._r.xpath("ancestor-or-self::*/*[self::w:rPr or self::w:pPr or self::w:tcPr]/w:shd | w:rPr/w:highlight"))
    white = color is not None and min(color) >= 0xF0 and not shaded
    return bool(next((font.hidden for font in fonts if font.hidden is not None), False)) or white or (size is not None and size < LEAST_SIZE)


def bound_spans(document, path):
    """A cell counts once for each column that it spans, and a small file may claim any number of columns."""
    from docx.oxml.ns import qn

    columns = sum(max(cell.grid_span, 1) for cell in document.element.body.iter(qn("w:tc")))
    if columns > MAX_CELLS:
        raise Fail(f"{path} has tables of {columns} cells, more than {MAX_CELLS}")


def in_order(wanted, found, what, equal):
    """Every wanted item among the found ones, in this order."""
    rest = iter(found)
    for item in wanted:
        if not any(equal(other, item) for other in rest):
            raise Fail(f"{what} {short(item)} is not there in this order; found {short(found, 200)}")


def equal_part(found, wanted):
    kind, content = wanted
    return found[0] == kind and (equal_table if kind == "table" else equal_text)(found[1], content)


def equal_text(found, wanted):
    return " ".join(text_form(found).split()) == " ".join(text_form(wanted).split())


def equal_table(found, wanted):
    """Cell by cell."""
    if len(found) != len(wanted) or any(len(a) != len(b) for a, b in zip(found, wanted)):
        return False
    return all(_equal_cell(_plain(a), b) for row, want in zip(found, wanted) for a, b in zip(row, want))


def _equal_cell(shown, wanted):
    """Numbers by value, but a whole number is shown without a fraction: readers take 15.0 for a measurement."""
    if type(wanted) is int and numeric(shown) is not None and not re.fullmatch(r"[-+]?\d+", shown):
        return False
    return same_value(shown, _plain(wanted) if isinstance(wanted, str) else wanted, 1e-9)


def _plain(cell):
    return " ".join(str(cell).split())
