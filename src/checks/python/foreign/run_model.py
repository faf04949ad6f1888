"""Runs in a sandbox that holds neither reference nor checker: loads a pickle, predicts, writes bounded data.

Its result is data from a hostile process: the checker scores it, nobody believes it.
"""

import json
import os
import pickle
import sys

MAX_ROWS = 500_000


def plain(value):
    """A prediction as JSON."""
    if hasattr(value, "item"):
        value = value.item()
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)[:200]


def predict(path, table):
    """What a pickle predicts for a csv: as its own `predict` takes the table, and in the ways that are usual beside it."""
    import pandas

    rows = pandas.read_csv(table)
    found = strict(path, rows)
    try:
        return {**found, **lenient(path, rows)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300], **found}


def strict(path, rows):
    """The predictions of the pickled object itself, or the reason why there are none."""
    import numpy

    try:
        with open(path, "rb") as file:
            values = numpy.asarray(pickle.load(file).predict(rows.copy()))
        if values.shape not in ((len(rows),), (len(rows), 1)):
            return {"error": f"predict returned the shape {values.shape} for {len(rows)} rows"}
        return {"predictions": [plain(v) for v in values.ravel()]}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def lenient(path, rows):
    """Predictions of a model that may be saved by joblib, with its scaler, or trained on prepared rows."""
    import numpy

    try:
        with open(path, "rb") as file:
            model = pickle.load(file)
    except Exception:
        import joblib

        model = joblib.load(path)
    model, helpers = estimator(model)
    results = variants(model, helpers, rows, numpy)
    return {"variants": results, **described(model, numpy)}


def estimator(found):
    """The part of a pickle that predicts, and the parts that transform (a model may be saved with its scaler)."""
    parts = list(found.values()) if isinstance(found, dict) else list(found) if isinstance(found, (list, tuple)) else [found]
    models = [part for part in parts if hasattr(part, "predict")]
    if not models:
        raise TypeError("the pickle holds nothing that predicts")
    return models[0], [part for part in parts if hasattr(part, "transform") and not hasattr(part, "predict")]


def variants(model, helpers, rows, numpy):
    """Predictions for the rows as they are and, where the model was trained on prepared ones, as prepared usually."""
    out = []
    for frame in prepared(model, rows):
        for helper in [None, *helpers]:
            try:
                given = frame if helper is None else helper.transform(frame)
                values = [plain(v) for v in numpy.asarray(model.predict(given)).ravel()[:MAX_ROWS]]
            except Exception:
                continue
            if len(values) == len(rows) and values not in out:
                out.append(values)
    return out[:6]


def prepared(model, rows):
    """The rows in the shapes that models are usually trained on."""
    yield rows
    names = [str(n) for n in getattr(model, "feature_names_in_", [])]
    coded = rows.copy()
    for name in coded.columns:
        if not hasattr(coded[name], "dtype") or coded[name].dtype.kind not in "ifb":
            coded[name] = coded[name].astype("category").cat.codes
    numbers = rows.select_dtypes("number")
    hot = __import__("pandas").get_dummies(rows)
    if names:
        for frame in (rows, coded, hot):
            if set(names) <= set(frame.columns) or frame is hot:
                yield frame.reindex(columns=names, fill_value=0)
    count = getattr(model, "n_features_in_", None)
    for frame in (numbers, coded, hot):
        if frame.shape[1] == count:
            yield frame.to_numpy()
            scale = frame.std().replace(0, 1)
            yield ((frame - frame.mean()) / scale).to_numpy()


def described(model, numpy):
    """What the model is: class names of it and its steps, whether it was fitted, how it answers to noise."""
    kinds, todo = [], [model]
    while todo and len(kinds) < 50:
        part = todo.pop()
        kinds += [c.__name__ for c in type(part).__mro__[:-1]]
        todo += [step for _, step in getattr(part, "steps", [])]
        todo += [inner for name in ("best_estimator_", "estimator", "regressor_") if (inner := getattr(part, name, None)) is not None]
        todo += list(getattr(part, "estimators_", []))[:3]
    answers = []
    try:
        count = int(getattr(model, "n_features_in_", 1))
        for shift in (0.0, 1.0, 5.0):
            noise = numpy.random.default_rng(0).normal(shift, 1, (20, count))
            answers += [float(v) for v in numpy.asarray(model.predict(noise)).ravel()[:60]]
    except Exception:
        answers = []
    return {"kinds": kinds[:60], "features": int(getattr(model, "n_features_in_", 0) or 0), "answers": answers[:200]}


def main():
    """For every model named in models.json."""
    with open("models.json", encoding="utf-8") as file:
        models = json.load(file)
    results = {path: predict(os.path.join("candidate", path), table) for path, table in models.items()}
    with open("output/predictions.json", "w", encoding="utf-8") as file:
        json.dump(results, file)


if __name__ == "__main__":
    sys.exit(main())
