"""Wrong PDFs: made again with the reference's strings, one thing wrong."""

import io

from checks.pdf import _bare, _missing
from common import reference

from mutate import Mutant


def mutants(spec, names, candidate):
    import pypdf

    path, right = spec["path"], [str(s) for s in reference(names, spec["contains"])]
    data = candidate.bytes(path)
    pages = len(pypdf.PdfReader(io.BytesIO(data)).pages)
    lists = {
        "first string missing": right[1:], "last string missing": right[:-1], "reversed": right[::-1],
        "first string cut": [right[0][:-1], *right[1:]] if right else [], "last string cut": right[:-1] + [right[-1][:-1]] if right else [],
        "first string changed": ["~" + right[0][1:], *right[1:]] if right else [], "no text": [],
        "case changed": [s.swapcase() for s in right], "other text": ["This page was left blank on purpose."],
    }  # fmt: skip
    for name, strings in lists.items():
        if right and _missing(_bare("".join(strings)), right) is not None:
            yield Mutant(name, {path: _make(strings, pages)})
    if spec.get("pages"):
        yield Mutant("a page more", {path: _pages(data, pages, 1)})
        if pages > 1:
            yield Mutant("last page dropped", {path: _pages(data, pages - 1, 0)})
        yield Mutant("twice as many pages", {path: _pages(data, pages, pages)})
    yield Mutant("plain text", {path: "\n".join(right).encode()})
    yield Mutant("truncated", {path: data[: len(data) // 4]})
    yield Mutant("empty document", {path: _make([], 1 if pages > 1 else 2)})


def _make(strings, pages):
    import pymupdf

    document = pymupdf.open()
    for _ in range(pages):
        document.new_page(width=2000, height=1000)
    for i, string in enumerate(strings):
        font = "helv" if string.isascii() else "china-s"
        document[min(i * pages // max(len(strings), 1), pages - 1)].insert_text((40, 40 + 20 * (i % 45)), string, fontname=font)
    return document.tobytes()


def _pages(data, keep, more):
    import pypdf

    writer, reader = pypdf.PdfWriter(), pypdf.PdfReader(io.BytesIO(data))
    for page in reader.pages[:keep]:
        writer.add_page(page)
    for _ in range(more):
        writer.add_blank_page(300, 300)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()
