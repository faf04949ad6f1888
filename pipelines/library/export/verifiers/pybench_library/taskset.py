"""The tasks, and how a rollout is scored."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.harnesses.null import NullHarness

from pybench_library import services
from pybench_library.tool import LibraryState, PythonToolset

HERE = Path(__file__).parent


class LibraryHarness(NullHarness):
    """A chat loop with the task's own tool and nothing else: the default of this taskset."""


class LibraryTaskConfig(vf.TaskConfig):
    """Where the services are."""

    interpreter: str = "http://127.0.0.1:8081"
    """`pybench interpreter serve`."""
    scorer: str = "http://127.0.0.1:8082"
    """`pybench library serve-rewards`."""
    token_env: str = "PYBENCH_TOKEN"
    """Environment variable with a token that both accept; unset sends none."""
    tools: vf.ToolsetConfig = vf.ToolsetConfig()


class LibraryData(vf.TaskData):
    """One row. The reward service makes the task again from `task`, and refuses when that is not `id`; or it has it."""

    task: dict[str, Any] | None
    """Template, language and seed; none if the service has the task."""
    seed: int
    """The random state of the session."""
    category: str
    keyword: str
    files: list[dict[str, str]]


class LibraryTask(vf.Task[LibraryData, LibraryState, LibraryTaskConfig]):
    @property
    def key(self) -> str:
        return self.data.name or self.hash

    @classmethod
    def toolsets(cls, config: LibraryTaskConfig) -> list[vf.Toolset]:
        return [PythonToolset(config.tools)]

    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        """A session with the task's files."""
        state = trace.state
        state.interpreter = self.config.interpreter
        state.token = os.environ.get(self.config.token_env, "")
        files = {file["path"]: (HERE / "files" / file["id"]).read_bytes() for file in self.data.files}
        state.session = await services.begin(state.interpreter, state.token, self.data.seed, files)

    @vf.reward(weight=1.0)
    async def checks(self, trace: vf.Trace) -> float:
        """1 where every check holds. The session ends with it."""
        state = trace.state
        if not state.session:
            raise RuntimeError("a rollout is scored while its session lives: this one has none")
        try:
            files, claims = await services.collect(state.interpreter, state.token, state.session)
        finally:
            await services.end(state.interpreter, state.token, state.session)
            state.session = ""
        body = {"task": self.data.task, "id": self.data.id, "answer": trace.last_reply, "files": files, "claims": claims}
        verdict = await services.score(self.config.scorer, state.token, body)
        trace.info["findings"] = verdict["findings"]
        trace.record_metric("share", verdict["share"])
        return float(verdict["reward"])


class LibraryConfig(vf.TasksetConfig):
    task: LibraryTaskConfig = LibraryTaskConfig()


class LibraryTaskset(vf.Taskset[LibraryTask, LibraryConfig]):
    def load(self) -> Iterator[LibraryTask]:
        with open(HERE / "tasks.jsonl", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                yield LibraryTask(LibraryData(**row), self.config.task)
