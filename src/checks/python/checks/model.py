"""model: predictions for the held-out rows, made in a sandbox without reference or checker, are good enough."""

import os

import ref
from common import Fail, OursError, numeric, reference, same_value, scalar


def check(spec, names, candidate):
    least = numeric(scalar(reference(names, spec["least"])))
    if least is None:
        raise OursError(f"the reference's `{spec['least']}` is no number")
    candidate.file(spec["path"])
    rows = ref.rows(os.path.join("held_out", spec["held_out"]))
    truth = [row[spec["target"]] for row in rows]
    result = (candidate.predictions or {}).get(spec["path"])
    if not isinstance(result, dict) or "predictions" not in result:
        raise Fail(f"{spec['path']}: {_reason(result)}")
    score = max(METRICS[spec["metric"]](predictions, truth) for predictions in usable(result, truth, spec["path"]))
    if not score >= least:
        raise Fail(f"{spec['path']}: {spec['metric']} {score:.4f} on the held-out rows, at least {least:.4f} expected")


def usable(result, truth, path):
    """Predictions of the right number: as the model made them and, for encoded classes, decoded."""
    out = []
    for predictions in [result["predictions"], *result.get("variants", [])[1:6]]:
        if not isinstance(predictions, list) or len(predictions) != len(truth):
            raise Fail(f"{path}: {len(truth)} predictions expected")
        out.append(predictions)
        classes = sorted({t for t in truth if isinstance(t, str)})
        if classes and all(isinstance(p, (int, float)) and p == int(p) and 0 <= p < len(classes) for p in predictions):
            out.append([classes[int(p)] for p in predictions])
    return out


def _reason(result):
    reason = result.get("error") if isinstance(result, dict) else None
    return str(reason or "no predictions came back")[:300]


def _accuracy(predictions, truth):
    return sum(same_value(p, t, 1e-9) for p, t in zip(predictions, truth)) / max(len(truth), 1)


def _r2(predictions, truth):
    numbers = [numeric(scalar(p)) for p in predictions]
    if None in numbers or any(n != n for n in numbers):
        raise Fail("a prediction is no number")
    mean = sum(truth) / len(truth)
    spread = sum((t - mean) ** 2 for t in truth)
    if spread == 0:
        raise OursError("the held-out target is constant")
    return 1 - sum((p - t) ** 2 for p, t in zip(numbers, truth)) / spread


METRICS = {"accuracy": _accuracy, "r2": _r2}
