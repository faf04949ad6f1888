"""docx: a document contains the reference's headings, paragraphs and tables in order."""

from common import Fail, OursError, reference, same_value, short, text_form
from tables import check_zip

MAX_CELLS = 200_000  # of all tables


def check(spec, names, candidate):
    import docx

    path, wanted = spec["path"], reference(names, spec["contains"])
    if not isinstance(wanted, dict) or set(wanted) - {"headings", "paragraphs", "tables"}:
        raise OursError("the reference of a docx has an unknown key")
    full = candidate.file(path)
    if "word/document.xml" not in check_zip(full, path):
        raise Fail(f"{path} is no Word document")
    try:
        document = docx.Document(full)
        paragraphs = [(p.style.name if p.style is not None else "", p.text) for p in document.paragraphs]
        bound_spans(document, path)
        tables = [[[cell.text for cell in row.cells] for row in table.rows] for table in document.tables]
    except Fail:
        raise
    except Exception as error:
        raise Fail(f"{path} cannot be read: {type(error).__name__}: {error}") from None
    headings = [text for style, text in paragraphs if style.startswith(("Heading", "Title"))]
    in_order(wanted.get("headings", []), headings, f"{path}: heading", equal_text)
    others = [text for style, text in paragraphs if not style.startswith(("Heading", "Title"))]
    in_order(wanted.get("paragraphs", []), others, f"{path}: paragraph", equal_text)
    in_order(wanted.get("tables", []), tables, f"{path}: table", equal_table)


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


def equal_text(found, wanted):
    return " ".join(text_form(found).split()) == " ".join(text_form(wanted).split())


def equal_table(found, wanted):
    """Cell by cell; numbers by value."""
    if len(found) != len(wanted) or any(len(a) != len(b) for a, b in zip(found, wanted)):
        return False
    return all(same_value(_plain(a), _plain(b) if isinstance(b, str) else b, 1e-6) for row, want in zip(found, wanted) for a, b in zip(row, want))


def _plain(cell):
    return " ".join(str(cell).split())
