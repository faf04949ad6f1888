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
    predictions = result.get("predictions") if isinstance(result, dict) else None
    if not isinstance(predictions, list) or len(predictions) != len(truth):
        raise Fail(f"{spec['path']}: {_reason(result)}")
    score = METRICS[spec["metric"]](predictions, truth)
    if not score >= least:
        raise Fail(f"{spec['path']}: {spec['metric']} {score:.4f} on the held-out rows, at least {least:.4f} expected")


def _reason(result):
    reason = result.get("error") if isinstance(result, dict) else None
    return str(reason or "no predictions came back")[:300]


def _accuracy(predictions, truth):
    return sum(same_value(p, t, 1e-9) for p, t in zip(predictions, truth)) / max(len(truth), 1)


def _r2(predictions, truth):
    if not all(isinstance(p, (int, float)) and p == p for p in predictions):
        raise Fail("a prediction is no number")
    mean = sum(truth) / len(truth)
    spread = sum((t - mean) ** 2 for t in truth)
    if spread == 0:
        raise OursError("the held-out target is constant")
    return 1 - sum((p - t) ** 2 for p, t in zip(predictions, truth)) / spread


METRICS = {"accuracy": _accuracy, "r2": _r2}
