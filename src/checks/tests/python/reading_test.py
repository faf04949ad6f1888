"""Generated tables with every trap known to us, read by pandas and by references.

    python src/checks/tests/python/reading_test.py [files]
"""

import json
import math
import os
import random
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "src/checks/python"))

import inputs  # noqa: E402
from common import NA, OursError  # noqa: E402

TEXTS = {
    "utf-8": "Köln München naïve – 北京 Ελλάδα 😀 a\u0301",
    "latin-1": "Köln Münster Göttingen Ærø naïve façade",
    "cp1252": "Köln – “Münster” Göttingen’s naïve façade €",
    "gb18030": "北京 上海 城市 人口 这是一个句子 用来判断编码",
}
TEXTS["utf-8-sig"] = TEXTS["utf-16"] = TEXTS["utf-8"]


def whole(r, texts):
    return str(r.randint(-99, 999))


def padded(r, texts):
    return r.choice(["007", "7", "00", "-07", "+7", " 7", "7 ", "\t7", "-0", "0"])


def large(r, texts):
    return str(r.choice([2**53 + 1, 2**63 - 1, -(2**63), 10**18 + r.randint(0, 9)]))


def huge(r, texts):
    return str(r.choice([2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**25, -(10**25), 5, -5]))


def decimal(r, texts):
    return r.choice([repr(r.uniform(-5, 5)), "1.5", "1e3", "1000", "1E-3", ".5", "5.", "-0.0", "0.1", "-.5e+2", " 2.5", "2.5 ", "123456789.123456789", "1e22"])


def extreme(r, texts):
    return r.choice(["inf", "-inf", "+inf", "Infinity", "-INFINITY", "Inf", "1e400", "-1e400", "1e-400", "1.7976931348623157e308", "4e-324"])


def like_number(r, texts):
    return r.choice(["0x1F", "1_000", "1,000", "1e", "1e+", "e5", "--1", "1 2", "+", ".", "1.2.3", "١٢", "½", "1d5", "5%", "$5", "1e5.5", "NAN", " inf", "inf ", "infinit"])


def truth(r, texts):
    return r.choice(["True", "False", "TRUE", "FALSE", "true", "false"] + ["tRuE", "fALSE"] * (r.random() < 0.1))


def like_truth(r, texts):
    return r.choice(["yes", "no", "T", "F", " True", "true ", "1", "0"])


def absent(r, texts):
    return r.choice(sorted(NA))


def like_absent(r, texts):
    return r.choice([" NA", "NA ", " NA ", "NaT", "N/a", "none", "NONE", "-", ".", "?", " ", "  ", "\t", "null ", "Null"])


def date(r, texts):
    return r.choice(["2024-02-29", "2024-01-01", "2024-1-1", "01/02/2024", "2024-01-01T10:00", "2024"])


def euros(r, texts):
    return r.choice(["€ 1.018,64", "€ 3,50", "-€ 0,5", "€ 12", "€ -7,25"])


def dollars(r, texts):
    return r.choice(["$1,234.50", "$3.50", "-$0.5", "$12", "$1,018"])


def comma(r, texts):
    return r.choice(["1.018,64", "3,50", "-0,5", "12"])


def short_day(r, texts):
    return r.choice(["31.12.24", "01.02.99", "28.02.68", "30/11/24"])


def word(r, texts):
    return r.choice([*texts.split(), texts, "a", "B", 'say "hi"', 'x"y', "two\nlines", "two\r\nlines", "a,b", "a;b", "a\tb", "a|b", " a", "a ", "'q'", "#c", "\\"])


MAKERS = [whole, padded, large, huge, decimal, extreme, like_number, truth, like_truth, absent, like_absent, date, word, euros, dollars, comma, short_day]


class File:
    """A generated file: its bytes, and what it was written with."""

    def __init__(self, r):
        self.encoding = r.choice([*TEXTS, "utf-8", "utf-8"])
        self.delimiter = r.choice(",,,;\t|")
        self.name = "table.tsv" if self.delimiter == "\t" and r.random() < 0.5 else "table.csv"
        self.quoting = r.choice(["needed", "needed", "all", "some"])
        end = r.choice(["\n", "\n", "\r\n", "\r"])
        width, height = r.randint(1, 5), r.choice([0, 1, 2, 5, 12, 40])
        columns = [self.column(r, height) for _ in range(width)]
        lines = [self.header(r, width)] + [list(row) for row in zip(*columns)]
        if r.random() < 0.1 and height:
            lines[r.randint(1, height)] = self.ragged(r, width)
        lines = [self.delimiter.join(self.quoted(r, cell) for cell in line) for line in lines]
        # Where lines end with a carriage return alone, pandas loses an empty cell after a blank line.
        for _ in range(0 if end == "\r" else r.choice([0, 0, 0, 1, 3])):
            lines.insert(r.randint(0, len(lines)), r.choice(["", "  ", " \t"]))
        text = end.join(lines) + r.choice([end, end, ""])
        self.data = text.encode(self.encoding, "replace")

    def column(self, r, height):
        """Cells of one kind, of which some are missing or of another."""
        kind, odd = r.choice(MAKERS), r.choice(MAKERS)
        missing, strange = r.choice([0, 0, 0.2]), r.choice([0, 0, 0.1, 0.5])
        makers = [absent if r.random() < missing else odd if r.random() < strange else kind for _ in range(height)]
        return [make(r, TEXTS[self.encoding]) for make in makers]

    def header(self, r, width):
        names = [f"c{i}" for i in range(width)]
        if r.random() < 0.3:
            i = r.randrange(width)
            names[i] = r.choice(["c0", "", "c0.1", "two words", TEXTS[self.encoding].split()[0], 'a "b"', "5", "True", " c "])
        return names

    def ragged(self, r, width):
        return [str(i) for i in range(r.choice([max(width - 1, 1), width + 1]))]

    def quoted(self, r, cell):
        needed = any(mark in cell for mark in (self.delimiter, "\n", "\r")) or cell.startswith('"')
        if needed or self.quoting == "all" or (self.quoting == "some" and r.random() < 0.3):
            return '"' + cell.replace('"', '""') + '"'
        return cell


def files(seed, count):
    """Name → file."""
    made = [File(random.Random(f"{seed} {i}")) for i in range(count)]
    return {f"{i:03}-{file.name}": file for i, file in enumerate(made)}


def write(seed, count, folder="output"):
    """The files in a folder, in place of what is there."""
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    for name, file in files(seed, count).items():
        Path(folder, name).write_bytes(file.data)


def compare(seed, count, formats, folder="output"):
    """How many files were read as pandas reads them, and of how many the profile agreed; raises for the first that was not.

    `formats` holds the profile of each file that has one; the others are read with what they were written with.
    """
    read = agreed = 0
    for name, file in files(seed, count).items():
        path = os.path.join(folder, name)
        form = formats.get(name) or {"encoding": file.encoding, "delimiter": file.delimiter}
        inputs.describe({os.path.normpath(path): form})
        frame = pandas_reads(path, form)
        if frame is None:
            assert name not in formats, f"seed {seed}, {name}: pandas refuses what has a profile: {file.data!r}"
            continue
        try:
            names, columns = inputs.table(path)
            reason = difference(frame, names, columns)
        except OursError as error:
            reason = str(error) if name in formats else None
        assert not reason, f"seed {seed}, {name} {json.dumps(form)}: {reason}\n{file.data!r}"
        read, agreed = read + 1, agreed + (name in formats)
    return read, agreed


def pandas_reads(path, form):
    """The frame; None where there is none, no row, or where columns are taken for an index."""
    import pandas

    read = form.get("read", {})
    dates, numbers, mixed = read.get("dates", {}), read.get("numbers", {}), read.get("mixed_dates", [])
    options = {"dtype": {name: str for name in [*dates, *mixed, *numbers]}, "thousands": read.get("thousands")}
    if "decimal_comma" in read:
        options["decimal"] = ","
    if "names" in read:
        options.update(header=None, names=read["names"], skiprows=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            frame = pandas.read_csv(path, sep=form["delimiter"], encoding=form["encoding"], **options)
        except (ValueError, OverflowError):
            return None
    for name, format in dates.items():
        frame[name] = pandas.to_datetime(frame[name], format=format).dt.strftime("%Y-%m-%d")
    for name in mixed:
        iso, others = (pandas.to_datetime(frame[name], format=format, errors="coerce") for format in ("%Y-%m-%d", "%d.%m.%Y"))
        frame[name] = iso.fillna(others).dt.strftime("%Y-%m-%d")
    for name, notation in numbers.items():
        for sign in [notation.get("currency", ""), *notation.get("ignored", "")]:
            frame[name] = frame[name].str.replace(sign, "", regex=False)
        if notation.get("decimal_comma"):
            frame[name] = frame[name].str.replace(",", ".", regex=False)
        frame[name] = pandas.to_numeric(frame[name])
    return frame if len(frame) and isinstance(frame.index, pandas.RangeIndex) else None


def difference(frame, names, columns):
    """What is not the same; None if everything is."""
    if list(frame.columns) != names:
        return f"the names {list(frame.columns)} and {names}"
    for i, name in enumerate(names):
        theirs = frame.iloc[:, i].tolist()
        odd = next((n for n, pair in enumerate(zip(theirs, columns[i])) if not same(*pair)), None)
        if len(theirs) != len(columns[i]) or odd is not None:
            return f"column {name}, row {odd}: {theirs} and {columns[i]}"
    return None


def same(theirs, ours):
    if ours is None or theirs is None or theirs != theirs:
        return ours is None and (theirs is None or theirs != theirs)
    if isinstance(ours, float):
        # pandas rounds the last digit otherwise than Python.
        return isinstance(theirs, float) and (theirs == ours or math.isclose(theirs, ours, rel_tol=1e-15, abs_tol=1e-320))
    return type(theirs) is type(ours) and theirs == ours


def wide():
    """Above a number of rows, which falls with the number of columns, pandas decides on types part by part."""
    rows = 1100
    cells = {0: lambda i: "7" if i < 1024 else "x", 1: lambda i: "" if i < 1024 else "x", 2: lambda i: "1" if i < 1024 else "0.5", 3: lambda i: str(i)}
    lines = [",".join(f"c{n}" for n in range(1000))]
    lines += [",".join(cells.get(n, lambda i: "")(i) for n in range(1000)) for i in range(rows)]
    return "\n".join(lines) + "\n"


def main(count):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write(0, count, folder)
        print(*compare(0, count, {}, folder))
        path = os.path.join(folder, "wide.csv")
        Path(path).write_text(wide())
        inputs.describe({})
        print(difference(pandas_reads(path, {"delimiter": ",", "encoding": "utf-8"}), *inputs.table(path)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
