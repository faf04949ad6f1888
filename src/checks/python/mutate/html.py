"""Wrong pages: made again from the reference, or the original with something taken away."""

import html

from common import reference

from mutate import Mutant
from mutate.docx import variants

HIDDEN = {"not displayed": "display: none", "white on white": "color: #fff", "out of sight": "position: absolute; left: -9999px"}


def mutants(spec, names, candidate):
    from bs4 import BeautifulSoup

    path, right = spec["path"], reference(names, spec["contains"])
    source = candidate.text(path)
    for name, new in variants({k: v for k, v in right.items() if k != "selectors"}):
        yield Mutant(name, {path: make(new).encode()})
    if "title" in right:
        for title in ("", right["title"] + "x", right["title"].swapcase(), right["title"][:-1]):
            if title != right["title"]:
                yield Mutant(f"title `{title}`", {path: make({**right, "title": title}, source).encode()})
    for selector, content in right.get("selectors", {}).items():
        count = content if isinstance(content, int) else 1
        page = BeautifulSoup(source, "lxml")
        for element in page.select(selector):
            element.decompose()
        if count:
            yield Mutant(f"no `{selector}`", {path: str(page).encode()})
            page = BeautifulSoup(source, "lxml")
            if (found := page.select_one(selector)) is not None:
                found.insert_after(BeautifulSoup(str(found), "html.parser"))
                yield Mutant(f"one more `{selector}`", {path: str(page).encode()})
    for name, style in HIDDEN.items():
        hidden = BeautifulSoup(source, "lxml")
        hidden.body["style"] = style
        yield Mutant(name, {path: str(hidden).encode()})
    yield Mutant("empty page", {path: b"<html><body></body></html>"})
    yield Mutant("plain text", {path: b"I made the page as asked."})
    yield Mutant("error page", {path: b"<html><head><title>404</title></head><body><h1>Not found</h1></body></html>"})
    yield Mutant("escaped", {path: f"<pre>{html.escape(source)}</pre>".encode()})
    yield Mutant("in a comment", {path: f"<html><!-- {source.replace('--', '')} --></html>".encode()})
    yield Mutant("truncated", {path: source[: len(source) // 4].encode()})
    yield Mutant("in a script", {path: f"<html><script>{source.replace('script', 's')}</script></html>".encode()})


def make(contents, source=None):
    """A page of title, texts and tables; of the original with another title."""
    if source is not None:
        from bs4 import BeautifulSoup

        page = BeautifulSoup(source, "lxml")
        if page.title:
            page.title.string = contents["title"]
        return str(page)
    parts = [f"<html><head><title>{html.escape(contents.get('title', ''))}</title></head><body>"]
    parts += [f"<p>{html.escape(str(text))}</p>" for text in contents.get("texts", [])]
    for rows in contents.get("tables", []):
        body = "".join("<tr>" + "".join(f"<td>{html.escape(str(c))}</td>" for c in row) + "</tr>" for row in rows or [])
        parts.append(f"<table>{body}</table>")
    return "".join(parts) + "</body></html>"
