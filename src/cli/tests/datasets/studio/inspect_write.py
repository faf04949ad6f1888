"""Writes logs of a small evaluation by inspect_ai's mock model. Arguments: the folder, the formats of the logs."""

import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Target, mean, match, scorer
from inspect_ai.solver import TaskState, generate, use_tools
from inspect_ai.tool import tool


@tool
def add():
    async def execute(x: int, y: int) -> str:
        """Adds two numbers.

        Args:
            x: The first one.
            y: The second one.
        """
        return str(x + y)

    return execute


@scorer(metrics=[mean()])
def unscored():
    async def score(state: TaskState, target: Target) -> Score:
        return Score.unscored(reason="made for a test")

    return score


def outputs():
    for number, answer in [(1, "The answer is 2"), (2, "<b>five</b>")]:
        arguments = {"x": number, "y": number}
        call = ModelOutput.for_tool_call("mockllm/model", "add", arguments, content=f"I add {number}.")
        for output in (call, ModelOutput.from_content("mockllm/model", answer)):
            # Without its counts inspect_ai downloads a tokenizer to count them.
            output.usage = ModelUsage(input_tokens=20, output_tokens=5, total_tokens=25)
            yield output


folder, formats = sys.argv[1], sys.argv[2:]
for log_format in formats:
    task = Task(
        name="sums",
        dataset=[Sample(id=f"sum-{number}", input=f"Add {number} and {number}.", target=str(2 * number)) for number in (1, 2)],
        solver=[use_tools(add()), generate()],
        scorer=[match(), unscored()],
    )
    model = get_model("mockllm/model", custom_outputs=outputs(), memoize=False)
    logs = eval(task, model=model, log_dir=folder, log_format=log_format, max_samples=1, display="none")
    assert logs[0].status == "success", logs[0].error
