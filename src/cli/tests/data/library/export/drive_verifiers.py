"""Loads the exported package with the real verifiers and, without a model, scores the expert's cells and no work at all in
each task. Prints the two rewards of each as JSON.

    drive_verifiers.py HARBOR INTERPRETER REWARDS

HARBOR is the same tasks as folders of Harbor, which hold the expert's cells and answer.
"""

import asyncio
import json
import sys
from pathlib import Path

import verifiers.v1 as vf
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.mcp.server import _call_state
from verifiers.v1.state import state_cls
from verifiers.v1.trace import AgentInfo, TraceTask


def started(task):
    """A trace as a rollout begins it."""
    described = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    return vf.Trace(task=described, state=state_cls(type(task))(), agent=AgentInfo(config=AgentConfig()))


async def reward(task, cells, answer):
    """What the task's own scoring gives these cells, run by its own tool, and this answer."""
    trace = started(task)
    await task.setup(trace, None)
    (tool,) = task.toolsets(task.config)
    token = _call_state.set(trace.state)
    for cell in cells:
        text = await tool.execute_python(cell)
        assert isinstance(text, str), text
    _call_state.reset(token)
    trace.root_reply = answer
    await task.score(trace)
    print(task.data.name, trace.rewards, trace.metrics, trace.info, file=sys.stderr)
    return trace.reward


async def main():
    harbor, interpreter, rewards = sys.argv[1:]
    config = {"id": "pybench-library", "task": {"interpreter": interpreter, "scorer": rewards}}
    env = vf.load_environment(vf.resolve_env_config({"taskset": config}))
    results = {}
    for task in env.taskset:
        solution = Path(harbor, task.data.name, "solution")
        cells = [path.read_text() for path in sorted(solution.glob("cells/*.py"))]
        expert = await reward(task, cells, "Finished:\n" + (solution / "answer.txt").read_text())
        results[task.data.name] = [expert, await reward(task, [], "")]
    print(json.dumps(results))


asyncio.run(main())
