"""Measures the proof of charts: how many honest ones are proven, how many forgeries get through.

    python src/checks/tests/python/charts_measure.py [honest|forged|all] [every nth case]
"""

import collections
import json
import logging
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
sys.path[:0] = [str(ROOT / "src/checks/python"), str(ROOT / "src/interpreter/python"), str(Path(__file__).parent)]
warnings.simplefilter("ignore")
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)

import matplotlib.figure  # noqa: E402,F401
import charts  # noqa: E402
import chart_cases  # noqa: E402
from common import Unproven  # noqa: E402
from checks import plot  # noqa: E402
from common import Candidate, Fail  # noqa: E402

CLAIMS = []


def verdict(folder, kind, expected, path, claims, **spec):
    spec = {"path": path, "kind": kind, "expected": "expected", "rtol": 1e-3, **spec}
    try:
        plot.check(spec, {"expected": expected}, Candidate(folder, claims=json.loads(json.dumps(claims))))
    except Unproven as error:
        return "unproven", str(error)
    except Fail as error:
        return "fail", str(error)
    return "pass", ""


def main(what="all", every=1):
    folder = tempfile.mkdtemp()
    charts.install(lambda path, record: CLAIMS.append({"path": path, "figure": record}), folder)
    jobs = [(case, way) for i, case in enumerate(chart_cases.CASES) for j, way in enumerate(chart_cases.WAYS) if (i + j) % every == 0]
    honest, forged = collections.Counter(), collections.Counter()
    through = []
    for case, way in jobs:
        CLAIMS.clear()
        kind, expected, path, claim = chart_cases.draw(case, way, folder, CLAIMS)
        outcome, detail = verdict(folder, kind, expected, path, [claim])
        honest[outcome] += 1
        if outcome != "pass":
            print(f"honest {path}: {outcome}: {detail}")
        elif what != "honest":
            import chart_forgeries

            for name, outcome, detail in chart_forgeries.run(folder, kind, expected, path, claim, case, way, verdict):
                forged[name, outcome] += 1
                if outcome == "pass":
                    through.append(f"forged {path}: {name}")
    for case in chart_cases.NOT_PROVABLE:
        CLAIMS.clear()
        kind, expected, path, claim = chart_cases.draw(case, chart_cases.WAYS[0], folder, CLAIMS)
        outcome, detail = verdict(folder, kind, expected, path, [claim])
        if outcome != "unproven":
            through.append(f"not provable, but {outcome}: {path} {detail}")
    print("\n".join(through))
    print("honest:", dict(honest))
    for name in sorted({n for n, _ in forged}):
        print(f"forged {name}:", {o: c for (n, o), c in forged.items() if n == name})
    return honest, through


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
