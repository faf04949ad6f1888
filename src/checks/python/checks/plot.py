"""plot: a picture shows a chart whose data equal the reference.

The record of the figure is a claim. It counts when the redrawn picture equals the saved one, its
marks lie where data and axes put them, and the axes' labels agree with their places.
"""

from chart.picture import TOLERANCE, difference
from chart.redraw import BadRecord, Drawing
from common import Unproven, reference
from plots import read
from plots.compare import compare

MAX_CLAIMS = 6


def check(spec, names, candidate):
    expected = reference(names, spec["expected"])
    image = _picture(candidate, spec["path"])
    drawing, record = _prove(candidate, spec["path"], image)
    try:
        chart = read.chart(record, drawing, spec["kind"])
        compare(spec, expected, chart)
    except BadRecord as error:
        raise Unproven(f"the record is damaged: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise Unproven(f"the record is damaged: {type(error).__name__}: {error}") from None


def _picture(candidate, path):
    from pictures import open_picture

    return open_picture(candidate, path)


def _prove(candidate, path, image):
    """The record whose redrawn picture equals the saved one. Any record may be tried: none is believed."""
    records = [c.get("figure") for c in candidate.claims if isinstance(c, dict) and c.get("path") == path]
    others = [c.get("figure") for c in candidate.claims if isinstance(c, dict) and c.get("path") != path]
    records = [r for r in reversed(others[-20:] + records) if isinstance(r, dict)]
    records = [r for r in records if (r.get("width"), r.get("height")) == image.size][:MAX_CLAIMS]
    if not candidate.claims:
        raise Unproven("no figure was recorded: the chart was not saved with matplotlib's savefig")
    reason = "no recorded figure has the picture's size"
    for record in records:
        try:
            if record.get("unsupported"):
                raise BadRecord(f"the figure holds what is not checked: {str(record['unsupported'])[:100]}")
            drawing = Drawing(record)
            gap = difference(image, drawing.picture())
        except BadRecord as error:
            reason = str(error)
        except Exception as error:  # a hostile record may break the renderer in any way
            reason = f"the record cannot be redrawn ({type(error).__name__}: {error})"
        else:
            if gap <= TOLERANCE:
                return drawing, record
            reason = f"the redrawn figure differs from the picture by {gap:.0f} of 255"
    raise Unproven(f"the picture does not support the record: {reason}")


