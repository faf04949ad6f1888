"""Reads the logs of a folder with inspect_ai and prints what it finds. Arguments: the folder."""

import json
import sys

from inspect_ai.log import list_eval_logs, read_eval_log, read_eval_log_sample_summaries

found = []
for info in sorted(list_eval_logs(sys.argv[1]), key=lambda info: info.name):
    log = read_eval_log(info)
    samples = []
    for sample in log.samples:
        samples.append({
            "id": sample.id,
            "epoch": sample.epoch,
            "roles": [message.role for message in sample.messages],
            "calls": [call.arguments for message in sample.messages if message.role == "assistant"
                      for call in message.tool_calls or []],
            "tools": [[message.function, message.text] for message in sample.messages if message.role == "tool"],
            "scores": {name: score.value for name, score in sample.scores.items()},
            "explanation": {name: score.explanation for name, score in sample.scores.items()},
            "answer": sample.output.completion,
        })
    found.append({
        "status": log.status,
        "task": log.eval.task,
        "model": log.eval.model,
        "version": log.version,
        "total": log.results.total_samples,
        "metrics": {score.name: score.metrics["accuracy"].value for score in log.results.scores},
        "summaries": [summary.id for summary in read_eval_log_sample_summaries(info)],
        "samples": samples,
    })
json.dump(found, sys.stdout)
