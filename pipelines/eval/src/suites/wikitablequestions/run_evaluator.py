"""Runs the evaluator of WikiTableQuestions. It is written for Python 2; what Python 3 calls otherwise is replaced."""

import json, sys
source = open(sys.argv[1], encoding="utf-8").read().split("################ Batch Mode")[0]
# Without `re.U`, Python 2 matches ASCII digits only.
assert source.count(r"\[\d+\]") == 1
source = source.replace('ur"', 'r"').replace("ur'", "r'").replace(r"\[\d+\]", r"\[[0-9]+\]")
names = {"unicode": str, "basestring": str, "long": int, "__name__": "evaluator"}
exec(compile(source.replace("from codecs import open", ""), "evaluator.py", "exec"), names)
# Python 2 reads no underscores in numbers.
for kind in ("NumberValue", "DateValue"):
    parse = names[kind].parse
    names[kind].parse = staticmethod(lambda text, parse=parse: None if "_" in text else parse(text))
values, check, normalize = (names[name] for name in ("to_value_list", "check_denotation", "normalize"))
print(json.dumps([[check(values(targets, canons), values(predicted)), [normalize(value) for value in predicted]]
                  for targets, canons, predicted in json.load(sys.stdin)]))
