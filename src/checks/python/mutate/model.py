"""Wrong models: pickles made here, loaded only in the other sandbox."""

import os
import pickle
import random

import ref
from common import numeric

from mutate import Mutant


def mutants(spec, names, candidate):
    path, target = spec["path"], spec["target"]
    rows = ref.rows(os.path.join("data", spec["held_out"]))
    truth = [row[target] for row in rows]
    for name, model in predictors(rows, truth, target, spec["metric"] == "r2"):
        yield Mutant(name, {path: pickle.dumps(model)})
    yield Mutant("not a model", {path: pickle.dumps({"accuracy": 1.0})})
    yield Mutant("a list of answers", {path: pickle.dumps(truth)})
    data = candidate.bytes(path)
    if not spec.get("any_use"):
        yield Mutant("in a dict", {path: wrapped(data)})
    yield Mutant("wants other columns", {path: pickle.dumps(_renamed(rows, truth, target, spec["metric"] == "r2"))})
    yield Mutant("text", {path: b"a very good model"})
    yield Mutant("truncated", {path: data[: len(data) // 2]})


def wrapped(data):
    """The pickle of a dict that holds what was pickled: its opcodes between those that make the dict."""
    return data[:2] + b"}" + b"\x8c\x05model" + data[2:-1] + b"s."


def _renamed(rows, truth, target, regression):
    """A model whose `predict` raises on the file's columns."""
    import pandas
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    known = [c for c in rows[0] if c != target and all(numeric(row[c]) is not None for row in rows)]
    frame = pandas.DataFrame([[row[c] for c in known] or [0] for row in rows], columns=[f"feature {c}" for c in known] or ["feature"])
    return (RandomForestRegressor if regression else RandomForestClassifier)(10, random_state=0).fit(frame, truth)


def predictors(rows, truth, target, regression):
    """(name, fitted model), none of which has learned anything."""
    from sklearn.dummy import DummyClassifier, DummyRegressor
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    columns = [c for c in rows[0] if c != target]
    blank = [[0]] * len(rows)
    if regression:
        for arguments in ({"strategy": "mean"}, {"strategy": "median"}, {"strategy": "quantile", "quantile": 0.05},
                          {"strategy": "quantile", "quantile": 0.95}, {"strategy": "constant", "constant": 0.0}):  # fmt: skip
            yield f"predicts {list(arguments.values())}", DummyRegressor(**arguments).fit(blank, truth)
    else:
        counts = sorted(set(truth), key=truth.count)
        yield "predicts the most frequent", DummyClassifier(strategy="most_frequent").fit(blank, truth)
        yield "predicts the rarest", DummyClassifier(strategy="constant", constant=counts[0]).fit(blank, truth)
        for strategy in ("stratified", "uniform", "prior"):
            yield f"predicts {strategy}", DummyClassifier(strategy=strategy, random_state=0).fit(blank, truth)
    shuffled = list(truth)
    random.Random(0).shuffle(shuffled)
    known = [c for c in columns if all(numeric(row[c]) is not None for row in rows)]
    tree = (DecisionTreeRegressor if regression else DecisionTreeClassifier)(max_depth=3, random_state=0)
    if known:
        yield "trained on a shuffled target", _selected(known, tree).fit(_frame(rows, columns), shuffled)


def _frame(rows, columns):
    import pandas

    return pandas.DataFrame([[row[c] for c in columns] for row in rows], columns=columns)


def _selected(columns, tree):
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline

    return make_pipeline(ColumnTransformer([("numbers", "passthrough", columns)]), tree)
