"""html: a page contains the reference's title, tables, texts and elements."""

from common import MAX_TEXT, Fail, OursError, reference, short, text_form

from checks.docx import equal_table, in_order


def check(spec, names, candidate):
    from bs4 import BeautifulSoup

    path, wanted = spec["path"], reference(names, spec["contains"])
    if not isinstance(wanted, dict) or set(wanted) - {"title", "tables", "texts", "selectors"}:
        raise OursError("the reference of an html has an unknown key")
    source = candidate.text(path, MAX_TEXT)
    try:
        page = BeautifulSoup(source, "lxml")
    except Exception as error:
        raise Fail(f"{path} cannot be parsed: {type(error).__name__}: {error}") from None
    if page.find() is None or "<" not in source:
        raise Fail(f"{path} is no HTML")
    title = page.title.get_text() if page.title else ""
    if "title" in wanted and _flat(title) != _flat(wanted["title"]):
        raise Fail(f"{path}: the title should be {short(wanted['title'])}, found {short(title)}")
    tables = [_table(table) for table in page.find_all("table")]
    in_order(wanted.get("tables", []), tables, f"{path}: table", equal_table)
    _texts(page, wanted.get("texts", []), path)
    for selector, count in wanted.get("selectors", {}).items():
        found = len(page.select(selector))
        if found != count:
            raise Fail(f"{path}: {count} elements `{selector}` expected, found {found}")


def _table(table):
    rows = [[cell.get_text() for cell in row.find_all(["th", "td"])] for row in table.find_all("tr")]
    return [row for row in rows if row]


def _texts(page, wanted, path):
    for hidden in page(["script", "style", "template"]):
        hidden.decompose()
    text, at = _flat(page.get_text(" ")), 0
    for string in map(_flat, wanted):
        at = text.find(string, at)
        if at < 0:
            raise Fail(f"{path}: does not contain {short(string)} (in this order)")
        at += len(string)


def _flat(text):
    return " ".join(text_form(text).split())
