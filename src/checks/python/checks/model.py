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
    result = result if isinstance(result, dict) else {}
    found = [result.get("predictions")]
    if spec.get("any_use"):
        found += _other_uses(result, truth)
    found = [predictions for predictions in found if isinstance(predictions, list) and len(predictions) == len(truth)]
    if not found:
        raise Fail(f"{spec['path']}: {_reason(result)}")
    score = max(METRICS[spec["metric"]](predictions, truth) for predictions in found)
    if not score >= least:
        raise Fail(f"{spec['path']}: {spec['metric']} {score:.4f} on the held-out rows, at least {least:.4f} expected")


def _other_uses(result, truth):
    """What the model predicts when it is used otherwise, as it is and, where classes are numbered, as their names."""
    found = result.get("variants")
    found = [predictions for predictions in found[:6] if isinstance(predictions, list)] if isinstance(found, list) else []
    classes = sorted({t for t in truth if isinstance(t, str)})
    numbered = [p for p in found if classes and all(isinstance(n, (int, float)) and n in range(len(classes)) for n in p)]
    return found + [[classes[int(n)] for n in p] for p in numbered]


def _reason(result):
    return str(result.get("error") or "no predictions came back")[:300]


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
