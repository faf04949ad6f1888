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
    """Predictions for a csv, or the reason why there are none."""
    import numpy
    import pandas

    try:
        try:
            with open(path, "rb") as file:
                model = pickle.load(file)
        except Exception:
            import joblib

            model = joblib.load(path)
        rows = pandas.read_csv(table)
        result = numpy.asarray(model.predict(rows)).ravel()[:MAX_ROWS]
        return {"predictions": [plain(v) for v in result]}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def main():
    """For every model named in models.json."""
    with open("models.json", encoding="utf-8") as file:
        models = json.load(file)
    results = {path: predict(os.path.join("candidate", path), table) for path, table in models.items()}
    with open("output/predictions.json", "w", encoding="utf-8") as file:
        json.dump(results, file)


if __name__ == "__main__":
    sys.exit(main())
