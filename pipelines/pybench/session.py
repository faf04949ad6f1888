"""Runs solutions as sessions do: IPython, the recorders of charts and clouds, a workspace of their own."""

import importlib.util
import json
import os
import random
import re
import resource
import shutil
import sys
import tempfile
from pathlib import Path

from children import Failed, call
from tasks import Wrong

ROOT = Path(__file__).resolve().parents[2]
CELL_SECONDS = 300
HEAVY = ("numpy", "pandas", "openpyxl", "PIL.Image", "scipy.fft", "scipy.stats", "sklearn.ensemble", "sklearn.linear_model", "cv2", "matplotlib.pyplot", "bs4", "pymupdf", "IPython.core.interactiveshell")


def warm():
    """Import once what children need."""
    import logging
    import warnings

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    environment = Path(sys.prefix) / "caches"
    os.environ.update(MPLCONFIGDIR=str(environment / "matplotlib"), MPLBACKEND="agg", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    os.environ["IPYTHONDIR"] = tempfile.mkdtemp(prefix="pybench-ipython-")
    os.environ["TMPDIR"] = os.environ.get("TMPDIR", "/tmp")
    sys.path[:0] = [str(ROOT / "src/grade/python"), str(ROOT / "src/grade/python/foreign")]
    for name in HEAVY:
        importlib.import_module(name)
    _runner()


def _runner():
    """The runner's package of src/interpreter/python."""
    place = ROOT / "src/interpreter/python"
    spec = importlib.util.spec_from_file_location("pybench_runner", place / "__init__.py", submodule_search_locations=[str(place)])
    module = importlib.util.module_from_spec(spec)
    sys.modules["pybench_runner"] = module
    spec.loader.exec_module(module)
    for name in ("shell", "charts", "clouds", "hooks"):
        importlib.import_module("pybench_runner." + name)


class Wire:
    """What a session would tell the host, kept."""

    last = None

    def __init__(self):
        self.claims = []

    def send(self, event, **fields):
        if event == "chart":
            self.claims.append({"path": fields["path"], "figure": fields["figure"]})

    def mark(self, stream):
        self.last = stream


def solve(turns, answer, stage, folder, lenient=False):
    """Run cells on a copy of the inputs; the candidate's folder (output/, answer.txt, claims.json)."""
    (folder / "output").mkdir(parents=True)
    shutil.copytree(stage / "data", folder / "data")
    texts = call(lambda: _cells(turns, folder, lenient), CELL_SECONDS, "the cells")
    values = {}
    for turn, text in zip(turns, texts):
        for name, pattern in turn.get("read", {}).items():
            found = re.search(pattern, text)
            if not found and not lenient:
                raise Wrong(f"`{pattern}` is not in the output: {text[-600:]}")
            values[name] = found[1] if found else "?"
    final = re.sub(r"\{\{ *(\w+) *\}\}", lambda m: values[m[1]], answer)
    (folder / "answer.txt").write_text(final, encoding="utf-8")
    return folder


def _cells(turns, folder, lenient):
    """Standard output of each cell; writes claims.json."""
    from pybench_runner import charts, clouds, shell

    os.chdir(folder)
    sys.path[0] = ""
    resource.setrlimit(resource.RLIMIT_CPU, (CELL_SECONDS, CELL_SECONDS))
    random.seed(0)
    sys.modules["numpy"].random.seed(0)
    log = os.open("log.txt", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    wire = Wire()
    stdout, stderr = shell.Stream(1, wire), shell.Stream(2, wire)
    sys.stdout = sys.__stdout__ = stdout
    sys.stderr = sys.__stderr__ = stderr
    emit = lambda path, record: wire.send("chart", path=path, figure=record)  # noqa: E731
    charts.install(emit, str(folder))
    import wordcloud.wordcloud

    clouds.install(wordcloud.wordcloud, emit)
    built, texts = shell.build(wire, stdout, stderr), []
    for turn in turns:
        start = os.fstat(1).st_size
        error = shell.run(built, turn["cell"])
        with open("log.txt", "rb") as file:
            file.seek(start)
            texts.append(file.read().decode("utf-8", "replace").strip())
        if error and not lenient:
            raise Wrong(f"a cell raised:\n{error['traceback'][-1200:]}")
    Path("claims.json").write_text(json.dumps(wire.claims, default=str), encoding="utf-8")
    return texts


def predict(models, root):
    """Predictions of models, as the other sandbox makes them."""
    import run_model

    out = {}
    for path, table in models.items():
        with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False, encoding="utf-8") as file:
            file.write(table)
        try:
            out[path] = call(lambda path=path, name=file.name: run_model.predict(os.path.join(root, path), name), 120, "a model")
        except Failed as error:
            out[path] = {"error": str(error)[-300:]}
        os.unlink(file.name)
    return out


def programs(wanted, root):
    """Runs of programs, as the other sandbox makes them."""
    import run_program

    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.abspath(root), os.path.join(folder, "candidate"))
        os.chdir(folder)
        return {path: [run_program.run(path, r["args"], r["stdin"]) for r in runs] for path, runs in wanted.items()}
