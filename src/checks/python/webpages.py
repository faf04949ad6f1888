"""Web pages of unknown origin, and what a reader sees of them.

The styles of elements and of `<style>` sheets are followed as far as they hide things; nothing is laid out.
"""

import contextlib
import re

from common import Fail

UNSEEN = ("script", "style", "template", "noscript", "head")
RULE = re.compile(r"([^{}@]+)\{([^{}]*)\}")
FAR = re.compile(r"-(\d{4,}|999)")
WHITE = ("white", "#fff", "#ffffff", "rgb(255,255,255)", "transparent")
MAX_RULES = 2000


def parse(source, path):
    """The tree of a page."""
    from bs4 import BeautifulSoup

    try:
        page = BeautifulSoup(source, "lxml")
    except Exception as error:
        raise Fail(f"{path} cannot be parsed: {type(error).__name__}: {error}") from None
    if page.find() is None or "<" not in source:
        raise Fail(f"{path} is no HTML")
    return page


def remove_hidden(page):
    """Take away what a browser does not show."""
    styles = _styles(page)
    hidden = [element for element in page.find_all(True) if _hides(element, styles.get(id(element), {}))]
    hidden += _white_on_white(page, styles)
    for element in [*hidden, *page(UNSEEN)]:
        element.extract()


def _styles(page):
    """{id of an element: its declarations}: those of its own win over those of sheets."""
    out = {}
    for selector, text in RULE.findall("\n".join(sheet.get_text() for sheet in page("style")))[:MAX_RULES]:
        with contextlib.suppress(Exception):  # a selector that the library does not know
            for element in page.select(selector.strip()):
                out.setdefault(id(element), {}).update(_declarations(text))
    for element in page.find_all(style=True):
        out.setdefault(id(element), {}).update(_declarations(element["style"]))
    return out


def _declarations(text):
    pairs = (part.partition(":") for part in text.lower().split(";"))
    return {name.strip(): "".join(value.replace("!important", "").split()) for name, _, value in pairs}


def _hides(element, style):
    zero = lambda name: re.fullmatch(r"0(\.0+)?(px|em|rem|pt|%)?", style.get(name, "")) is not None  # noqa: E731
    return (
        element.has_attr("hidden")
        or (element.name == "input" and element.get("type") == "hidden")
        or style.get("display") == "none"
        or style.get("visibility") in ("hidden", "collapse")
        or zero("opacity")
        or zero("font-size")
        or (style.get("overflow") == "hidden" and (zero("height") or zero("width") or zero("max-height")))
        or any(FAR.match(style.get(name, "")) for name in ("left", "top", "right", "bottom", "text-indent", "margin-left"))
        or style.get("clip") in ("rect(0,0,0,0)", "rect(0000)")
    )


def _white_on_white(page, styles):
    """Elements whose color is that of the ground they stand on."""
    out = []
    for element in page.find_all(True):
        color = styles.get(id(element), {}).get("color") or (element.get("color", "").lower() if element.name == "font" else "")
        if color and _same_color(color, _ground(element, styles)):
            out.append(element)
    return out


def _ground(element, styles):
    """The background behind an element: its own or the nearest one of those around it."""
    for around in [element, *element.parents]:
        style = styles.get(id(around), {})
        named = style.get("background-color") or style.get("background") or (around.get("bgcolor", "").lower() if around.attrs else "")
        if named and named not in ("none", "transparent", "inherit"):
            return named
    return "white"


def _same_color(color, ground):
    if color == "transparent" or re.fullmatch(r"rgba\(.*,0(\.0+)?\)", color):
        return True
    return color == ground or (color in WHITE and ground in WHITE)
