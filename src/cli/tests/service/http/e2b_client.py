"""E2B's own client against the service, unmodified. Arguments: the service's URL and its token.

Each function is a case; all of them run, and the first that fails ends the program with its trace.
"""

import asyncio
import io
import sys
import time

from e2b import AuthenticationException, NotFoundException, RateLimitException, SandboxException, TimeoutException
from e2b_code_interpreter import AsyncSandbox, Sandbox

URL, TOKEN = sys.argv[1:3]
POINTED = {"api_url": URL, "sandbox_url": URL, "api_key": TOKEN}


def create(**more):
    return Sandbox.create(**POINTED, **more)


def sandboxes_are_made_found_and_killed():
    box = create(timeout=120, metadata={"user": "a b&c"})
    assert box.is_running()
    info = box.get_info()
    assert info.sandbox_id == box.sandbox_id and info.metadata == {"user": "a b&c"}
    assert 100 < (info.end_at - info.started_at).total_seconds() <= 121
    found = Sandbox.list(query=query({"user": "a b&c"}), **POINTED).next_items()
    assert [one.sandbox_id for one in found] == [box.sandbox_id]
    assert Sandbox.list(query=query({"user": "d"}), **POINTED).next_items() == []
    again = Sandbox.connect(box.sandbox_id, **POINTED)
    again.run_code("x = 7")
    assert box.run_code("x").text == "7"
    assert box.kill() and not box.is_running() and not box.kill()
    expect(NotFoundException, lambda: Sandbox.connect(box.sandbox_id, **POINTED))
    try:
        box.run_code("1")
    except (TimeoutException, SandboxException):
        pass
    else:
        raise AssertionError("a killed sandbox answered")


def query(metadata):
    from e2b import SandboxQuery

    return SandboxQuery(metadata=metadata)


def expect(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was expected")


def a_wrong_key_is_refused():
    expect(AuthenticationException, lambda: Sandbox.create(**{**POINTED, "api_key": "e2b_" + "0" * 40}))


def output_is_streamed():
    with create() as box:
        seen = []

        def see(message):
            seen.append(message.line)
            box.files.write("seen", "")

        code = """import os, sys, time
print('one', flush=True)
while not os.path.exists('seen'):
    time.sleep(0.01)
print('two')
print('err', file=sys.stderr)
'it'"""
        result = box.run_code(
            code,
            on_stdout=see,
            on_stderr=lambda message: seen.append(message.line),
            on_result=lambda one: seen.append(one.text),
            timeout=60,
        )
        # It has come to its end, so that its first line was here before.
        assert result.error is None, result.error
        assert "".join(result.logs.stdout) == "one\ntwo\n", result
        assert "".join(result.logs.stderr) == "err\n", result
        assert result.text == "it" and result.execution_count == 1
        assert "".join(seen) == "one\ntwo\nerr\nit", seen
        # One message as a rule; but a busy machine may put any time between the text and its newline.
        assert "".join(box.run_code("print('é中🎉' * 3)").logs.stdout) == "é中🎉" * 3 + "\n"


def results_have_their_formats():
    with create() as box:
        code = "import pandas as pd\nfrom IPython.display import display, Markdown, JSON\ndisplay(Markdown('*m*'))\ndisplay(JSON({'a': 1}))\npd.DataFrame({'x': [1, 2]})"
        result = box.run_code(code)
        markdown, structure, frame = result.results
        assert markdown.markdown == "*m*" and not markdown.is_main_result
        assert structure.json == {"a": 1}
        assert frame.is_main_result and "<table" in frame.html and "x" in frame.text
        error = box.run_code("def f():\n    return 1 / 0\nf()").error
        assert (error.name, error.value) == ("ZeroDivisionError", "division by zero")
        assert "line" in error.traceback and "f()" in error.traceback
        assert box.run_code("input()").error.name == "StdinNotImplementedError"


def charts_have_their_data():
    from e2b_code_interpreter import charts

    plots = {
        "plt.plot([1, 2, 3], [4, 5, 6], label='a'); plt.xlabel('Time (s)'); plt.title('T')": charts.LineChart,
        "plt.scatter([1, 2], [3, 4], label='d')": charts.ScatterChart,
        "plt.bar(['A', 'B'], [3, 5])": charts.BarChart,
        "plt.barh(['A', 'B'], [3, 5])": charts.BarChart,
        "plt.pie([1, 3], labels=['p', 'q'])": charts.PieChart,
        "plt.boxplot([[1, 2, 3, 4, 20], [5, 6, 7, 8]], tick_labels=['u', 'v'])": charts.BoxAndWhiskerChart,
        "plt.boxplot([[1, 2, 3, 4, 20]], patch_artist=True, orientation='horizontal')": charts.BoxAndWhiskerChart,
        "f, (a, b) = plt.subplots(1, 2); a.plot([1, 2]); b.bar(['A'], [1])": charts.SuperChart,
    }
    with create() as box:
        box.run_code("import matplotlib.pyplot as plt")
        found = []
        for code, kind in plots.items():
            result = box.run_code(code + "\nplt.show()")
            assert result.error is None, result.error.traceback
            [pictured] = [one for one in result.results if one.png]
            assert type(pictured.chart) is kind, (code, pictured.chart)
            found.append(pictured.chart)
        line, scatter, bar, lying, pie, boxes, side, several = found
        assert line.title == "T" and line.x_unit == "s" and line.elements[0].label == "a"
        assert line.elements[0].points == [(1, 4), (2, 5), (3, 6)]
        assert scatter.elements[0].points == [(1, 3), (2, 4)]
        for chart in (bar, lying):
            assert [(one.label, one.value) for one in chart.elements] == [("A", 3), ("B", 5)]
        assert [(one.label, round(one.angle)) for one in pie.elements] == [("p", 90), ("q", 270)]
        first = boxes.elements[0]
        assert (first.label, first.median, first.min, first.max, first.outliers) == ("u", 3, 1, 4, [20]), vars(first)
        assert (side.elements[0].first_quartile, side.elements[0].third_quartile) == (2, 4)
        assert [type(one) for one in several.elements] == [charts.LineChart, charts.BarChart]


def contexts_share_files_and_not_variables():
    with create() as box:
        box.run_code("x = 1\nopen('shared.txt', 'w').write('from the default')")
        box.files.make_dir("sub")
        context = box.create_code_context(cwd="/home/user/sub")
        assert context.language == "python" and context.cwd == "/workspace/sub"
        assert box.run_code("import os; os.getcwd()", context=context).text == "/workspace/sub"
        assert box.run_code("x", context=context).error.name == "NameError"
        assert box.run_code("open('../shared.txt').read()", context=context).text == "from the default"
        box.run_code("y = 2", context=context)
        ids = [one.id for one in box.list_code_contexts()]
        assert len(ids) == 2 and ids[1] == context.id
        box.restart_code_context(context)
        assert box.run_code("y", context=context).error.name == "NameError"
        box.remove_code_context(context)
        expect(NotFoundException, lambda: box.run_code("1", context=context))
        expect(SandboxException, lambda: box.run_code("1", language="r"))
        expect(SandboxException, lambda: box.create_code_context(cwd="/nowhere"))
        assert box.run_code("x").text == "1"


def variables_are_set_for_a_cell_and_for_all():
    with create(envs={"ALL": "all 'q' é"}) as box:
        code = "import os; (os.environ.get('ALL'), os.environ.get('ONE'))"
        assert box.run_code(code, envs={"ONE": 'o"1'}).text == """("all 'q' é", 'o"1')"""
        assert box.run_code(code, envs={"ALL": "other"}).text == "('other', None)"
        assert box.run_code(code).text == '("all \'q\' é", None)'


def files_go_in_and_come_out():
    with create() as box:
        written = box.files.write("/home/user/data/a b.txt", "héllo")
        assert (written.name, written.path) == ("a b.txt", "/workspace/data/a b.txt")
        assert box.files.read("data/a b.txt") == "héllo"
        assert box.run_code("open('data/a b.txt').read()").text == "héllo"
        blob = bytes(range(256)) * 5000
        box.files.write("blob.bin", io.BytesIO(blob))
        assert bytes(box.files.read("/workspace/blob.bin", format="bytes")) == blob
        assert b"".join(box.files.read("blob.bin", format="stream")) == blob
        many = box.files.write_files([{"path": f"many/{n}", "data": str(n)} for n in range(3)])
        assert [one.path for one in many] == [f"/workspace/many/{n}" for n in range(3)]
        box.run_code("import os; open('made.csv', 'w').write('x\\n1\\n'); os.symlink('/etc/passwd', 'link')")
        names = {one.name: one.type for one in box.files.list("/home/user")}
        assert names["made.csv"].value == "file" and names["many"].value == "dir", names
        assert box.files.get_info("link").symlink_target == "/etc/passwd"
        assert box.files.read("made.csv") == "x\n1\n"
        assert box.files.exists("made.csv") and not box.files.exists("none")
        assert box.files.rename("made.csv", "moved.csv").name == "moved.csv"
        box.files.remove("moved.csv")
        assert not box.files.exists("moved.csv")
        assert box.files.make_dir("deep/er") and not box.files.make_dir("deep/er")
        # The session may use what the client wrote as its own.
        assert box.run_code("open('many/0', 'a').write('!'); os.remove('blob.bin'); open('many/0').read()").text == "0!"
        for path in ("link", "/etc/passwd", "../../etc/passwd", "none"):
            expect(Exception, lambda: box.files.read(path))


def time_outs_hold():
    with create() as box:
        expect(TimeoutException, lambda: box.run_code("x = 1\nwhile True: pass", timeout=5))
        # The cell was interrupted, not left running: the next one comes through, with the variables.
        assert box.run_code("x", timeout=120).text == "1"
        box.set_timeout(1)
        for _ in range(100):
            if not box.is_running():
                break
            time.sleep(0.1)
        assert not box.is_running()


def it_works_without_blocking_too():
    async def use():
        box = await AsyncSandbox.create(**POINTED)
        lines = []
        result = await box.run_code("print('a')\n1 + 1", on_stdout=lambda message: lines.append(message.line))
        assert result.text == "2" and "".join(lines) == "a\n"
        await box.files.write("f", "t")
        assert await box.files.read("f") == "t"
        await box.kill()

    asyncio.run(use())


def sandboxes_are_bounded():
    boxes = []
    try:
        expect(RateLimitException, lambda: boxes.extend(create(retries=0) for _ in range(100)))
        assert len(boxes) == 6, len(boxes)
    finally:
        for box in boxes:
            box.kill()


for name, case in list(globals().items()):
    if callable(case) and getattr(case, "__module__", "") == "__main__" and name not in ("create", "query", "expect"):
        case()
        print("ok", name, flush=True)
