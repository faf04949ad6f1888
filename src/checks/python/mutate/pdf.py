"""Wrong PDFs: made again with the reference's strings, one thing wrong."""

import io

from checks.pdf import _missing_on_pages
from common import reference

from mutate import Mutant


def mutants(spec, names, candidate):
    import pypdf

    path, wanted = spec["path"], reference(names, spec["contains"])
    right = [str(s) for item in wanted for s in (item if isinstance(item, (list, tuple)) else [item])]
    data = candidate.bytes(path)
    pages = len(pypdf.PdfReader(io.BytesIO(data)).pages)
    lists = {
        "first string missing": right[1:], "last string missing": right[:-1], "reversed": right[::-1],
        "first string cut": [right[0][:-1], *right[1:]] if right else [], "last string cut": right[:-1] + [right[-1][:-1]] if right else [],
        "first string changed": ["~" + right[0][1:], *right[1:]] if right else [], "no text": [],
        "case changed": [s.swapcase() for s in right], "other text": ["This page was left blank on purpose."],
    }  # fmt: skip
    for name, strings in lists.items():
        if right and _missing_on_pages(["\n".join(strings)], right, spec.get("lines")) is not None:
            yield Mutant(name, {path: _make(strings, pages)})
    if right != wanted and pages > 1:
        yield Mutant("all on the first page", {path: _make(right, pages, first_only=True)})
    for name, options in HIDDEN.items():
        yield Mutant(name, {path: _make(right, pages, **options)})
    if spec.get("pages"):
        yield Mutant("a page more", {path: _pages(data, pages, 1)})
        if pages > 1:
            yield Mutant("last page dropped", {path: _pages(data, pages - 1, 0)})
        yield Mutant("twice as many pages", {path: _pages(data, pages, pages)})
    yield Mutant("plain text", {path: "\n".join(right).encode()})
    yield Mutant("truncated", {path: data[: len(data) // 4]})
    yield Mutant("empty document", {path: _make([], 1 if pages > 1 else 2)})


HIDDEN = {"white text": {"color": (1, 1, 1)}, "invisible text": {"render_mode": 3}, "text off the page": {"left": -5000}}


def _make(strings, pages, left=40, first_only=False, **options):
    import pymupdf

    document = pymupdf.open()
    for _ in range(pages):
        document.new_page(width=2000, height=1000)
    for i, string in enumerate(strings):
        font = "helv" if string.isascii() else "china-s"
        page = 0 if first_only else min(i * pages // max(len(strings), 1), pages - 1)
        document[page].insert_text((left, 40 + 20 * (i % 45)), string, fontname=font, **options)
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
