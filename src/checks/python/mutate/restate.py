"""Changes what the answer states."""

from answers import stated
from common import Fail


def restated(answer, marker, value):
    """The answer with another value after the label; None removes the line."""
    lines = answer.splitlines()
    at = max(i for i, line in enumerate(lines) if _is_marked(line, marker))
    lines[at : at + 1] = [] if value is None else [f"{marker}: {value}"]
    if value is None:
        lines = [line for line in lines if not _is_marked(line, marker)]
    return "\n".join(lines)


def _is_marked(line, marker):
    try:
        stated(line, marker)
    except Fail:
        return False
    return True
