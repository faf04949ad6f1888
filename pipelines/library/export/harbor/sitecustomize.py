"""Notes what charts and word clouds show while they are saved: a line of JSON each, in .charts.jsonl of the
workspace. A note is only a claim: the checker draws it again and believes it where the picture agrees."""

import fcntl
import json
import os
import sys

from pybench_record.hooks import AfterImport

ROOT = os.environ.get("PYBENCH_APP", "/app")


def note(path, figure):
    """One line, whole, whoever else writes."""
    line = json.dumps({"path": path, "figure": figure}).encode() + b"\n"
    with open(os.path.join(ROOT, ".charts.jsonl"), "ab", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line)


def record_charts(_module):
    from pybench_record import charts

    charts.install(note, ROOT)


def record_clouds(module):
    from pybench_record import clouds

    clouds.install(module, note)


sys.meta_path.insert(0, AfterImport({"matplotlib.figure": record_charts, "wordcloud.wordcloud": record_clouds}))
