"""Scores answers of MINT that must be executed.

`code` and `theoremqa` are the authors' scores. The others are the parts of the strict score of programs: `record` lists the
calls that the tests make, with the reference solution; `call` makes them with answers, in a session that holds no
expected value; `replay` runs the tests on what the answers returned, in a session that holds no answer.
"""
import logging, random, types

# As in the authors' `check_correctness`.
SECONDS = 10
SEED = 7


def guard():
    """The authors' `reliability_guard`."""
    import builtins, faulthandler, shutil, subprocess

    faulthandler.disable()
    builtins.exit = builtins.quit = builtins.help = None
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("kill system putenv remove removedirs rmdir fchdir setuid fork forkpty killpg rename renames truncate "
                 "replace unlink fchmod fchown chmod chown chroot lchflags lchmod lchown getcwd chdir").split():
        setattr(os, name, None)
    shutil.rmtree = shutil.move = shutil.chown = None
    subprocess.Popen = None
    for name in ("ipdb", "joblib", "resource", "psutil", "tkinter"):
        sys.modules[name] = None


def timed(function):
    """As `isolated`, with the authors' time limit."""
    def until_late():
        with limited(SECONDS):
            return function()

    return isolated(until_late, SECONDS + 1)


def code(item):
    """The authors' score: the program and the tests in one namespace."""
    def passes(answer):
        guard()
        exec(answer + "\n" + item["tests"], {})
        return True

    return [timed(lambda: passes(answer)) is True for answer in item["answers"]]


def theoremqa(item):
    """The authors' score, by their own module. It evaluates the answer in the scope of the task."""
    for name in ("mint", "mint.tasks", "mint.utils"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    sys.modules["mint.tasks"].__path__ = ["mint/tasks"]
    sys.modules["mint.utils"].load_file = lambda path: ""
    from mint.tasks.reasoning import TheoremqaTask

    logging.disable(logging.CRITICAL)
    task = TheoremqaTask(**item["row"])
    return [timed(lambda: task.success(answer)) is True for answer in item["answers"]]


def run_tests(item, functions):
    random.seed(SEED)
    exec(item["tests"], dict(functions))


def record(item):
    calls = []
    space = {}
    exec(item["reference"], space)

    def recorded(name):
        def call(*args, **kwargs):
            calls.append([name, encode(list(args)), encode(kwargs)])
            return function(*args, **kwargs)

        function = space[name]
        return call

    run_tests(item, {name: recorded(name) for name in item["functions"]})
    return calls


def call(item):
    def results(answer):
        space = {}
        exec(answer, space)
        found = []
        for name, args, kwargs in item["calls"]:
            try:
                found.append(encode(space[name](*decode(args), **decode(kwargs))))
            except Exception as error:
                found.append(["!", type(error).__name__])
        return found

    return [timed(lambda: results(answer)) for answer in item["answers"]]


def replay(item):
    def passes(results):
        calls = iter(zip(item["calls"], results, strict=True))

        def replayed(name):
            def call(*args, **kwargs):
                expected, result = next(calls)
                assert [name, encode(list(args)), encode(kwargs)] == expected, "the tests make other calls"
                assert result[0] != "!", result
                return decode(result)

            return call

        run_tests(item, {name: replayed(name) for name in item["functions"]})
        return next(calls, None) is None

    return [results is not None and timed(lambda: passes(results)) is True for results in item["results"]]


with open("data/item.json", encoding="utf-8") as file:
    item = json.load(file)
kinds = {"code": code, "theoremqa": theoremqa, "record": record, "call": call, "replay": replay}
verdicts = kinds[item["kind"]](item)
with open("output/verdicts.json", "w", encoding="utf-8") as file:
    json.dump(verdicts, file)
