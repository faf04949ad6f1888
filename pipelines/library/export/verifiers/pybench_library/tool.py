"""The one tool: Python in a session of the rollout's own."""

import verifiers.v1 as vf

from pybench_library import services


class LibraryState(vf.State):
    """Where this rollout's session is; never written to disk."""

    interpreter: str = ""
    token: str = ""
    session: str = ""


class PythonToolset(vf.Toolset[vf.ToolsetConfig, LibraryState]):
    TOOL_PREFIX = None

    @vf.tool
    async def execute_python(self, code: str) -> str:
        """Run Python in a notebook that keeps its variables; returns what it printed and its last value."""
        state = self.state
        return await services.run(state.interpreter, state.token, state.session, code)


if __name__ == "__main__":
    PythonToolset.run()
