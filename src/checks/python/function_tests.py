"""Tests of functions: which calls are made in the sandbox of the program, and what must hold of their results.

A test is {"setup": statements before the calls, "calls": [expressions], "imports": statements, "holds": an expression in
which `_0`, `_1`, … are the results, "shown": the test for readers}. What is expected stands in `holds` and `shown` only,
which the program's sandbox is not given.
"""

import ast
import builtins

from common import Unfit

MAX_TESTS = 20


def of_assertions(setup, assertions):
    """Tests made of Python's `assert` statements. `setup` is run before each of them."""
    try:
        statements = ast.parse(setup).body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise Unfit(f"the setup of the tests is no Python: {error}") from None
    imports = [node for node in statements if isinstance(node, (ast.Import, ast.ImportFrom))]
    source = "\n".join(ast.unparse(node) for node in imports)
    try:
        exec(source, {})
    except Exception as error:
        raise Unfit(f"the imports of the tests fail: {type(error).__name__}: {error}") from None
    known = {alias.asname or alias.name.split(".")[0] for node in imports for alias in node.names}
    return [{"setup": setup, "imports": source, **_split(text, known)} for text in assertions[:MAX_TESTS]]


def of_function(name, inputs, outputs):
    """Tests that call one function, or the method of this name of a class `Solution`, with lists of arguments."""
    setup = f"if {name!r} not in globals() and 'Solution' in globals():\n    {name} = Solution().{name}\n"
    tests = []
    for arguments, expected in list(zip(inputs, outputs))[:MAX_TESTS]:
        call = f"{name}({', '.join(map(repr, arguments))})"
        tests.append({"setup": setup, "imports": "", "calls": [call], "holds": f"matches(_0, {expected!r})", "shown": f"{call} gives {expected!r}"})
    return tests


def matches(found, expected):
    """Whether a result is the expected one, as JSON writes both. APPS puts some results into a list of one item."""
    found = _as_json(found)
    return found == expected or (isinstance(expected, list) and len(expected) == 1 and found == expected[0])


def _as_json(value):
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    return {key: _as_json(item) for key, item in value.items()} if isinstance(value, dict) else value


def _split(text, known):
    """The calls of an assertion, and the assertion about their results."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise Unfit(f"the test `{text[:80]}` is no Python: {error}") from None
    if len(body) != 1 or not isinstance(body[0], ast.Assert):
        raise Unfit(f"the test `{text[:80]}` is no single `assert` statement")
    test = body[0].test
    bound = {node.id for node in ast.walk(test) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    split = Splitter(known, bound | {node.arg for node in ast.walk(test) if isinstance(node, ast.arg)})
    holds = ast.unparse(split.visit(test))
    if not split.calls:
        raise Unfit(f"the test `{text[:80]}` uses nothing of the program")
    return {"calls": split.calls, "holds": holds, "shown": text.strip()}


class Splitter(ast.NodeTransformer):
    """Replaces each outermost expression that needs the program by the name of its result."""

    def __init__(self, known, bound):
        self.known, self.bound, self.calls = known, bound, []

    def visit_Call(self, node):
        if any(self.is_of_program(part) for part in ast.walk(node.func)):
            return self.result(node)
        return self.generic_visit(node)

    def visit_Name(self, node):
        return self.result(node) if self.is_of_program(node) else node

    def is_of_program(self, node):
        if not isinstance(node, ast.Name) or isinstance(node.ctx, ast.Store):
            return False
        return node.id not in self.known and node.id not in self.bound and not hasattr(builtins, node.id)

    def result(self, node):
        source = ast.unparse(node)
        if any(isinstance(part, ast.Name) and part.id in self.bound for part in ast.walk(node)):
            raise Unfit(f"`{source[:80]}` uses a variable of a comprehension or a lambda, which is not supported")
        self.calls.append(source)
        return ast.Name(f"_{len(self.calls) - 1}", ast.Load())
