"""Right answers for every kind of check, in several shapes: (name, task, files, answer, claims)."""

import io
import json
import os
import sqlite3
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
sys.path[:0] = [str(ROOT / "src/checks/python"), str(ROOT / "src/checks/python/foreign"), str(ROOT / "src/interpreter/python"), str(Path(__file__).parent)]

import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

ROWS = [{"city": c, "mean": m, "n": n} for c, m, n in (("Oslo", 1.25, 3), ("Lima", 7.5, 12), ("Rome, It", 0.333333, 1), ("Bonn", None, 0), ("Ulm", 4.0, 9))]
HEAD = f"expected = {ROWS!r}\n"


def task(check, reference, outputs=(), **spec):
    defaults = {
        "table": {"rtol": 1e-6, "atol": 0.0}, "number": {"rtol": 1e-6, "atol": 0.0}, "values": {"rtol": 1e-6}, "json": {"rtol": 1e-6},
        "image": {"mean_difference": 2.0}, "frames": {"mean_difference": 2.0}, "plot": {"rtol": 1e-3},
        "audio": {"duration": 0.002, "level": 0.05, "correlation": 0.9999, "shift": 0.001},
    }.get(check, {})  # fmt: skip
    name = "contains" if check in ("pdf", "docx", "html") else "least" if check == "model" else "expected"
    checks = [{"check": check, name: "expected", **defaults, **spec}]
    return {"checks": checks, "reference": reference, "query": "Do it, please. Mean: 3", "outputs": list(outputs)}


def text(columns=("city", "mean", "n"), separator=",", form=repr, end="\n"):
    def cell(row, c):
        v = row[c]
        v = "" if v is None else form(v) if isinstance(v, float) else str(v)
        return f'"{v}"' if separator in v else v

    lines = [separator.join(columns)] + [separator.join(cell(row, c) for c in columns) for row in ROWS]
    return (end.join(lines) + end).encode()


def tables():
    import pandas as pd

    csv, frame = "output/r.csv", pd.DataFrame(ROWS)
    yield "csv", task("table", HEAD, [csv], path=csv), {csv: text()}
    yield "csv, other column order", task("table", HEAD, [csv], path=csv), {csv: text(("n", "city", "mean"))}
    yield "csv, BOM and CRLF", task("table", HEAD, [csv], path=csv), {csv: b"\xef\xbb\xbf" + text(end="\r\n")}
    yield "csv, semicolons", task("table", HEAD, [csv], path=csv), {csv: text(separator=";")}
    yield "csv, float format", task("table", HEAD, [csv], path=csv), {csv: text(form=lambda v: f"{v:.6f}")}
    yield "csv, by pandas", task("table", HEAD, [csv], path=csv), {csv: frame.to_csv(index=False).encode()}
    yield "csv, index allowed", task("table", HEAD, [csv], path=csv, extra_columns=True), {csv: frame.to_csv().encode()}
    yield "csv, rows in any order", task("table", HEAD, [csv], path=csv, rows="any"), {csv: frame[::-1].to_csv(index=False).encode()}
    frame_source = f"import pandas\nexpected = pandas.DataFrame({ROWS!r})\n"
    yield "csv, reference a DataFrame", task("table", frame_source, [csv], path=csv), {csv: text()}
    tsv = "output/r.tsv"
    yield "tsv", task("table", HEAD, [tsv], path=tsv), {tsv: text(separator="\t")}
    for name, engine in (("openpyxl", "openpyxl"), ("xlsxwriter", "xlsxwriter")):
        out = io.BytesIO()
        frame.to_excel(out, index=False, engine=engine, sheet_name="Result")
        yield f"xlsx by {name}", task("table", HEAD, ["output/r.xlsx"], path="output/r.xlsx", sheet="Result"), {"output/r.xlsx": out.getvalue()}
    yield "json", task("table", HEAD, ["output/r.json"], path="output/r.json"), {"output/r.json": frame.to_json(orient="records").encode()}
    yield "jsonl", task("table", HEAD, ["output/r.jsonl"], path="output/r.jsonl"), {"output/r.jsonl": frame.to_json(orient="records", lines=True).encode()}
    out = io.BytesIO()
    frame.to_parquet(out, index=False)
    yield "parquet", task("table", HEAD, ["output/r.parquet"], path="output/r.parquet"), {"output/r.parquet": out.getvalue()}
    with tempfile.TemporaryDirectory() as folder:
        with sqlite3.connect(f"{folder}/r.db") as database:
            frame.to_sql("result", database, index=False)
        data = Path(f"{folder}/r.db").read_bytes()
    yield "sqlite", task("table", HEAD, ["output/r.sqlite"], path="output/r.sqlite", sheet="result"), {"output/r.sqlite": data}
    with tempfile.TemporaryDirectory() as folder:
        with sqlite3.connect(f"{folder}/r.db") as database:
            database.execute("create table result (city text primary key, mean real, n integer)")
            database.executemany("insert into result values (:city, :mean, :n)", ROWS)
        data = Path(f"{folder}/r.db").read_bytes()
    keyed = {"sheet": "result", "only_sheets": ["result"], "primary_key": "city", "column_order": True}
    yield "sqlite with a key", task("table", HEAD, ["output/r.sqlite"], path="output/r.sqlite", **keyed), {"output/r.sqlite": data}
    dates = "import datetime\nexpected = [{'d': datetime.date(2024, 5, i), 'v': i > 2} for i in (1, 2, 3)]\n"
    for name, stamp in (("dates", "2024-05-0{}"), ("date times", "2024-05-0{} 00:00:00")):
        data = "d,v\n" + "".join(f"{stamp.format(i)},{i > 2}\n" for i in (1, 2, 3))
        yield f"csv with {name}", task("table", dates, [csv], path=csv), {csv: data.encode()}


def answers():
    for name, line in {
        "plain": "Mean: 1234.5", "bold": "**Mean**: 1,234.5", "bullet": "- Mean: 1234.50", "chinese colon": "Mean：1234.5",
        "exponent": "Mean: 1.2345e3", "unit": "Mean: 1234.5 km", "backticks": "mean: `1234.5`", "bold all": "**Mean: 1234.5**",
        "earlier try": "Mean: 3\nMean: 1234.5",
    }.items():  # fmt: skip
        yield name, task("number", "expected = 1234.5", marker="Mean"), {}, f"I computed it.\n{line}\nFinished"
    yield "percent", task("number", "expected = 0.125", marker="Share"), {}, "Share: 12.5%"
    yield "percent as points", task("number", "expected = 12.5", marker="Share"), {}, "Share: 12.5 %"
    yield "part of a whole", task("number", "expected = 112.224", marker="Mean"), {}, "Mean: 112.224 (of 255)"
    yield "minus sign", task("number", "expected = -3", marker="Low"), {}, "Low: −3"
    yield "rounded", task("number", "expected = 2 / 3", marker="Ratio", atol=0.005), {}, "Ratio: 0.67"
    share = task("number", "expected = -0.15055763", marker="r", decimals=4)
    for name, line in {"six decimals": "r: -0.150558", "four decimals": "r: -0.1506", "in full": "r: -0.15055763", "in a sentence": "The matrix is saved. r: -0.1506"}.items():
        yield name, share, {}, f"All done.\n{line}"
    yield "digits", task("number", "expected = 123456.789", marker="Sum", digits=6), {}, "Sum: 123457"
    yield "two labels", task("number", "expected = 12", marker="Above", rtol=0.0), {}, "Above: 12, Percent: 3.5, Groups: 4"


def lists():
    words = "expected = ['Oslo', 'São Paulo', 'Rome']"
    for name, line in {"commas": "Oslo, São Paulo, Rome", "brackets": "['Oslo', 'São Paulo', 'Rome']", "chinese commas": "Oslo，São Paulo、Rome", "code": "`Oslo`, `São Paulo`, `Rome`"}.items():  # fmt: skip
        yield name, task("values", words, marker="Cities", ordered=True), {}, f"Done.\n**Cities:** {line}"
    yield "any order", task("values", words, marker="Cities"), {}, "Cities: Rome, oslo, São Paulo"
    yield "numbers", task("values", "expected = [1, 2.5, 1e6]", marker="V", ordered=True), {}, "V: 1.0, 2.50, 1000000"
    yield "one word", task("values", "expected = 'yes'", marker="Answer"), {}, "Answer: Yes"
    yield "a name with a comma", task("values", "expected = 'Oslo, Norway'", marker="Choice"), {}, "**Choice:** Oslo, Norway."
    for name, line in {"after a sentence": "Saved to ./output/small.png. Size: 38x38", "with a times sign": "Size: 38 × 38", "pixels": "Size: 38x38 pixels"}.items():
        yield name, task("values", "expected = '38x38'", marker="Size"), {}, f"Done.\n{line}"
    yield "roots", task("values", "expected = [-1.23456789012, 2.5]", marker="Roots", ordered=True, digits=8), {}, "Roots: -1.2345679, 2.5"


def denotations():
    countries = "expected = ['Italy', 'São Tomé', 'U.S.A.']"
    for name, line in {"as they are": "Italy | São Tomé | U.S.A.", "any order and case": "u.s.a|ITALY|Sao Tome", "repeated": "Italy | italy | São Tomé | U.S.A."}.items():
        yield name, task("denotation", countries, marker="Answer"), {}, f"Finished: I looked it up.\nAnswer: {line}"
    yield "a number", task("denotation", "expected = [['100,000', '100000']]", marker="Answer"), {}, "Answer: 100000.0"
    yield "a number with a unit", task("denotation", "expected = [['17 years', '17']]", marker="Answer"), {}, "**Answer:** 17"
    yield "a fraction", task("denotation", "expected = [0.3333333]", marker="Answer"), {}, "Answer: 0.3333337"
    yield "a date", task("denotation", "expected = [['January 26, 1995', '1995-01-26']]", marker="Answer"), {}, "Answer: 1995-1-26"
    yield "details", task("denotation", "expected = ['Italy (host)']", marker="Answer"), {}, "Answer: italy (HOST)"
    yield "without details", task("denotation", "expected = ['Italy (host)']", marker="Answer"), {}, "Answer: Italy"


def formulas():
    shapes = {
        "a fraction": (r"\\frac{3}{4}", "$0.75$"), "a root": (r"\\frac{\\sqrt{2}}{2}", r"\frac{1}{\sqrt 2}"), "a polynomial": ("(x+1)^2", "x**2 + 2x + 1"),
        "an interval": (r"(-\\infty, 3] \\cup [5, \\infty)", r"\( (-\infty,3]\cup[5,\infty) \)"), "a list": ("1, -2", r"\{-2, 1\}"),
        "a point": (r"\\left( 3, \\frac{\\pi}{2} \\right)", "(3, pi/2)"), "an equation": ("2x + 3y = 6", "4x + 6y = 12"),
        "a matrix": (r"\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}", r"\begin{bmatrix}1&2\\3&4\end{bmatrix}"), "a word": (r"\\text{even}", "Even."),
        "a unit": (r"5\\text{ cm}", "5 cm"), "an inequality": (r"1 \\le x < 3", r"3 > x \ge 1"),
    }  # fmt: skip
    for name, (expected, line) in shapes.items():
        yield name, task("symbolic", f"expected = '{expected}'", marker="Answer"), {}, f"I computed it.\n**Answer:** {line}"


def texts():
    source = "expected = 'first line\\n\\nsecond Line here\\nthird\\n'\n"
    body = "first line\n\nsecond Line here\nthird"
    path = "output/t.txt"
    for name, data in {"plain": body, "newline": body + "\n", "CRLF": body.replace("\n", "\r\n"), "trailing spaces": body.replace("\n", "  \n") + "\n\n"}.items():  # fmt: skip
        yield name, task("text", source, [path], path=path), {path: data.encode()}
    yield "byte order mark", task("text", "expected = '价格 3'", [path], path=path), {path: "价格 3".encode("utf-8-sig")}


def jsons():
    value = {"a": 1, "b": [1.5, 2, {"c": "x", "d": None}], "e": True}
    path = "output/j.json"
    shapes = {"plain": json.dumps(value), "indented": json.dumps(value, indent=2), "other order": json.dumps(dict(reversed(value.items()))), "floats": json.dumps(value).replace("1,", "1.0,")}  # fmt: skip
    for name, data in shapes.items():
        yield name, task("json", f"expected = {value!r}", [path], path=path), {path: data.encode()}
    rounded = task("json", "expected = {'shares': [0.75, 0.25, 1.45e-16]}", [path], path=path, atol=1e-9)
    yield "rounding error", rounded, {path: b'{"shares": [0.75, 0.25, -5.5e-17]}'}


def picture(w=90, h=60):
    y, x = np.mgrid[0:h, 0:w]
    return Image.fromarray(np.stack([x * 255 // w, y * 255 // h, (x * y) % 256], axis=2).astype(np.uint8))


DRAWN = "import numpy as np\nfrom PIL import Image\ny, x = np.mgrid[0:60, 0:90]\nexpected = Image.fromarray(np.stack([x * 255 // 90, y * 255 // 60, (x * y) % 256], axis=2).astype(np.uint8))\n"


def saved(image, form, **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def images():
    png, image = "output/i.png", picture()
    smooth = image.point(lambda v: v)
    smooth.putdata([(r, g, (r + g) // 2) for r, g, _ in image.getdata()])
    source = DRAWN + "expected.putdata([(r, g, (r + g) // 2) for r, g, _ in expected.getdata()])\n"
    yield "png", task("image", DRAWN, [png], path=png, format="PNG"), {png: saved(image, "PNG")}
    yield "RGBA", task("image", DRAWN, [png], path=png), {png: saved(image.convert("RGBA"), "PNG")}
    yield "jpeg", task("image", source, ["output/i.jpg"], path="output/i.jpg"), {"output/i.jpg": saved(smooth, "JPEG", quality=90)}
    photo = task("image", source, ["output/i.jpg"], path="output/i.jpg", format="JPEG", quality=90, mean_difference=1.0)
    for sampling in (0, 1, 2):
        yield f"jpeg of quality 90, sampling {sampling}", photo, {"output/i.jpg": saved(smooth, "JPEG", quality=90, subsampling=sampling)}
    yield "webp", task("image", source, ["output/i.webp"], path="output/i.webp"), {"output/i.webp": saved(smooth, "WEBP", quality=90)}
    yield "bmp", task("image", DRAWN, ["output/i.bmp"], path="output/i.bmp"), {"output/i.bmp": saved(image, "BMP")}
    grey = DRAWN + "expected = expected.convert('L')\n"
    yield "gray as L", task("image", grey, [png], path=png, mode="L"), {png: saved(image.convert("L"), "PNG")}
    yield "gray as RGB", task("image", grey, [png], path=png), {png: saved(image.convert("L").convert("RGB"), "PNG")}
    yield "black and white", task("image", grey + "expected = expected.point(lambda v: 255 * (v > 99))\n", [png], path=png), {png: saved(image.convert("L").point(lambda v: 255 * (v > 99)).convert("1"), "PNG")}


def animations():
    source = DRAWN + "expected = [expected.rotate(90 * i).quantize(64).convert('RGB') for i in range(4)]\ntimes = 120\n"
    frames = [picture().rotate(90 * i).quantize(64).convert("RGB") for i in range(4)]
    for name, form in (("gif", "GIF"), ("webp", "WEBP"), ("apng", "PNG")):
        path = f"output/a.{'png' if form == 'PNG' else name}"
        options = {"lossless": True} if form == "WEBP" else {}
        data = saved(frames[0], form, save_all=True, append_images=frames[1:], duration=120, loop=0, **options)
        yield name, task("frames", source, [path], path=path, duration="times", endless=True), {path: data}
    path, twice = "output/a.gif", source.replace("range(4)]", "(0, 1, 1, 2, 3, 3)]")
    data = saved(frames[0], "GIF", save_all=True, append_images=[frames[i] for i in (1, 1, 2, 3, 3)], duration=120, loop=0)
    yield "gif, equal neighbors merged", task("frames", twice, [path], path=path, duration="times"), {path: data}


def sounds():
    import soundfile

    source = "import numpy as np\nt = np.arange(16000) / 16000\ns = 0.4 * np.sin(2 * np.pi * (200 + 300 * t) * t) * np.linspace(0.1, 1, 16000)\nexpected = (np.stack([s, s[::-1]], axis=1), 16000)\n"
    names = {}
    exec(source, names)
    data, rate = names["expected"]
    for name, form, subtype in (("16 bit wav", "WAV", "PCM_16"), ("24 bit wav", "WAV", "PCM_24"), ("float wav", "WAV", "FLOAT"), ("flac", "FLAC", "PCM_16"), ("ogg", "OGG", "VORBIS"), ("mp3", "MP3", "MPEG_LAYER_III")):  # fmt: skip
        path, out = f"output/s.{form.lower()}", io.BytesIO()
        soundfile.write(out, data, rate, format=form, subtype=subtype)
        lossy = {"duration": 0.15, "shift": 0.05, "level": 0.5, "correlation": 0.99}
        spec = lossy if form in ("MP3", "OGG") else {"subtype": subtype} if form == "WAV" else {}
        yield name, task("audio", source, [path], path=path, **spec), {path: out.getvalue()}


def codes():
    import qrcode

    path = "output/q.png"
    for name, value in (("address", "https://example.org/a?b=1"), ("words", "Hello, World"), ("chinese", "你好，世界"), ("digits", "0123456789")):
        yield name, task("qr", f"expected = {value!r}", [path], path=path, quiet_zone=4.0), {path: saved(qrcode.make(value).convert("RGB"), "PNG")}
    code = qrcode.make("on a picture").convert("RGB").resize((200, 200))
    page = Image.new("RGB", (400, 500), "white")
    page.paste(code, (100, 150))
    yield "on a page", task("qr", "expected = 'on a picture'", [path], path=path), {path: saved(page, "PNG")}


def pdfs():
    import fpdf
    import pymupdf
    from reportlab.pdfgen import canvas

    path, strings = "output/p.pdf", ["Annual Report", "Total: 1,234.50", "The end of it all"]
    given = task("pdf", f"expected = {strings!r}\npages = 2", [path], path=path, pages="pages")
    out = io.BytesIO()
    page = canvas.Canvas(out)
    for i, string in enumerate(strings):
        page.drawString(72, 700 - 30 * i, string)
        if i == 1:
            page.showPage()
    page.save()
    yield "reportlab", given, {path: out.getvalue()}
    page = fpdf.FPDF()
    page.set_font("Helvetica", size=12)
    for part in (strings[:2], strings[2:]):
        page.add_page()
        for string in part:
            page.multi_cell(40, 8, string, new_x="LMARGIN", new_y="NEXT")
    yield "fpdf, wrapped", given, {path: bytes(page.output())}
    document = pymupdf.open()
    for part in (strings[:2], strings[2:]):
        document.new_page().insert_text((72, 72), part)
    yield "pymupdf", given, {path: document.tobytes()}
    document = pymupdf.open()
    for part in (strings[:2], strings[2:]):
        page = document.new_page()
        page.draw_rect((50, 50, 500, 120), color=(0, 0, 0.4), fill=(0, 0, 0.4))
        page.insert_text((72, 72), part, color=(1, 1, 1))
    by_page = task("pdf", f"expected = {[strings[:2], strings[2:]]!r}\npages = 2", [path], path=path, pages="pages", lines=True)
    yield "by page and line, white on blue", by_page, {path: document.tobytes()}


def documents():
    import docx

    path = "output/d.docx"
    contents = {"headings": ["Report", "Details"], "paragraphs": ["All is well.", "Nothing else."], "tables": [[["a", "b"], ["1", "2.50"], ["3", "4"]]]}
    given = task("docx", f"expected = {contents!r}", [path], path=path)
    from mutate.docx import make

    yield "plain", given, {path: make(contents)}
    document = docx.Document()
    document.add_heading("Report", 0)
    document.add_paragraph("All is").add_run(" well.").bold = True
    document.add_heading("Details", 2)
    table = document.add_table(3, 2, style="Table Grid")
    for i, row in enumerate(contents["tables"][0]):
        for j, cell in enumerate(row):
            table.rows[i].cells[j].paragraphs[0].add_run(cell.replace("2.50", "2.5"))
    document.add_paragraph("An extra remark.")
    document.add_paragraph("Nothing else.")
    out = io.BytesIO()
    document.save(out)
    yield "styled", given, {path: out.getvalue()}
    from mutate.docx import make_parts

    parts = [{"heading": "Report"}, {"paragraph": "All is well."}, {"heading": "Details"}, {"table": contents["tables"][0]}]
    yield "parts in order", task("docx", f"expected = {{'parts': {parts!r}}}", [path], path=path), {path: make_parts(parts)}


def pages():
    path = "output/h.html"
    contents = {"title": "Report & more", "tables": [[["a", "b"], ["1", "2.5"]]], "texts": ["All is well", "The end"], "selectors": {"h1": "All is well", "li.item": 2, "li": ["x", "y"], "tr": 2}}
    given = task("html", f"expected = {contents!r}", [path], path=path)
    body = "<h1>All is well</h1><ul><li class=item>x<li class='item b'>y</ul><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td> 2.50 </td></tr></table><p>The\nend</p>"
    yield "short", given, {path: f"<title>Report &amp; more</title>{body}".encode()}
    full = f"<!DOCTYPE html>\n<html><head><meta charset='utf-8'><title> Report &amp; more\n</title><style>p {{}}</style></head><body>{body.replace('<tr>', '<tbody><tr>', 1)}</body></html>"
    yield "full", given, {path: full.encode()}


def recorder(folder):
    """Records the figures that are saved below the folder from here on; gives the list of them."""
    import charts

    claims = []
    charts.install(lambda path, record: claims.append({"path": path, "figure": json.loads(json.dumps(record))}), folder)
    return claims


def charts(every=29):
    """Honest charts of chart_cases.py, with their records."""
    import chart_cases

    folder = tempfile.mkdtemp()
    claims = recorder(folder)
    for i, case in enumerate(chart_cases.CASES):
        for j, way in enumerate(chart_cases.WAYS):
            if (i + 3 * j) % every == 0:
                kind, expected, path, claim = chart_cases.draw(case, way, folder, claims)
                given = task("plot", f"import numpy as np\nexpected = {expected!r}", [path], path=path, kind=kind)
                yield f"{case.__name__}, {way[0]}", given, {path: Path(folder, path).read_bytes()}, "", [claim]


JUDGED = """
rows = [3, 9, 12]

def told(work):
    work.brief(200)
    work.facts([sum(rows), ("mean of eight", "mean is 8"), len(rows)], 3)

def table(work):
    work.need([r["n"] for r in work.rows("output/*.csv")] == rows, "other rows")

def picture(work):
    work.need(work.pixels("output/p.png").shape == (60, 90, 3), "another size")
    work.varied("output/p.png")
    work.need(float(work.pixels("output/p.png")[59, 89].min()) > 200, "the last corner is dark")
    work.need(float(work.pixels("output/p.png")[0, 0, :2].max()) < 20, "the first corner is light")
    work.need(work.pixels("output/p.png")[29, 44, 0] < work.pixels("output/p.png")[31, 46, 0] <= 150, "the middle is broken")
"""


def properties():
    def judged(name, outputs=(), **spec):
        made = task("property", JUDGED, outputs, holds=name, **spec)
        del made["checks"][0]["expected"]
        return made

    yield "answer", judged("told"), {}, "The total of 3 values is 24, and their mean is 8."
    yield "table", judged("table", ["output/p.csv"], path="output/*.csv"), {"output/p.csv": b"n,m\n3,1\n9,2\n12,3\n"}
    image = np.asarray(picture()).copy()
    image[..., 2] = 230
    yield "picture", judged("picture", ["output/p.png"], path="output/p.png"), {"output/p.png": saved(Image.fromarray(image), "PNG")}


KINDS = {
    "table": tables, "number": answers, "values": lists, "denotation": denotations, "symbolic": formulas, "text": texts, "json": jsons, "image": images, "frames": animations,
    "audio": sounds, "qr": codes, "pdf": pdfs, "docx": documents, "html": pages, "plot": charts, "property": properties,
}  # fmt: skip


def candidate(folder, files, answer="", claims=()):
    """A candidate folder."""
    from common import Candidate

    for path, data in files.items():
        full = os.path.join(folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        Path(full).write_bytes(data)
    return Candidate(folder, answer, claims)
