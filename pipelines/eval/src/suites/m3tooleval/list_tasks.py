"""Lists the tasks of M3ToolEval, and the tools of each module without its tasks. Runs in the sandbox.

The modules compute the expected answers while they are imported. Of their package only `base` is replaced, by classes that
record the tasks.
"""
import ast, importlib, json, os, sys, types
from collections import namedtuple

ROOT = "m3/tasks"
MODULES = ["message_decoder", "dna_sequencer", "trade_calculator", "travel_itinerary_planning", "web_browsing"]
# What a module reads for its tasks alone.
FOR_TASKS = {"METADATA"}
HEAD = '''"""The tools of this task."""
from collections import namedtuple

ToolType = namedtuple("ToolType", ["name", "description", "function", "fn_signature"])
'''
TAIL = '''
_tools = create_tools() if "create_tools" in globals() else CUR_TOOLS
__all__ = list(_tools)


def __getattr__(name):
    if name in _tools:
        return _tools[name].function
    raise AttributeError(name)
'''


class Task:
    def __init__(self, name, tools, instruction, expected_output, is_single_tool_task=True):
        tools = tools() if callable(tools) else tools
        self.row = {
            "name": name,
            "tools": [[tool.fn_signature, tool.description] for tool in tools.values()],
            "instruction": instruction,
            "expected": repr(expected_output),
            "expected_text": str(expected_output),
        }


def package(name, folder):
    module = types.ModuleType(name)
    module.__path__ = [folder]
    sys.modules[name] = module
    return module


def tools_source(path):
    """The statements above the tasks."""
    with open(path, encoding="utf-8") as file:
        source = file.read()
    lines, kept = source.splitlines(), [HEAD]
    for node in ast.parse(source).body:
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        if isinstance(node, ast.Assign) and "TASKS" in names:
            break
        relative = isinstance(node, ast.ImportFrom) and node.level
        if not relative and not names & FOR_TASKS:
            kept.append("\n".join(lines[node.lineno - 1:node.end_lineno]))
    return "\n\n".join(kept) + "\n" + TAIL


package("m3", "m3")
package("m3.tasks", ROOT)
package("m3.tasks.impl", ROOT + "/impl")
base = types.ModuleType("m3.tasks.base")
base.Task, base.register_task_iterator = Task, lambda tasks, length: None
base.ToolType = namedtuple("ToolType", ["name", "description", "function", "fn_signature"])
sys.modules["m3.tasks.base"] = base
sys.path.insert(0, os.getcwd())

modules = []
for name in MODULES:
    module = importlib.import_module("m3.tasks.impl." + name)
    source = tools_source(module.__file__)
    # Fails here rather than in an agent's session.
    tools = types.ModuleType("tools")
    tools.__file__ = module.__file__
    exec(compile(source, "tools.py", "exec"), tools.__dict__)
    assert all(getattr(tools, name) is tool.function for name, tool in tools._tools.items())
    modules.append({"name": name, "tools": source, "tasks": [task.row for task in module.TASKS]})
with open("output/tasks.json", "w", encoding="utf-8") as file:
    json.dump(modules, file)
