"""Results that are right but for one requirement: each must fail, and what it was made from must pass.

    (name, task, right files, right answer, wrong: {name: (files, answer)})
"""

import io
import json
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import right
from PIL import Image


def images():
    path, photo, gray = "output/i.png", right.picture(), right.picture().convert("L")
    source = right.DRAWN + "expected = expected.convert('L')\n"
    given = right.task("image", source, [path], path=path, mode="L", format="PNG", mean_difference=1.0)
    deep = Image.fromarray(np.asarray(gray).astype(np.uint16) * 257)
    wrong = {"the colors kept": photo, "three gray channels": gray.convert("RGB"), "a palette": gray.convert("P"), "with alpha": gray.convert("LA"), "16 bits": deep}
    yield "gray picture", given, {path: right.saved(gray, "PNG")}, "", {name: ({path: right.saved(image, "PNG")}, "") for name, image in wrong.items()}


def jpegs():
    path = "output/i.jpg"
    clear = right.picture().convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size))
    source = right.DRAWN + (
        "alpha = Image.linear_gradient('L').resize(expected.size)\n"
        "expected = Image.composite(expected, Image.new('RGB', expected.size, 'white'), alpha)\n"
    )
    given = right.task("image", source, [path], path=path, format="JPEG", quality=95, mean_difference=1.0)

    def on(ground, quality=95, mask=clear.getchannel("A")):
        page = Image.new("RGB", clear.size, ground)
        page.paste(clear.convert("RGB"), mask=mask)
        return {path: right.saved(page, "JPEG", quality=quality)}, ""

    hard = clear.getchannel("A").point(lambda a: 255 * (a > 127))
    wrong = {"quality 10": on("white", 10), "quality 75": on("white", 75), "quality 100": on("white", 100), "black ground": on("black"), "light gray ground": on((235, 235, 235)), "hard alpha": on("white", mask=hard)}
    yield "JPEG on white", given, on("white")[0], "", wrong


def sounds():
    import soundfile

    source = "import numpy as np\nt = np.arange(16000) / 16000\nexpected = (0.4 * np.sin(2 * np.pi * (200 + 300 * t) * t), 16000)\n"
    names = {}
    exec(source, names)
    data, rate = names["expected"]
    path = "output/s.wav"
    given = right.task("audio", source, [path], path=path, subtype="PCM_16")

    def stored(samples=data, subtype="PCM_16", rate=rate):
        out = io.BytesIO()
        soundfile.write(out, samples, rate, format="WAV", subtype=subtype)
        return {path: out.getvalue()}, ""

    wrong = {subtype: stored(subtype=subtype) for subtype in ("FLOAT", "DOUBLE", "PCM_24", "PCM_32", "PCM_U8", "ULAW")}
    wrong |= {"two channels": stored(np.stack([data, data], axis=1)), "another rate": stored(rate=22050), "40 ms late": stored(np.roll(data, 640)), "3 % louder": stored(data * 1.03), "noise": stored(data + np.random.default_rng(0).normal(0, 0.01, len(data)))}
    yield "16-bit sound", given, stored()[0], "", wrong


def databases():
    path = "output/r.sqlite"
    rows = [(1, "a", 2.5), (2, "b", 4.0), (3, "c", -1.0)]
    source = f"expected = [dict(zip(('id', 'label', 'value'), row)) for row in {rows!r}]\n"
    given = right.task("table", source, [path], path=path, sheet="entries", only_sheets=["entries"], primary_key="id")

    def stored(table="id integer primary key, label text, value real", rows=rows, more=""):
        with tempfile.TemporaryDirectory() as folder:
            with sqlite3.connect(f"{folder}/d") as database:
                database.execute(f"create table entries ({table})")
                database.executemany("insert into entries values (?, ?, ?)", rows)
                database.executescript(more)
            database.close()
            return {path: Path(folder, "d").read_bytes()}, ""

    wrong = {
        "numbers as text": stored("id integer primary key, label text, value text"), "no primary key": stored("id integer, label text, value real"),
        "another primary key": stored("id integer, label text primary key, value real"), "a second table": stored(more="create table more (x)"),
        "a view": stored(more="create view more as select * from entries"),
    }  # fmt: skip
    yield "database", given, stored()[0], "", wrong


def records():
    rows = [{"no": 1, "name": "a", "size": 2.5}, {"no": 2, "name": "b", "size": None}]
    for path, dump in (("output/r.json", json.dumps), ("output/r.jsonl", lambda rows: "\n".join(map(json.dumps, rows)))):
        given = right.task("table", f"expected = {rows!r}", [path], path=path)
        made = {
            "numbers as text": [{**row, "no": str(row["no"])} for row in rows], "a text as a number": [{**row, "name": 7 * i} for i, row in enumerate(rows)],
            "NaN": [{**row, "size": float("nan") if row["size"] is None else row["size"]} for row in rows], "an empty text": [{**row, "size": row["size"] or ""} for row in rows],
            "the key left out": [{k: v for k, v in row.items() if v is not None} for row in rows],
        }  # fmt: skip
        wrong = {name: ({path: dump(new).encode()}, "") for name, new in made.items()}
        if path.endswith("l"):
            wrong["one array"] = ({path: json.dumps(rows).encode()}, "")
        yield path, given, {path: dump(rows).encode()}, "", wrong
    path = "output/r.csv"
    given = right.task("table", right.HEAD, [path], path=path, column_order=True, rtol=1e-9)
    rounded = right.text(form=lambda v: f"{v:.4f}")
    yield "columns in order", given, {path: right.text()}, "", {"turned round": ({path: right.text(("n", "mean", "city"))}, ""), "rounded": ({path: rounded}, "")}


def answers():
    given = right.task("values", "expected = 'rising'", marker="Trend")
    wrong = {"contrary": "Trend: falling", "both": "Trend: rising or falling", "sentence only": "The values are rising.", "corrected": "Trend: rising\nTrend: falling", "twice on a line": "Trend: rising Trend: falling"}
    yield "conclusion", given, {}, "It is done.\nTrend: rising", {name: ({}, text) for name, text in wrong.items()}
    given = right.task("number", "expected = 1234.56789", marker="Mean", digits=6)
    wrong = {"four digits": "Mean: 1235", "wrong beyond": "Mean: 1234.58", "hedged": "Mean: 1234.57 or Mean: 1234.58", "in brackets": "Mean: 1234.57 (or 1234.58)", "cut off": "Mean: 1234.55"}
    yield "six digits", given, {}, "Mean: 1234.57", {name: ({}, text) for name, text in wrong.items()}


def texts():
    path = "output/t.txt"
    given = right.task("text", "expected = '价格 é'", [path], path=path)
    yield "UTF-8", given, {path: "价格 é\n".encode()}, "", {name: ({path: "价格 é\n".encode(name)}, "") for name in ("utf-16", "gb18030")}


def documents():
    from mutate.docx import make_parts

    path, page = "output/d.docx", "output/d.html"
    parts = [{"heading": "Report"}, {"paragraph": "All is well."}, {"table": [["a", "b"], ["1", "2"]]}]
    given = right.task("docx", f"expected = {{'parts': {parts!r}}}", [path], path=path)
    wrong = {"table first": make_parts(parts[::-1]), "sentence last": make_parts([parts[0], parts[2], parts[1]])}
    yield "document", given, {path: make_parts(parts)}, "", {name: ({path: data}, "") for name, data in wrong.items()}
    given = right.task("html", "expected = {'texts': ['All is well', 'The end'], 'selectors': {'p': ['All is well', 'The end']}}", [page], path=page)
    shown = "<html><head><style>{style}</style></head><body{body}><p{p}>All is well</p><p>The end</p></body></html>"
    wrong = {
        "display": shown.format(style="p {display:none}", body="", p=""), "of one": shown.format(style="", body="", p=" style='display: none'"),
        "hidden": shown.format(style="", body=" hidden", p=""), "white": shown.format(style="body {color: #fff}", body="", p=""),
        "white on white": shown.format(style="", body=" style='background: white'", p=" style='color:white'"), "off the page": shown.format(style="p{position:absolute;left:-5000px}", body="", p=""),
        "tiny": shown.format(style="", body="", p=" style='font-size:0'"), "transparent": shown.format(style="", body="", p=" style='opacity: 0'"),
    }  # fmt: skip
    honest = shown.format(style="body {background: #036; color: white} .x {display: none}", body="", p="")
    yield "page", given, {page: honest.encode()}, "", {name: ({page: text.encode()}, "") for name, text in wrong.items()}


def pdfs():
    import pymupdf

    path, lines = "output/p.pdf", ["Invoice 12", "Total: 3.50"]
    given = right.task("pdf", f"expected = [{lines!r}, ['Thanks']]\npages = 2", [path], path=path, pages="pages", lines=True)

    def made(pages=(lines, ["Thanks"]), left=60, joined=False, cover=False, **options):
        document = pymupdf.open()
        for part in pages:
            page = document.new_page()
            for i, line in enumerate([" ".join(part)] if joined else part):
                page.insert_text((left, 80 + 30 * i), line, **options)
            if cover:
                page.draw_rect((0, 0, 500, 400), color=(1, 1, 1), fill=(1, 1, 1))
        return {path: document.tobytes()}, ""

    wrong = {
        "white": made(color=(1, 1, 1)), "invisible": made(render_mode=3), "off the page": made(left=-900), "covered": made(cover=True), "tiny": made(fontsize=0.2),
        "all on page 1": made(([*lines, "Thanks"], [])), "on one line": made(joined=True), "three pages": made((lines, ["Thanks"], [])),
    }  # fmt: skip
    yield "invoice", given, made()[0], "", wrong


def codes():
    import qrcode

    path = "output/q.png"
    given = right.task("qr", "expected = 'ticket:abc-1'", [path], path=path, quiet_zone=4.0)
    made = {border: {path: right.saved(qrcode.make("ticket:abc-1", border=border).convert("RGB"), "PNG")} for border in (0, 1, 3, 4)}
    yield "QR code", given, made[4], "", {f"margin {border}": (made[border], "") for border in (0, 1, 3)}


def animations():
    path = "output/a.gif"
    frames = [right.picture().rotate(90 * i).quantize(64).convert("RGB") for i in range(4)]
    source = right.DRAWN + "expected = [expected.rotate(90 * i).quantize(64).convert('RGB') for i in range(4)]\ntimes = 120\n"
    given = right.task("frames", source, [path], path=path, duration="times", endless=True)
    made = {loop: {path: right.saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=120, **({} if loop is None else {"loop": loop}))} for loop in (None, 0, 3)}
    yield "animation", given, made[0], "", {"played once": (made[None], ""), "three times": (made[3], "")}


def programs():
    path = "output/p.py"
    given = right.task("program", "expected = [{'stdin': '', 'stdout': '3\\n'}]", [path], path=path, standard_library=True)
    runs = {path: [{"exit": 0, "stdout": "3\n", "stderr": ""}]}
    wrong = {"numpy": b"import numpy\nprint(3)\n", "within": b"def f():\n    from pandas import NA\nprint(3)\n"}
    yield "program", given, {path: b"import json.decoder\nprint(3)\n"}, "", {name: ({path: data}, "") for name, data in wrong.items()}, runs


def bars():
    """(name, what draws, wrong: {name: what draws}) of horizontal bars with the longest on top."""
    good = "ax.barh(['b', 'c', 'a'], [9, 5, 2])\nax.invert_yaxis()"
    wrong = {
        "vertical": "ax.bar(['b', 'c', 'a'], [9, 5, 2])", "longest at the bottom": "ax.barh(['b', 'c', 'a'], [9, 5, 2])",
        "in no order": "ax.barh(['c', 'b', 'a'], [5, 9, 2])\nax.invert_yaxis()", "logarithmic": good + "\nax.set_xscale('log')",
    }  # fmt: skip
    return good, {"turned round": "ax.barh(['a', 'c', 'b'], [2, 5, 9])"}, wrong


CASES = (images, jpegs, sounds, databases, records, answers, texts, documents, pdfs, codes, animations, programs)
