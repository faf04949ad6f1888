"""pdf: a PDF has so many pages and contains the reference strings in order."""

import unicodedata

from common import Fail, reference, short

MAX_PAGES = 2000
MAX_CHARACTERS = 5_000_000


def check(spec, names, candidate):
    path = spec["path"]
    wanted = [str(s) for s in reference(names, spec["contains"])]
    full = candidate.file(path)
    texts = _texts(full, path)
    pages = len(texts[0])
    if spec.get("pages") and pages != int(reference(names, spec["pages"])):
        raise Fail(f"{path}: {reference(names, spec['pages'])} pages expected, found {pages}")
    missing = [_missing("".join(text), wanted) for text in texts]
    if None not in missing:
        raise Fail(f"{path}: does not contain {short(missing[0])} (in this order)")


def _texts(full, path):
    """The text of each page, by two readers that order text differently."""
    import logging

    import pymupdf
    import pypdf

    with open(full, "rb") as file:
        if b"%PDF-" not in file.read(1024):
            raise Fail(f"{path} is no PDF")
    logging.disable(logging.CRITICAL)
    pymupdf.TOOLS.mupdf_display_errors(False)
    found, reason = [], None
    for reader in (_pymupdf, _pypdf):
        try:
            found.append(reader(full, pymupdf, pypdf))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
    if not found:
        raise Fail(f"{path} cannot be read: {reason}")
    return found


def _pymupdf(full, pymupdf, _):
    with pymupdf.open(full, filetype="pdf") as document:
        if len(document) > MAX_PAGES:
            raise Fail("too many pages")
        return [page.get_text()[:MAX_CHARACTERS] for page in document]


def _pypdf(full, _, pypdf):
    pages = pypdf.PdfReader(full).pages
    if len(pages) > MAX_PAGES:
        raise Fail("too many pages")
    return [page.extract_text()[:MAX_CHARACTERS] for page in pages]


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


def _bare(text):
    """Letters without white space: where lines break says nothing."""
    return "".join(unicodedata.normalize("NFKC", text).replace("\u00ad", "").split())
