"""Makes the sample files beside it: small, of many types, our own content, CC0-1.0.

    python data/samples/make.py

Deterministic: the same environment writes the same bytes. Needs the project's Python environment
(pandas, openpyxl, pyarrow, reportlab, python-docx, Pillow, soundfile) and ffmpeg for ogg and mp4.
"""

import io
import json
import math
import random
import sqlite3
import subprocess
import zipfile
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pandas as pd
import soundfile
from PIL import Image, ImageDraw

import texts

HERE = Path(__file__).parent
FILES = HERE / "files"


def main():
    FILES.mkdir(exist_ok=True)
    for old in FILES.iterdir():
        old.unlink()
    tables()
    documents()
    pictures()
    sounds()


# --- tables ---------------------------------------------------------------------------------------


def tables():
    rng = random.Random(1)
    customers = customer_table(rng)
    orders = order_table(rng, customers)
    csv(customers, "customers.csv")
    csv(orders, "orders.csv")
    csv(weather_table(rng), "weather.csv")
    csv(students_table(rng), "students.csv")
    csv(sensor_table(), "sensors.csv")
    csv(houses_table(), "houses.csv")
    csv(bikes_table(rng), "bike_counts.csv", sep=";")
    csv(stores_zh(rng), "stores_zh.csv")
    csv(exams_zh(rng), "exams_zh.csv", encoding="gb18030")
    csv(inventory_table(rng), "inventory.tsv", sep="\t")
    csv(runs_table(rng), "runs.tsv", sep="\t")
    xlsx({"budget": budget_table(rng)}, "budget.xlsx")
    xlsx({"projects": projects_table(rng), "people": customers.head(12)}, "projects.xlsx")
    books = books_table(rng)
    write("books.json", books.to_json(orient="records", indent=1, force_ascii=False))
    write("rainfall.json", rainfall_table(rng).to_json(orient="records"))
    write("settings.json", json.dumps(SETTINGS, indent=2))
    write("events.jsonl", events_table(rng).to_json(orient="records", lines=True))
    write("reviews.jsonl", reviews_table(rng).to_json(orient="records", lines=True, force_ascii=False))
    trips_table(rng).to_parquet(FILES / "trips.parquet", index=False, compression="zstd")
    energy_table(rng).to_parquet(FILES / "energy.parquet", index=False, compression="zstd")
    database(books, rng)


def csv(frame, name, sep=",", encoding="utf-8"):
    frame.to_csv(FILES / name, index=False, sep=sep, encoding=encoding, lineterminator="\n")


def write(name, text):
    (FILES / name).write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def days(first, count):
    return [(first + timedelta(days=n)).isoformat() for n in range(count)]


NAMES = ["Ada", "Bo", "Chen", "Dara", "Emil", "Fatma", "Goran", "Hana", "Ines", "Jun", "Kofi", "Lena",
         "Milo", "Nadia", "Omar", "Pia", "Quinn", "Rosa", "Sven", "Tala", "Uma", "Viktor", "Wen", "Yara"]


def customer_table(rng):
    rows = []
    for n in range(48):
        rows.append({
            "customer_id": 1001 + n,
            "name": f"{NAMES[n % 24]} {'ABCDEFGHKLMNPRSTVW'[(n * 7) % 18]}.",
            "city": rng.choice(["Lindau", "Marden", "Oster", "Pellworm", "Quarn"]),
            "joined": (date(2021, 1, 4) + timedelta(days=rng.randrange(1100))).isoformat(),
            "age": rng.randint(19, 78),
            "newsletter": rng.random() < 0.55,
        })
    return pd.DataFrame(rows)


def order_table(rng, customers):
    prices = {"tea": 6.4, "kettle": 39.0, "cup": 8.5, "filter": 3.2, "tin": 11.9, "spoon": 4.75}
    rows = []
    for n in range(160):
        product = rng.choice(list(prices))
        rows.append({
            "order_id": f"A{5000 + n}",
            "customer_id": int(rng.choice(list(customers.customer_id))),
            "date": (date(2024, 1, 2) + timedelta(days=n * 2 + rng.randrange(3))).isoformat(),
            "product": product,
            "units": rng.randint(1, 12),
            "unit_price": prices[product],
            "discount": rng.choice([None, None, 0.05, 0.1, 0.2]),
            "channel": rng.choice(["shop", "web", "phone"]),
        })
    frame = pd.DataFrame(rows)
    frame["total"] = (frame.units * frame.unit_price * (1 - frame.discount.fillna(0))).round(2)
    return frame


def weather_table(rng):
    rows = []
    for city, base in [("Lindau", 9.0), ("Oster", 6.5), ("Quarn", 12.0)]:
        for n, day in enumerate(days(date(2024, 1, 1), 61)):
            low = base + 8 * math.sin((n - 100) / 58.0) + rng.gauss(0, 2)
            rows.append({
                "date": day, "city": city,
                "temp_min": round(low, 1), "temp_max": round(low + rng.uniform(3, 9), 1),
                "rain_mm": round(max(0.0, rng.gauss(1.5, 3)), 1),
                "wind_kmh": rng.randint(2, 48) if rng.random() > 0.06 else None,
            })
    return pd.DataFrame(rows)


def students_table(rng):
    rows = []
    for n in range(52):
        score = lambda: rng.randint(38, 100) if rng.random() > 0.08 else None  # noqa: E731
        rows.append({"student": f"S{n + 1:03}", "class": rng.choice(["7a", "7b", "7c"]),
                     "math": score(), "biology": score(), "history": score(),
                     "hours": round(rng.uniform(0.5, 14), 1)})
    rows += [rows[3], rows[17], rows[17], rows[40], rows[8]]
    return pd.DataFrame(rows).astype({"math": "Int64", "biology": "Int64", "history": "Int64"})


def sensor_table():
    rng = np.random.default_rng(2)
    n = 180
    load, humidity = rng.uniform(10, 90, n), rng.uniform(20, 80, n)
    age = rng.integers(1, 15, n)
    power = 4.2 * load - 1.1 * humidity + 9.0 * age + rng.normal(0, 12, n) + 150
    power[[20, 77, 140]] += 400
    return pd.DataFrame({"sensor": [f"n{i % 6 + 1}" for i in range(n)], "load": load.round(2),
                         "humidity": humidity.round(2), "age": age, "power": power.round(2),
                         "alarm": power > 420})


def houses_table():
    rng = np.random.default_rng(3)
    n = 150
    area, rooms = rng.uniform(35, 190, n), rng.integers(1, 8, n)
    distance, built = rng.uniform(0.3, 18, n), rng.integers(1920, 2023, n)
    district = rng.choice(["north", "south", "old town", "harbour"], n)
    price = 2100 * area + 9000 * rooms - 5200 * distance + 400 * (built - 1920) + rng.normal(0, 15000, n)
    return pd.DataFrame({"district": district, "area_m2": area.round(1), "rooms": rooms,
                         "distance_km": distance.round(2), "built": built, "price": price.round(0).astype(int)})


def bikes_table(rng):
    rows = [{"day": day, "bridge": rng.randint(800, 4200), "park": rng.randint(300, 2500),
             "station": rng.randint(1200, 5200), "weekday": datetime.fromisoformat(day).strftime("%A")}
            for day in days(date(2023, 5, 1), 92)]
    return pd.DataFrame(rows)


def stores_zh(rng):
    rows = [{"门店": f"第{n + 1}店", "城市": rng.choice(["临江", "东岭", "白沙", "青石"]),
             "开业日期": (date(2016, 3, 1) + timedelta(days=rng.randrange(2800))).isoformat(),
             "面积": rng.randint(40, 320), "员工": rng.randint(3, 26),
             "月销售额": round(rng.uniform(4, 68), 2)} for n in range(56)]
    return pd.DataFrame(rows)


def exams_zh(rng):
    rows = [{"学号": 20240101 + n, "班级": rng.choice(["一班", "二班", "三班"]), "语文": rng.randint(55, 100),
             "数学": rng.randint(48, 100), "英语": rng.randint(50, 100)} for n in range(60)]
    return pd.DataFrame(rows)


def inventory_table(rng):
    rows = [{"sku": f"P-{n + 100}", "category": rng.choice(["screw", "board", "paint", "lamp"]),
             "stock": rng.randint(0, 900), "reorder": rng.choice([20, 50, 100]),
             "cost": round(rng.uniform(0.1, 48), 2), "supplier": rng.choice(["Harms", "Ito", "Lund"])}
            for n in range(72)]
    return pd.DataFrame(rows)


def runs_table(rng):
    rows = [{"runner": rng.choice(NAMES), "distance_km": round(rng.uniform(3, 24), 1),
             "minutes": round(rng.uniform(16, 150), 1), "heart_rate": rng.randint(110, 182),
             "surface": rng.choice(["road", "trail", "track"])} for _ in range(64)]
    return pd.DataFrame(rows)


def budget_table(rng):
    rows = [{"Department": d, "Quarter": f"Q{q}", "Year": y, "Planned": rng.randint(20, 240) * 100,
             "Spent": rng.randint(18, 260) * 100} for y in (2022, 2023, 2024)
            for d in ("Library", "Parks", "School", "Roads") for q in (1, 2, 3, 4)]
    return pd.DataFrame(rows)


def projects_table(rng):
    rows = [{"Project": f"Project {n + 1}", "Lead": rng.choice(NAMES), "Hours": rng.randint(12, 480),
             "Rate": rng.choice([55, 70, 85.5]), "Status": rng.choice(["open", "done", "paused"]),
             "Score": round(rng.uniform(1, 5), 1)} for n in range(46)]
    return pd.DataFrame(rows)


def books_table(rng):
    adjectives, nouns = ["Quiet", "Second", "Northern", "Paper", "Hollow"], ["River", "Garden", "Letter", "Engine", "Winter"]
    rows = [{"id": n + 1, "title": f"The {rng.choice(adjectives)} {rng.choice(nouns)} {n + 1}",
             "author": f"{rng.choice(NAMES)} {rng.choice(NAMES)}son", "year": rng.randint(1950, 2023),
             "pages": rng.randint(90, 720), "genre": rng.choice(["novel", "essay", "poetry", "travel"]),
             "rating": round(rng.uniform(2, 5), 2) if rng.random() > 0.1 else None} for n in range(50)]
    return pd.DataFrame(rows)


def rainfall_table(rng):
    rows = [{"station": s, "month": m, "rain_mm": round(rng.uniform(8, 140), 1), "days": rng.randint(3, 21)}
            for s in ("Alm", "Bach", "Kamm", "Tal") for m in range(1, 13)]
    return pd.DataFrame(rows)


def events_table(rng):
    start = datetime(2024, 6, 3, 8, 0)
    rows = [{"stamp": (start + timedelta(minutes=7 * n)).isoformat(), "user": f"u{rng.randint(1, 19)}",
             "action": rng.choice(["open", "search", "save", "close"]), "ms": rng.randint(12, 2400),
             "ok": rng.random() > 0.08} for n in range(120)]
    return pd.DataFrame(rows)


def reviews_table(rng):
    good = ["Arrived early and works well.", "很好用，推荐。", "Better than the old one.", "质量不错，就是有点重。"]
    bad = ["The lid does not close.", "包装破了。", "Stopped working after a week.", "颜色和图片不一样。"]
    rows = []
    for n in range(60):
        stars = rng.randint(1, 5)
        rows.append({"review": n + 1, "product": rng.choice(["kettle", "cup", "tin"]), "stars": stars,
                     "text": rng.choice(good if stars > 2 else bad), "helpful": rng.randint(0, 40)})
    return pd.DataFrame(rows)


def trips_table(rng):
    rows = [{"trip": n + 1, "line": rng.choice(["N1", "N2"]), "passengers": rng.randint(0, 61),
             "delay_min": round(rng.gauss(2, 4), 1), "rain": rng.random() < 0.3} for n in range(140)]
    return pd.DataFrame(rows)


def energy_table(rng):
    rows = [{"hour": n, "solar_kw": round(max(0, 40 * math.sin((n % 24 - 6) / 12 * math.pi)) * rng.uniform(0.4, 1), 2),
             "demand_kw": round(30 + 12 * math.sin((n % 24 - 9) / 24 * 2 * math.pi) + rng.gauss(0, 3), 2)}
            for n in range(168)]
    return pd.DataFrame(rows)


def database(books, rng):
    path = FILES / "library.sqlite"
    with sqlite3.connect(path) as con:
        con.execute("CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT, author TEXT, year INTEGER, "
                    "pages INTEGER, genre TEXT, rating REAL)")
        con.executemany("INSERT INTO books VALUES (?,?,?,?,?,?,?)",
                        [tuple(None if pd.isna(v) else v for v in row) for row in books.itertuples(index=False)])
        con.execute("CREATE TABLE loans (book_id INTEGER, borrower TEXT, days INTEGER)")
        con.executemany("INSERT INTO loans VALUES (?,?,?)",
                        [(rng.randint(1, 50), rng.choice(NAMES), rng.randint(1, 40)) for _ in range(90)])
    con.close()


SETTINGS = {"name": "greenhouse", "version": 3, "limits": {"temperature": [12, 31], "humidity": [40, 75]},
            "zones": [{"id": "a", "plants": ["tomato", "basil"]}, {"id": "b", "plants": ["cucumber"]}],
            "notes": "Zone b is closed in winter; the heater there is slow and must be started an hour early."}


# --- documents ------------------------------------------------------------------------------------


def documents():
    for name, text in [("harbour_clock.txt", texts.HARBOUR), ("roof_bees.txt", texts.BEES),
                       ("night_bus.txt", texts.ROUTES), ("mountain_tea_zh.txt", texts.TEA_ZH),
                       ("wooden_bridge_zh.txt", texts.BRIDGE_ZH), ("weather_stations.md", texts.GUIDE_MD),
                       ("tofu_zh.md", texts.RECIPE_MD_ZH), ("server_log.txt", log_text())]:
        write(name, text)
    write("timetable.html", timetable())
    write("bees.html", article())
    for name, parts in [("repair_cafe.pdf", texts.REPORT), ("pump_manual.pdf", texts.MANUAL),
                        ("lift_letter.pdf", texts.LETTER), ("choir_agenda.pdf", texts.AGENDA)]:
        pdf(name, parts)
    docx("garden_minutes.docx", texts.MINUTES)
    docx("reading_room.docx", texts.PLAN, [["Phase", "Who", "Days"], ["Pack", "volunteers", "4"],
                                           ["Carry", "students", "2"], ["Sort", "librarians", "6"]])
    docx("library_move_zh.docx", texts.PLAN_ZH)
    write("notebook.ipynb", json.dumps(notebook(RAIN_CELLS), indent=1))
    write("tides.ipynb", json.dumps(notebook(TIDE_CELLS), indent=1))
    write("nightly.log", job_log())
    write("greenhouse.yaml", texts.GREENHOUSE_YAML)
    write("kiosk.ini", texts.KIOSK_INI)
    write("orchard.xml", orchard())
    write("ferry.eml", mail())
    pptx("choir_year.pptx", texts.SLIDES)
    write("chart.svg", chart_svg())


def log_text():
    rng, start = random.Random(7), datetime(2024, 9, 2, 6, 0)
    lines = []
    for n in range(150):
        stamp = (start + timedelta(seconds=41 * n)).strftime("%Y-%m-%d %H:%M:%S")
        level = rng.choices(["INFO", "WARN", "ERROR"], [80, 14, 6])[0]
        word = {"INFO": "request served", "WARN": "slow answer", "ERROR": "connection lost"}[level]
        lines.append(f"{stamp} {level} host-{rng.randint(1, 5)} {word} in {rng.randint(3, 900)} ms")
    return "\n".join(lines)


def timetable():
    rows = "".join(f"<tr><td>{stop}</td><td>{h}:{m:02}</td><td>{fare}</td></tr>" for stop, h, m, fare in
                   [("Quay", 6, 5, 1.8), ("School", 6, 14, 1.8), ("Hospital", 6, 22, 2.4), ("Market", 6, 31, 2.4),
                    ("Mill", 6, 40, 3.1), ("Forest", 6, 52, 3.1), ("Lake", 7, 4, 3.9)])
    return ("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Timetable</title></head><body>"
            "<h1>Morning bus</h1><p>The bus runs on working days. Dogs travel free of charge.</p><table><tr>"
            "<th>Stop</th><th>Departure</th><th>Fare</th></tr>" + rows + "</table>"
            "<h2>Notes</h2><p>Fares are in the local currency. See also <a href=\"https://example.org/fares\">all fares"
            "</a> and <a href=\"https://example.org/stops\">all stops</a>.</p></body></html>")


def article():
    title, *paragraphs = [p.strip() for p in texts.BEES.split("\n\n")]
    body = "".join(f"<p>{p}</p>\n" for p in paragraphs)
    return (f"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title></head>\n<body>"
            f"<h1>{title}</h1>\n{body}<ul><li>stand</li><li>water</li><li>notes</li></ul></body></html>")


def pdf(name, parts):
    from reportlab.lib.pagesizes import A5
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import PageBreak, Paragraph, SimpleDocTemplate

    styles, flow = getSampleStyleSheet(), []
    for number, (heading, text) in enumerate(parts):
        if number and number % 2 == 0:
            flow.append(PageBreak())
        flow += [Paragraph(heading, styles["Heading1"]), Paragraph(text, styles["BodyText"])]
    SimpleDocTemplate(str(FILES / name), pagesize=A5, invariant=1, title=parts[0][0]).build(flow)


def job_log():
    """A log whose lines have no time, so that some of them are equal."""
    rng, lines = random.Random(11), []
    for _ in range(90):
        job = rng.choice(["backup", "mail", "index", "report"])
        level, word = rng.choices([("INFO", "finished"), ("DEBUG", "started"), ("WARNING", "was slow"), ("ERROR", "failed")], [50, 25, 15, 10])[0]
        lines.append(f"{level} {job} job {word}")
        if level == "ERROR":
            lines += ["    no further errors in this run", "", f"INFO {job} job repeated after ERROR"]
    return "\n".join(lines)


def orchard():
    rng, parts = random.Random(12), []
    for row in "ABC":
        trees = "".join(f'<tree kind="{rng.choice(["apple", "pear", "plum"])}"><height unit="m">{rng.randint(20, 60) / 10}</height></tree>'
                        for _ in range(rng.randint(3, 6)))
        parts.append(f'  <row name="{row}">{trees}<bench/></row>')
    return '<?xml version="1.0" encoding="UTF-8"?>\n<orchard xmlns="https://example.org/orchard">\n' + "\n".join(parts) + "\n</orchard>"


def mail():
    from email.message import EmailMessage
    from email.policy import SMTP

    message = EmailMessage(policy=SMTP.clone(linesep="\n"))
    message["From"] = "Jonas Fähr <jonas@example.org>"
    message["To"] = "Ada <ada@example.org>, crew@example.org"
    message["Subject"] = "Fahrplan für den Frühling"
    message["Date"] = datetime(2024, 3, 4, 9, 30, tzinfo=timezone.utc)
    message.set_content(texts.FERRY)
    message.add_attachment("stop,time\nquay,08:10\nisland,08:35\n", subtype="csv", filename="timetable.csv")
    message.add_attachment("Wear a life vest.\n", filename="rules.txt")
    for part in (message, *message.iter_parts()):
        if part.is_multipart():
            part.set_boundary("=-ferry-=")
    return message.as_string()


def pptx(name, slides):
    from pptx import Presentation

    deck = Presentation()
    deck.core_properties.created = deck.core_properties.modified = datetime(2024, 1, 1)
    for title, lines in slides:
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = "\n".join(lines)
    buffer = io.BytesIO()
    deck.save(buffer)
    repack(buffer.getvalue(), name)


def docx(name, parts, table=None):
    from docx import Document

    document = Document()
    document.core_properties.created = document.core_properties.modified = datetime(2024, 1, 1)
    for text, style in parts:
        document.add_paragraph(text, style=style)
    if table:
        grid = document.add_table(rows=0, cols=len(table[0]))
        for row in table:
            for cell, text in zip(grid.add_row().cells, row):
                cell.text = text
    buffer = io.BytesIO()
    document.save(buffer)
    repack(buffer.getvalue(), name)


def xlsx(sheets, name):
    buffer = io.BytesIO()
    with pd.ExcelWriter(buffer, engine="openpyxl") as writer:
        for sheet, frame in sheets.items():
            frame.to_excel(writer, sheet_name=sheet, index=False)
        writer.book.properties.created = datetime(2024, 1, 1)
    repack(buffer.getvalue(), name)


def repack(data, name):
    """Office packages carry the time of writing: pack them again without it."""
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(FILES / name, "w", zipfile.ZIP_DEFLATED) as target:
        for item in source.infolist():
            content = source.read(item)
            if item.filename == "docProps/core.xml":
                import re
                content = re.sub(rb"(<dcterms:modified[^>]*>)[^<]*", rb"\g<1>2024-01-01T00:00:00Z", content)
            target.writestr(zipfile.ZipInfo(item.filename, (2024, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)


RAIN_CELLS = [
    ("markdown", "# Rain and bicycles\nDoes rain keep people from cycling?"),
    ("code", "import pandas as pd\ncounts = pd.read_csv('bike_counts.csv', sep=';')\ncounts.describe()"),
    ("markdown", "## Result\nThe bridge is used twice as much as the park."),
    ("code", "counts[['bridge', 'park', 'station']].mean().round(1)"),
]

TIDE_CELLS = [
    ("markdown", "# Tides\nWhen can the ferry land?"),
    ("code", "%matplotlib inline\nimport json\nimport os.path\nfrom math import pi, sin"),
    ("code", "from datetime import datetime, timedelta\nimport numpy as np\n\n"
             "def tide(hours):\n    import math\n    return 1.8 * math.sin(2 * math.pi * hours / 12.4)"),
    ("code", "hours = np.arange(0, 25)\nlevels = [round(tide(h), 2) for h in hours]\nprint(json.dumps(levels))"),
    ("markdown", "The ferry lands above half a metre."),
    ("code", "import numpy.linalg\nprint(sum(level > 0.5 for level in levels), os.path.exists('tides.json'))"),
]


def notebook(cells):
    def cell(kind, source):
        extra = {"outputs": [], "execution_count": None} if kind == "code" else {}
        return {"cell_type": kind, "id": f"c{len(source):04x}", "metadata": {}, "source": source, **extra}

    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"language_info": {"name": "python"}},
            "cells": [cell(kind, source) for kind, source in cells]}


def chart_svg():
    bars = "".join(f"<rect x=\"{20 + 40 * n}\" y=\"{120 - h}\" width=\"30\" height=\"{h}\" fill=\"#3a7\"/>"
                   f"<text x=\"{22 + 40 * n}\" y=\"135\">{label}</text>"
                   for n, (label, h) in enumerate([("Mon", 40), ("Tue", 75), ("Wed", 58), ("Thu", 96), ("Fri", 22)]))
    return ("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"240\" height=\"150\"><title>Visitors by day</title>"
            f"{bars}</svg>")


# --- pictures -------------------------------------------------------------------------------------


def pictures():
    scene(1, (320, 220)).save(FILES / "hills.png")
    scene(2, (260, 300)).save(FILES / "valley.png")
    scene(3, (400, 260)).save(FILES / "coast.jpg", quality=88)
    scene(4, (300, 200)).save(FILES / "evening.jpg", quality=85)
    shapes(5, (240, 180)).save(FILES / "shapes.png")
    shapes(6, (200, 260)).save(FILES / "blocks.jpg", quality=90)
    shapes(7, (180, 180)).convert("L").save(FILES / "grey_shapes.png")
    gradient((256, 160)).save(FILES / "gradient.png")
    gradient((200, 120)).rotate(7).save(FILES / "tilted.jpg", quality=90)
    overlay().save(FILES / "badge.png")
    shapes(8, (120, 90)).save(FILES / "tiles.bmp")
    scene(9, (240, 160)).save(FILES / "meadow.webp", quality=80)
    animation("bouncing.gif", 12, (120, 80))
    animation("drifting.gif", 8, (96, 96))


def scene(seed, size):
    rng, (w, h) = random.Random(seed), size
    y = np.linspace(0, 1, h)[:, None, None]
    top, bottom = np.array([[[90, 140, 210]]]), np.array([[[230, 210, 170]]])
    picture = Image.fromarray(np.broadcast_to(top * (1 - y) + bottom * y, (h, w, 3)).astype(np.uint8))
    draw = ImageDraw.Draw(picture)
    sun = (int(w * rng.uniform(0.6, 0.85)), int(h * 0.2))
    draw.ellipse([sun[0] - 18, sun[1] - 18, sun[0] + 18, sun[1] + 18], fill=(250, 230, 120))
    for layer in range(4):
        phase, base = rng.uniform(0, 6), h * (0.5 + 0.12 * layer)
        line = [(x, base - 18 * math.sin(x / (25 + 9 * layer) + phase) - 0.06 * x) for x in range(0, w + 8, 8)]
        draw.polygon([(0, h), *line, (w, h)], fill=(60 - 8 * layer, 120 - 15 * layer, 70 + 5 * layer))
    return picture


def shapes(seed, size):
    rng, (w, h) = random.Random(seed), size
    picture = Image.new("RGB", size, (244, 240, 230))
    draw = ImageDraw.Draw(picture)
    for n in range(9):
        x, y, r = rng.randrange(w), rng.randrange(h), rng.randint(10, 40)
        colour = tuple(rng.randrange(30, 230) for _ in range(3))
        (draw.ellipse if n % 2 else draw.rectangle)([x - r, y - r // 2, x + r, y + r], fill=colour)
    draw.rectangle([4, 4, w // 5, h // 8], fill=(200, 40, 40))
    return picture


def gradient(size):
    w, h = size
    x, y = np.meshgrid(np.linspace(0, 255, w), np.linspace(0, 255, h))
    return Image.fromarray(np.dstack([x, y, (x + 2 * y) / 3]).astype(np.uint8))


def overlay():
    picture = Image.new("RGBA", (140, 140), (0, 0, 0, 0))
    draw = ImageDraw.Draw(picture)
    draw.ellipse([10, 10, 130, 130], fill=(40, 90, 160, 255))
    draw.polygon([(40, 100), (60, 40), (105, 85)], fill=(250, 220, 90, 200))
    return picture


def animation(name, count, size):
    frames = []
    for n in range(count):
        frame = Image.new("RGB", size, (30, 40, 60))
        x, y = 10 + n * (size[0] - 40) // count, 20 + int(24 * abs(math.sin(n / 2)))
        ImageDraw.Draw(frame).ellipse([x, y, x + 20, y + 20], fill=(240, 180 - 6 * n, 60))
        frames.append(frame)
    frames[0].save(FILES / name, save_all=True, append_images=frames[1:], duration=90, loop=0)


# --- sounds ---------------------------------------------------------------------------------------


def sounds():
    rate = 16000
    soundfile.write(FILES / "melody.wav", melody([440, 494, 523, 587], 0.35, rate), rate, subtype="PCM_16")
    soundfile.write(FILES / "chirp.wav", chirp(1.2, rate), rate, subtype="PCM_16")
    stereo = np.column_stack([melody([330, 392], 0.5, rate), melody([262, 196], 0.5, rate)])
    soundfile.write(FILES / "stereo.wav", stereo, rate, subtype="PCM_16")
    soundfile.write(FILES / "scale.flac", melody([262, 294, 330, 349, 392], 0.25, rate), rate)
    soundfile.write(FILES / "drops.flac", chirp(0.9, rate)[::-1], rate)
    for name, sound in [("tune.mp3", melody([523, 392, 440, 349], 0.5, rate)), ("sweep.mp3", chirp(2.0, rate)),
                        ("bells.ogg", melody([659, 523, 587, 392], 0.45, rate)), ("rise.ogg", chirp(1.6, rate)),
                        ("tone.mp4", melody([440, 330], 0.6, rate))]:
        encode(sound, rate, name)


def melody(notes, seconds, rate):
    t = np.arange(int(seconds * rate)) / rate
    envelope = np.minimum(1, t * 40) * np.exp(-3 * t)
    return 0.6 * np.concatenate([envelope * (np.sin(2 * np.pi * f * t) + 0.3 * np.sin(4 * np.pi * f * t)) for f in notes])


def chirp(seconds, rate):
    t = np.arange(int(seconds * rate)) / rate
    return 0.5 * np.sin(2 * np.pi * (200 * t + 400 * t * t)) * np.minimum(1, (seconds - t) * 20)


def encode(sound, rate, name):
    buffer = io.BytesIO()
    soundfile.write(buffer, sound, rate, format="WAV", subtype="PCM_16")
    subprocess.run(["ffmpeg", "-loglevel", "error", "-y", "-i", "-", "-map_metadata", "-1", "-fflags", "+bitexact",
                    "-flags:a", "+bitexact", *(["-c:a", "libvorbis"] if name.endswith("ogg") else []),
                    str(FILES / name)], input=buffer.getvalue(), check=True)


if __name__ == "__main__":
    main()
