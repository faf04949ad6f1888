"""Runs the evaluator of WikiTableQuestions. It is written for Python 2; what Python 3 calls otherwise is replaced."""

import json, sys
source = open(sys.argv[1], encoding="utf-8").read().split("################ Batch Mode")[0]
source = source.replace('ur"', 'r"').replace("ur'", "r'").replace(r"[\d+\]", r"[0-9]+\]")
names = {"unicode": str, "basestring": str, "long": int, "__name__": "evaluator"}
exec(compile(source.replace("from codecs import open", ""), "evaluator.py", "exec"), names)
# Python 2 reads no underscores in numbers.
for kind in ("NumberValue", "DateValue"):
    parse = names[kind].parse
    names[kind].parse = staticmethod(lambda text, parse=parse: None if "_" in text else parse(text))
values = names["to_value_list"]
print(json.dumps([names["check_denotation"](values(targets, canons), values(predicted))
                  for targets, canons, predicted in json.load(sys.stdin)]))
