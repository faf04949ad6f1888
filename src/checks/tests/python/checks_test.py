"""Right answers pass, every mutant and null candidate fails, hostile files never become our failure.

    python src/checks/tests/python/checks_test.py [kind[/every] …] [hostile] [fuzz] [round]

With `plot/4`, only every fourth shape of a right answer is tried.
"""

import logging
import os
import random
import sys
import tempfile
import time
import warnings
import zipfile
import zlib

import right  # sets the paths; must come first

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import evaluate  # noqa: E402
from mutate import audit  # noqa: E402

FAILURES = []


def expect(holds, what):
    if not holds:
        FAILURES.append(what)
        print("WRONG", what, flush=True)


def outcomes(findings):
    return {f["outcome"] for f in findings}


def kind(name):
    """Every right answer of a kind passes; each of its mutants does not."""
    shapes = mutants = 0
    name, _, every = name.partition("/")
    for shape, task, files, *rest in list(right.KINDS[name]())[:: int(every or 1)]:
        shapes += 1
        with tempfile.TemporaryDirectory() as folder:
            candidate = right.candidate(folder, files, *rest)
            names = evaluate.run_reference(task["reference"])
            rows = audit.evaluate(task, names, candidate)["mutants"]
        original = rows[0][1]
        expect(outcomes(original) == {"pass"}, f"{name}, {shape}: {[f for f in original if f['outcome'] != 'pass']}")
        own = [row for row in rows[1:] if not row[0].startswith("null")]
        expect(len(own) >= 8, f"{name}, {shape}: only {len(own)} mutants")
        for mutant, findings in rows[1:]:
            checks = [f for f in findings if f["filter"] == "check"]
            expect(outcomes(checks) != {"pass"}, f"{name}, {shape}: survived: {mutant}")
        mutants += len(rows) - 1
    print(f"{name}: {shapes} right shapes, {mutants} mutants", flush=True)


def hostile():
    """Files made to break readers fail their check, and only that."""
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", (50000).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0") + chunk(b"IDAT", zlib.compress(b"\0" * 10_000_000)) + chunk(b"IEND", b"")
    laughs = '<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha">' + "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9)) + "]><workbook>&j;</workbook>"
    cases = {
        "image": {"bomb": bomb, "pickle": b"\x80\x04cos\nsystem\n(S'touch /tmp/pwned'\ntR.", "empty": b"", "svg": b"<svg/>"},
        "table": {"xlsx": workbook(laughs), "zip": b"PK\x03\x04" + b"\0" * 50, "nul": b"\0" * 1000, "wide": b"," * 200_000, "pickle": b"\x80\x04."},
        "json": {"deep": b"[" * 200_000, "number": b"1" * 100_000, "nan": b"NaN", "surrogate": b'{"total": "\\ud800"}'},
        "audio": {"riff": b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\xff\xff\xff\xff\xff\xff"},
        "pdf": {"cut": b"%PDF-1.7\n1 0 obj\n<<"}, "docx": {"zip": workbook("x"), "span": spanned(100_000_000)}, "html": {"deep": b"<div>" * 100_000},
        "qr": {"bomb": bomb}, "frames": {"bomb": bomb}, "text": {"huge": b"a" * 9_000_000, "binary": bytes(range(128, 256)) * 10},
    }  # fmt: skip
    count = 0
    for name, files in cases.items():
        task = next(iter(right.KINDS[name]()))[1]
        names = evaluate.run_reference(task["reference"])
        for label, data in files.items():
            path = task["checks"][0]["path"]
            fails(task, names, {path: data}, f"hostile {name}: {label}")
            count += 1
    with tempfile.TemporaryDirectory() as folder:
        task = next(iter(right.KINDS["table"]()))[1]
        os.makedirs(f"{folder}/output")
        for make in (lambda p: os.mkfifo(p), lambda p: os.symlink("/etc/passwd", p), lambda p: os.mkdir(p)):
            path = os.path.join(folder, task["checks"][0]["path"])
            make(path)
            findings = evaluate.findings(task, evaluate.run_reference(task["reference"]), right.candidate(folder, {}))
            expect(outcomes(findings) == {"fail"}, f"hostile: no regular file: {findings}")
            os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
            count += 1
    expect(not os.path.exists("/tmp/pwned"), "a pickle was loaded")
    print(f"hostile: {count} files", flush=True)


def chunk(kind, data):
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def workbook(xml):
    import io

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("[Content_Types].xml", xml)
        archive.writestr("xl/workbook.xml", xml)
    return out.getvalue()


def spanned(columns):
    """A document whose table claims so many columns."""
    import io

    import docx

    document, out = docx.Document(), io.BytesIO()
    cell = document.add_table(1, 1).cell(0, 0)
    cell.text, cell._tc.grid_span = "x", columns
    document.save(out)
    return out.getvalue()


def fails(task, names, files, what, claims=()):
    with tempfile.TemporaryDirectory() as folder:
        try:
            findings = evaluate.findings(task, names, right.candidate(folder, files, "", claims))
        except Exception as error:
            return expect(False, f"{what}: became our failure: {type(error).__name__}: {error}")
        expect("pass" not in outcomes(f for f in findings if f["filter"] == "check"), f"{what}: passed")


def fuzz(rounds=6):
    """Random bytes and damaged right answers never pass by chance and never become our failure."""
    noise, count = random.Random(7), 0
    for name, shapes in right.KINDS.items():
        if name in ("number", "values", "denotation", "symbolic"):
            continue
        shape, task, files, *rest = next(iter(shapes(60) if name == "plot" else shapes()))
        names = evaluate.run_reference(task["reference"])
        for i in range(rounds):
            damaged = {path: damage(noise, data, i) for path, data in files.items()}
            claims = [scrambled(noise, claim) for claim in rest[1]] if len(rest) > 1 else []
            with tempfile.TemporaryDirectory() as folder:
                try:
                    evaluate.findings(task, names, right.candidate(folder, damaged, "", claims))
                except Exception as error:
                    expect(False, f"fuzz {name}: became our failure: {error}")
            fails(task, names, {path: noise.randbytes(noise.randint(1, 3000)) for path in files}, f"fuzz {name}: random bytes", claims)
            count += 2
    answers(noise)
    print(f"fuzz: {count} files", flush=True)


def answers(noise):
    """Any text is read without an exception other than Fail."""
    from answers import listed, one_number
    from common import Fail

    for _ in range(3000):
        answer = "".join(noise.choice("Mean:： \n*`-−–0123456789.,%e+()中\u202f") for _ in range(noise.randint(0, 60)))
        for read in (one_number, listed):
            try:
                read("Mean: " + answer, "Mean")
            except Fail:
                pass


def values_match():
    """The table of the suite's evaluator in Rust (`pipelines/eval/src/suites/wikitablequestions/denotation.rs`)."""
    from checks.denotation import matches, normalize, one_to_one, unique, value

    for target, canon, predicted, holds in (
        ("100,000", "100000.0", "100000", True), ("100,000", "100000.0", "100,000", True), ("100,000", "100000.0", "100001", False),
        ("17 years", "17.0", "17", True), ("January 26, 1995", "1995-01-26", "1995-1-26", True),
        ("January 26, 1995", "1995-01-26", "xx-01-26", False), ("1995", None, "1995-xx-xx", True), ("3", None, "2.9999999", False),
        ("2", None, "2.9999999", True), ("0.3333333", None, "0.3333337", True), ("0.33", None, "0.3300011", False),
        ("Italy", "Italy", "ITALY (host)", True), ("1e3", None, "1000", True), ("nan", None, "nan", True), ("-0.0", None, "0", True),
        ("007", None, "7", True), ("-0", None, "+0", True),
    ):  # fmt: skip
        expect(matches(value(target, canon), value(predicted)) == holds, f"denotation: {target} {canon} {predicted}")
    for text, wanted in {
        "Café": "cafe", "‘a’ – “b”": "'a' - \"b\"", "Italy[1][note]†": "italy", "Italy (ITA) (host)": "italy", "(unknown)": "(unknown)",
        "[unknown]": "[unknown]", "[12]": "", "*": "", '"Song" (live)': "song", '"a" and "b"': '"a" and "b"', "U.S.A.": "u.s.a",
        " a \n\t b ": "a b", "C++": "c", "Italy(ITA)": "italy(ita)", "": "", '"': '"', "１２": "12",
    }.items():  # fmt: skip
        expect(normalize(text) == wanted, f"denotation: {text!r} became {normalize(text)!r}")
    expect(normalize("Italy (ITA)[1]", True) == "italy (ita)[1]", "denotation: details are kept")
    targets = unique([value("5 (a)", "5"), value("5 (b)", "x")])
    expect(not one_to_one(targets, unique([value("5"), value("zebra")])), "denotation: one value stands for two")
    expect(one_to_one(targets, unique([value("5"), value("5 †")])), "denotation: the first target gives way")
    noise = random.Random(5)
    for _ in range(2000):
        text = "".join(noise.choice("0123456789-xX.,eE+ ()[]†*\"“ab") for _ in range(noise.randint(0, 20)))
        expect(matches(value(text), value(text)), f"denotation: {text!r} does not match itself")
    print("values_match", flush=True)


def damage(noise, data, i):
    data = bytearray(data)
    for _ in range(1 + len(data) // 200):
        data[noise.randrange(len(data))] = noise.randrange(256)
    return bytes(data[: noise.randint(1, len(data))] if i % 2 else data)


def scrambled(noise, value):
    """A record with some of its values replaced."""
    if noise.random() < 0.02:
        return noise.choice([None, -1, 1e300, "x", [], {}, float("nan"), True])
    if isinstance(value, dict):
        return {k: scrambled(noise, v) for k, v in value.items()}
    return [scrambled(noise, v) for v in value] if isinstance(value, list) else value


def bounds():
    """Time that a candidate's files take is bounded for all of them together, and a machine that stalls is no verdict."""
    import time

    def spin():
        while True:
            pass

    known = {name: getattr(evaluate, name) for name in ("CPU_SECONDS", "ALL_CPU_SECONDS", "WALL_SECONDS", "BUSY_SECONDS")}

    def run(jobs, **limits):
        vars(evaluate).update(known, **limits)
        try:
            return [outcome for outcome, *_ in evaluate.isolated(jobs)]
        except evaluate.OursError:
            return "ours"
        finally:
            vars(evaluate).update(known)

    def passes():
        pass

    expect(run([passes, spin, passes], CPU_SECONDS=1) == ["pass", "fail", "pass"], "bounds: one job costs the others")
    expect(run([spin, spin, spin], CPU_SECONDS=1, ALL_CPU_SECONDS=1) == ["fail"] * 3, "bounds: no common limit")
    expect(run([spin, passes], WALL_SECONDS=2, BUSY_SECONDS=0.05) == ["fail", "fail"], "bounds: a slow file is our failure")
    expect(run([lambda: time.sleep(60)], WALL_SECONDS=1) == "ours", "bounds: a stalled machine is a verdict")
    print("bounds: 4 cases", flush=True)


def hostile_json():
    """The candidate's JSON is parsed in the child; what it holds never breaks the result."""
    import json

    import checker

    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(f"{folder}/candidate/output")
        for name, text in {"answer.txt": "x", "claims.json": "{}", "runs.json": "[" * 100_000, "output/sum.json": '{"total": "\\udc80"}'}.items():
            with open(f"{folder}/candidate/{name}", "w", encoding="utf-8") as file:
                file.write(text)
        loaded = checker.load(f"{folder}/candidate")
        expect(not {"claims", "runs", "predictions"} & set(vars(loaded)), "hostile JSON: parsed before the child")
        expect((loaded.claims, loaded.runs, loaded.predictions) == ([], None, None), "hostile JSON: another shape is believed")
        task = {"checks": [{"check": "json", "path": "output/sum.json", "expected": "e", "rtol": 0}], "reference": "e = {'total': 3}", "query": "", "outputs": []}
        with open(f"{folder}/task.json", "w", encoding="utf-8") as file:
            json.dump(task, file)
        before = os.getcwd()
        try:
            checker.main(folder)
        finally:
            os.chdir(before)
        with open(f"{folder}/output/result.json", encoding="utf-8") as file:
            result = file.read()
        expect("\\ud" not in result.lower(), f"hostile JSON: a lone surrogate in the result: {result}")
        expect(outcomes(json.loads(result)["findings"]) == {"fail"}, f"hostile JSON: {result}")
    print("hostile JSON: 2 files", flush=True)


def round_axes(rows=3, columns=5):
    """Each of many round axes has a clip path of its own; what it holds is drawn again."""
    import matplotlib.pyplot as plt
    from chart.picture import difference
    from chart.redraw import Drawing
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        claims = right.recorder(folder)
        figure, places = plt.subplots(rows, columns, subplot_kw={"polar": True}, figsize=(15, 9))
        for n, place in enumerate(places.flat):
            place.plot([0, 1, 2 + n / 10, 4, 0], [n + 1, 2, 3, 4, n + 1])
        path = os.path.join(folder, "round.png")
        figure.savefig(path)
        plt.close(figure)
        for claim in claims:
            gap = difference(Image.open(path), Drawing(claim["figure"]).picture())
            expect(gap < 6, f"round axes: redrawn they differ by {gap:.0f}")
        expect(claims, "round axes: no record")


RADAR = [0.2, 0.9, 0.6, 0.7]


def radar():
    """A polygon counts where polygon, scale and title are in sight."""
    import matplotlib.pyplot as plt

    ways = {
        "honest": lambda place, line: None,
        "transparent": lambda place, line: line.set_alpha(0),
        "white": lambda place, line: line.set_color("white"),
        "axes off": lambda place, line: place.axis("off"),
        "covered": lambda place, line: place.figure.add_artist(plt.Rectangle((0, 0), 1, 1, color="white")),
        "without its scale": lambda place, line: plt.setp(place.get_yticklabels(), alpha=0),
        "another scale": lambda place, line: place.set_yticks([0.2, 0.4, 0.8], ["0.2", "0.5", "0.8"]),
        "behind another": lambda place, line: place.plot(line.get_xdata(), [*RADAR, RADAR[0]], linewidth=9, zorder=9),
    }
    for name, way in ways.items():
        with tempfile.TemporaryDirectory() as folder:
            shown = drawn_radar(plt, way, folder)
            found = [np_round(r) for _, _, r in shown.polar()]
            expect((found == [[*RADAR, RADAR[0]]]) == (name == "honest"), f"radar, {name}: {found} {shown.why}")
            expect(shown.titled("Profile") == (name != "covered"), f"radar, {name}: the title")
    print(f"radar: {len(ways)} pictures", flush=True)


def drawn_radar(plt, way, folder):
    import shown

    claims = right.recorder(folder)
    figure, place = plt.subplots(subplot_kw={"polar": True}, figsize=(5, 5))
    (line,) = place.plot([0, 1.57, 3.14, 4.71, 0], [*RADAR, RADAR[0]])
    place.set_ylim(0, 1)
    place.set_title("Profile")
    way(place, line)
    figure.savefig(os.path.join(folder, "radar.png"))
    plt.close(figure)
    return shown.charts(right.candidate(folder, {}, "", claims), "radar.png")


def np_round(values):
    return [round(float(value), 6) for value in values]


def videos():
    """An MP4 is read; a playlist of FFmpeg's, another container under its name and QuickTime's are not."""
    import cv2
    import numpy as np
    from common import Candidate, Fail
    from judge import Work
    from soundness import check

    def film(path, code):
        writer = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*code), 8, (64, 48))
        for level in range(0, 240, 40):
            writer.write(np.full((48, 64, 3), level, np.uint8))
        writer.release()

    with tempfile.TemporaryDirectory() as folder:
        film(f"{folder}/right.mp4", "mp4v")
        film(f"{folder}/film.avi", "MJPG")
        film(f"{folder}/film.mov", "mp4v")
        os.rename(f"{folder}/film.avi", f"{folder}/avi.mp4")
        os.rename(f"{folder}/film.mov", f"{folder}/mov.mp4")
        with open(f"{folder}/list.mp4", "w") as file:
            file.write("ffconcat version 1.0\nfile right.mp4\n")
        candidate = Candidate(folder)
        rate, frames = Work(candidate).video("right.mp4")
        found = [round(frame.mean(), -1) for frame in frames]
        expect((rate, found) == (8, [0, 40, 80, 120, 160, 200]), f"videos: {rate} {found}")
        check("right.mp4", candidate)
        for name in ("list.mp4", "avi.mp4", "mov.mp4"):
            for reader in (Work(candidate).video, lambda path: check(path, candidate)):
                try:
                    reader(name)
                    expect(False, f"videos: {name} is taken for an MP4")
                except Fail:
                    pass
    print("videos: 4 files", flush=True)


def no_rows():
    """Where nothing is expected, a table without rows is right under any header, and one with rows is not."""
    path = "output/r.csv"
    task = right.task("table", "expected = []\n", [path], path=path)
    names = evaluate.run_reference(task["reference"])
    with tempfile.TemporaryDirectory() as folder:
        findings = evaluate.findings(task, names, right.candidate(folder, {path: b"city,mean\n"}))
        expect(outcomes(findings) == {"pass"}, f"no rows: {findings}")
    for name, data in {"a row": b"city,mean\nOslo,3\n", "nothing": b"", "a header twice": b"city,city\n"}.items():
        fails(task, names, {path: data}, f"no rows: {name}")


def codes():
    """A text that begins with zeros is not the number without them."""
    path = "output/r.csv"
    task = right.task("table", "expected = [{'id': '007'}, {'id': '7'}, {'id': 'x'}]\n", [path], path=path, rows="any")
    names = evaluate.run_reference(task["reference"])
    with tempfile.TemporaryDirectory() as folder:
        findings = evaluate.findings(task, names, right.candidate(folder, {path: b"id\nx\n7\n007\n"}))
        expect(outcomes(findings) == {"pass"}, f"codes: {findings}")
    fails(task, names, {path: b"id\n7\n7\nx\n"}, "codes: zeros lost")


def violations():
    """Results that are right but for one requirement fail."""
    import violations as made

    count = 0
    for cases in made.CASES:
        for name, task, files, answer, wrong, *runs in cases():
            names = evaluate.run_reference(task["reference"])
            for what, (changed, text) in {"right": (files, answer), **wrong}.items():
                with tempfile.TemporaryDirectory() as folder:
                    candidate = right.candidate(folder, changed, text)
                    candidate.runs = runs[0] if runs else None
                    findings = evaluate.findings(task, names, candidate)
                expect((outcomes(findings) == {"pass"}) == (what == "right"), f"violations, {name}: {what}: {findings}")
                count += 1
    print(f"violations: {count + bars()} results", flush=True)


def functions():
    """Functions are tested by what they return; programs that attack the comparison fail."""
    import foreign_inputs
    import function_cases
    import run_calls
    from common import Fail, Unfit

    path, count = "output/solution.py", 0
    for name, reference, good, wrong in function_cases.CASES:
        task = right.task("calls", reference, [path], path=path)
        names = evaluate.run_reference(reference)
        given = foreign_inputs.collect(task, names)["calls"]
        expect("holds" not in str(given) and "shown" not in str(given), f"functions, {name}: the sandbox is given what is expected")
        for what, source in {**good, **wrong}.items():
            with tempfile.TemporaryDirectory() as folder:
                candidate = right.candidate(os.path.join(folder, "candidate"), {path: source.encode()})
                before = os.getcwd()
                os.chdir(folder)
                try:
                    candidate.calls = {path: [run_calls.run(path, test) for test in given[path]]}
                finally:
                    os.chdir(before)
                findings = [f for f in evaluate.findings(task, names, candidate) if f["filter"] == "check"]
                made = len(list(audit.mutants(task, names, candidate)))
            expect((outcomes(findings) == {"pass"}) == (what in good), f"functions, {name}: {what}: {findings}")
            expect(made >= 10, f"functions, {name}: only {made} mutants")
            count += 1
    for test, reason in function_cases.UNFIT.items():
        try:
            evaluate.run_reference(f"expected = ref.assertions('', [{test!r}])")
            expect(False, f"functions: `{test}` is taken")
        except Unfit as error:
            expect(reason in str(error), f"functions: `{test}`: {error}")
    hostile = (None, [], {}, {path: []}, {path: [1]}, {path: [{"results": [{"value": "__import__('os')"}]}]}, {path: [{"results": [{"value": "("}]}]}, {path: [{"results": "8"}]}, {path: [{"results": [{"value": "8"}, {"value": "8"}]}]})  # fmt: skip
    task = right.task("calls", "expected = ref.assertions('', ['assert f(4) == 8'])", [path], path=path)
    names = evaluate.run_reference(task["reference"])
    for calls in (*hostile, {path: [{"results": [{"value": "8"}]}]}):
        with tempfile.TemporaryDirectory() as folder:
            candidate = right.candidate(folder, {path: b"f = 1"})
            candidate.calls = calls
            try:
                evaluate.run_check(task["checks"][0], names, candidate)
                expect(calls not in hostile, f"functions: {calls} passes")
            except Fail as error:
                expect(calls in hostile, f"functions: {calls}: {error}")
    print(f"functions: {count} programs", flush=True)


def formula_forms():
    """Answers in other forms are equal; similar, hedged and hostile ones are not."""
    import formula_cases
    from checks.symbolic import equal_texts
    from formulas import UnreadableError

    for cases, wanted in ((formula_cases.EQUAL, True), (formula_cases.DIFFERENT, False)):
        for expected, found in cases:
            begun = time.process_time()
            try:
                holds = equal_texts(found, expected)
            except UnreadableError:
                holds = False
            expect(holds == wanted, f"formulas: {found[:80]} for {expected}")
            seconds = time.process_time() - begun
            expect(seconds < 20, f"formulas: {found[:80]} takes {seconds:.0f} s")
    print(f"formulas: {len(formula_cases.EQUAL) + len(formula_cases.DIFFERENT)} answers", flush=True)


def bars():
    """Which way bars stand, and in which order, is what the picture shows."""
    import matplotlib.pyplot as plt
    import violations as made
    from common import Fail, Unproven

    task = right.task("plot", "expected = [{'name': None, 'x': ['b', 'c', 'a'], 'y': [9, 5, 2]}]", path="output/b.png", kind="bar", ordered=True, orientation="horizontal")
    good, also, wrong = made.bars()
    for what, code in {"right": good, **also, **wrong}.items():
        with tempfile.TemporaryDirectory() as folder:
            claims, (figure, ax) = right.recorder(folder), plt.subplots()
            exec(code, {"ax": ax})
            os.mkdir(f"{folder}/output")
            figure.savefig(f"{folder}/output/b.png")
            plt.close(figure)
            for claim in claims:
                claim["path"] = "output/b.png"
            try:
                evaluate.run_check(task["checks"][0], evaluate.run_reference(task["reference"]), right.candidate(folder, {}, "", claims))
                passed = True
            except (Fail, Unproven):
                passed = False
            expect(passed == (what not in wrong), f"bars: {what}")
    return 1 + len(also) + len(wrong)


def points():
    """Points whose x differ by rounding only stand in any order; their y must still be the expected ones."""
    from common import Fail
    from plots import compare

    expected = {"name": None, "x": [0.3, 0.3, 1.0], "y": [1, 2, 3]}
    for what, at, y, holds in (
        ("as they are", [0.3, 0.3, 1.0], [1, 2, 3], True), ("rounded", [0.1 + 0.2, 0.3, 1.0], [1, 2, 3], True),
        ("rounded, in another order", [1.0, 0.3, 0.1 + 0.2], [3, 2, 1], True), ("another y", [0.1 + 0.2, 0.3, 1.0], [1, 1, 3], False),
        ("y of other points", [0.3, 0.3, 1.0], [1, 3, 2], False), ("another x", [0.3, 0.4, 1.0], [1, 2, 3], False),
    ):  # fmt: skip
        try:
            compare._same_points({"rtol": 1e-3}, expected, {"at": at, "y": y}, None)
            passed = True
        except Fail:
            passed = False
        expect(passed == holds, f"points: {what}")


def main(wanted):
    others = {"hostile": hostile, "fuzz": fuzz, "bounds": bounds, "hostile-json": hostile_json, "round": round_axes, "radar": radar, "videos": videos, "no-rows": no_rows, "codes": codes, "violations": violations, "values-match": values_match, "points": points, "functions": functions, "formulas": formula_forms}
    for name in wanted or [*right.KINDS, *others]:
        others.get(name, lambda name=name: kind(name))()
    print(f"{len(FAILURES)} wrong")
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
