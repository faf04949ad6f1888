"""html: a page visibly contains the reference's title, tables, texts and elements."""

from common import Fail, Mismatch, OursError, reference, short, text_form, utf8
from webpages import parse, remove_hidden

from checks.docx import equal_table, in_order


def check(spec, names, candidate):
    path, wanted = spec["path"], reference(names, spec["contains"])
    if not isinstance(wanted, dict) or set(wanted) - {"title", "tables", "texts", "selectors"}:
        raise OursError("the reference of an html has an unknown key")
    page = parse(utf8(candidate.bytes(path), path), path)
    title = page.title.get_text() if page.title else ""
    if "title" in wanted and _flat(title) != _flat(wanted["title"]):
        raise Mismatch(f"{path}: the title", short(wanted["title"]), short(title))
    remove_hidden(page)
    tables = [_table(table) for table in page.find_all("table")]
    in_order(wanted.get("tables", []), tables, f"{path}: table", equal_table)
    _texts(page, wanted.get("texts", []), path)
    for selector, content in wanted.get("selectors", {}).items():
        _elements(page.select(selector), content, f"{path}: `{selector}`")


def _elements(found, wanted, what):
    """So many elements, or elements of these texts."""
    if isinstance(wanted, int):
        if len(found) != wanted:
            raise Mismatch(what, f"{wanted} elements", len(found))
        return
    texts = [_flat(element.get_text()) for element in found]
    expected = [_flat(text) for text in ([wanted] if isinstance(wanted, str) else wanted)]
    if texts != expected:
        raise Mismatch(what, short(expected, 200), short(texts, 200))


def _table(table):
    rows = [[cell.get_text() for cell in row.find_all(["th", "td"])] for row in table.find_all("tr")]
    return [row for row in rows if row]


def _texts(page, wanted, path):
    text, at = _flat(page.get_text(" ")), 0
    for string in map(_flat, wanted):
        at = text.find(string, at)
        if at < 0:
            raise Fail(f"{path}: does not contain {short(string)} (in this order)")
        at += len(string)


def _flat(text):
    return " ".join(text_form(text).split())
