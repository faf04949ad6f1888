"""pdf: a PDF has so many pages and visibly contains the reference strings in order."""

import unicodedata

from common import Fail, Mismatch, reference, short

MAX_PAGES = 2000
MAX_CHARACTERS = 5_000_000
MAX_DRAWN = 60  # pages that are drawn, to see whether their words are there
ZOOM = 2.0
FAINT = 24.0  # of 255: a word whose place differs by less within itself cannot be read


def check(spec, names, candidate):
    path = spec["path"]
    wanted = reference(names, spec["contains"])
    full = candidate.file(path)
    texts = _texts(full, path)
    pages = len(texts[0])
    if spec.get("pages") and pages != int(reference(names, spec["pages"])):
        raise Mismatch(path, f"{reference(names, spec['pages'])} pages", pages)
    missing = [_missing_on_pages(text, wanted, spec.get("lines")) for text in texts]
    if None not in missing:
        raise Fail(f"{path}: does not show {short(missing[0])} (in this order)")


def _missing_on_pages(pages, wanted, lines):
    """The first string that is not where it should be: anywhere, or on the page of its list."""
    missing = _missing_lines if lines else _missing
    if not any(isinstance(item, (list, tuple)) for item in wanted):
        return missing("\n".join(pages), [str(s) for s in wanted])
    found = (missing(page, [str(s) for s in strings]) for page, strings in zip([*pages, *[""] * len(wanted)], wanted))
    return next((string for string in found if string is not None), None)


def _texts(full, path):
    """The text of each page, by two readers that order text differently. What cannot be seen is left out, which one can tell."""
    import logging

    import pymupdf
    import pypdf

    with open(full, "rb") as file:
        if b"%PDF-" not in file.read(1024):
            raise Fail(f"{path} is no PDF")
    logging.disable(logging.CRITICAL)
    pymupdf.TOOLS.mupdf_display_errors(False)
    try:
        with pymupdf.open(full, filetype="pdf") as document:
            if len(document) > MAX_PAGES:
                raise Fail(f"{path} has too many pages")
            seen = [_visible(page) if n < MAX_DRAWN else (page.get_text(), False) for n, page in enumerate(document)]
    except Fail:
        raise
    except Exception as error:
        raise Fail(f"{path} cannot be read: {type(error).__name__}: {error}") from None
    found = [[text[:MAX_CHARACTERS] for text, _ in seen]]
    if not any(hides for _, hides in seen):
        try:
            found.append([page.extract_text()[:MAX_CHARACTERS] for page in pypdf.PdfReader(full).pages])
        except Exception:
            return found
    return found


def drawn_pages(full, path, most):
    """The first pages as gray arrays, at 60 dots per inch."""
    import numpy as np
    import pymupdf

    pymupdf.TOOLS.mupdf_display_errors(False)
    try:
        with pymupdf.open(full, filetype="pdf") as document:
            drawn = [page.get_pixmap(dpi=60, colorspace=pymupdf.csGRAY, alpha=False) for _, page in zip(range(most), document)]
    except Exception as error:
        raise Fail(f"{path} cannot be drawn: {type(error).__name__}: {error}") from None
    return [np.frombuffer(p.samples, dtype=np.uint8).reshape(p.height, p.stride)[:, : p.width].astype(float) for p in drawn]


def _visible(page):
    """The text of the words that the drawn page shows, line by line, and whether there are others."""
    import numpy as np
    import pymupdf

    zoom = min(ZOOM, 3000 / max(page.rect.width, page.rect.height, 1))
    drawn = page.get_pixmap(matrix=pymupdf.Matrix(zoom, zoom), colorspace=pymupdf.csGRAY, alpha=False)
    pixels = np.frombuffer(drawn.samples, dtype=np.uint8).reshape(drawn.height, drawn.stride)[:, : drawn.width].astype(float)
    kept, hides = [], False
    for x0, y0, x1, y1, word, block, line, _ in page.get_text("words", clip=pymupdf.INFINITE_RECT()):
        corners = pymupdf.Rect(x0, y0, x1, y1) * page.rotation_matrix * zoom
        place = pixels[max(int(corners.y0), 0) : max(int(corners.y1) + 1, 0), max(int(corners.x0), 0) : max(int(corners.x1) + 1, 0)]
        if place.size and np.ptp(place) >= FAINT:
            kept.append((word, (block, line)))
        else:
            hides = True
    text = ""
    for (word, place), (_, before) in zip(kept, [("", None), *kept]):
        text += ("" if before is None else " " if place == before else "\n") + word
    return text, hides


def _missing(text, wanted):
    """The first string that does not follow the ones before it; None if all do."""
    text, at = _bare(text), 0
    for string in wanted:
        bare = _bare(string)
        at = text.find(bare, at)
        if at < 0:
            return string
        at += len(bare)
    return None


def _missing_lines(text, wanted):
    """The first string that is no line after the ones before it; None if all are."""
    rest = iter([_bare(line) for line in text.split("\n")])
    return next((string for string in wanted if not any(line == _bare(string) for line in rest)), None)


def _bare(text):
    """Letters without white space: where lines break says nothing."""
    return "".join(unicodedata.normalize("NFKC", text).replace("\u00ad", "").split())
