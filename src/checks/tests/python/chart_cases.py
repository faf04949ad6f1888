"""Honest charts in many styles, each with the reference that a check holds against it."""

import os

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

CITIES = ["Oslo", "Rome", "Lima", "Cairo", "Perth"]
VALUES = [12.5, 31.0, 7.25, 22.0, 17.5]
OTHER = [9.0, 14.0, 28.5, 3.0, 11.0]
DATES = pd.date_range("2023-01-01", periods=24, freq="MS")


def series(x, y, name=None):
    return {"name": name, "x": list(x), "y": [float(v) for v in y]}


ONE = [series(CITIES, VALUES)]
TWO = [series(CITIES, VALUES, "north"), series(CITIES, OTHER, "south")]


def walk(seed, n=40):
    return np.random.default_rng(seed).normal(size=n).cumsum() + 20


def frame():
    return pd.DataFrame({"north": VALUES, "south": OTHER}, index=CITIES)


def long():
    return frame().reset_index(names="city").melt("city", var_name="area", value_name="sales")


# Each case draws on the current figure and returns (kind, expected).


def bar():
    plt.bar(CITIES, VALUES)
    return "bar", ONE


def bar_labeled():
    bars = plt.bar(CITIES, VALUES, color="tab:green", edgecolor="black", width=0.6)
    plt.bar_label(bars)
    return "bar", ONE


def bar_colors():
    plt.bar(CITIES, VALUES, color=plt.cm.viridis(np.linspace(0, 1, 5)), alpha=0.8)
    return "bar", ONE


def barh():
    plt.barh(CITIES, VALUES, color="salmon")
    return "bar", ONE


def barh_inverted():
    plt.barh(CITIES, VALUES)
    plt.gca().invert_yaxis()
    return "bar", ONE


def bar_grouped():
    at = np.arange(5)
    plt.bar(at - 0.2, VALUES, 0.4, label="north")
    plt.bar(at + 0.2, OTHER, 0.4, label="south")
    plt.xticks(at, CITIES)
    plt.legend()
    return "bar", TWO


def bar_stacked():
    plt.bar(CITIES, VALUES, label="north")
    plt.bar(CITIES, OTHER, bottom=VALUES, label="south")
    plt.legend()
    return "bar", TWO


def bar_pandas():
    frame()["north"].plot(kind="bar", ax=plt.gca())
    return "bar", ONE


def bar_pandas_grouped():
    frame().plot.bar(ax=plt.gca(), rot=0)
    return "bar", TWO


def bar_pandas_stacked():
    frame().plot.barh(stacked=True, ax=plt.gca())
    return "bar", TWO


def bar_years():
    plt.bar([str(y) for y in range(2018, 2023)], VALUES)
    return "bar", [series(range(2018, 2023), VALUES)]


def bar_years_numeric():
    plt.bar(range(2018, 2023), VALUES)
    return "bar", [series(range(2018, 2023), VALUES)]


def bar_negative():
    plt.bar(CITIES, [3, -2, 5, -4.5, 1])
    plt.axhline(0, color="black")
    return "bar", [series(CITIES, [3, -2, 5, -4.5, 1])]


def bar_large():
    plt.bar(CITIES, np.array(VALUES) * 1e6)
    return "bar", [series(CITIES, np.array(VALUES) * 1e6)]


def bar_thousands():
    plt.bar(CITIES, np.array(VALUES) * 1e3)
    plt.gca().yaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
    return "bar", [series(CITIES, np.array(VALUES) * 1e3)]


def bar_log():
    plt.bar(CITIES, [1, 10, 300, 4000, 25])
    plt.yscale("log")
    return "bar", [series(CITIES, [1, 10, 300, 4000, 25])]


def bar_hatched():
    plt.bar(CITIES, VALUES, hatch="//", color="white", edgecolor="navy")
    return "bar", ONE


def bar_rotated():
    names = [f"a rather long name {c}" for c in CITIES]
    plt.bar(names, VALUES)
    plt.xticks(rotation=45, ha="right")
    return "bar", [series(names, VALUES)]


def bar_vertical_names():
    plt.bar(CITIES, VALUES)
    plt.xticks(rotation=90)
    return "bar", ONE


def bar_chinese():
    plt.rcParams["font.sans-serif"] = ["Noto Sans CJK JP", "Noto Sans CJK SC", "DejaVu Sans"]
    plt.bar(["北京", "上海", "广州"], [3, 5, 4])
    plt.title("销量")
    return "bar", [series(["北京", "上海", "广州"], [3, 5, 4])]


def bar_seaborn():
    import seaborn

    seaborn.barplot(x=CITIES, y=VALUES, ax=plt.gca())
    return "bar", ONE


def bar_seaborn_hue():
    import seaborn

    seaborn.barplot(long(), x="city", y="sales", hue="area", ax=plt.gca())
    return "bar", TWO


def bar_seaborn_palette():
    import seaborn

    seaborn.barplot(x=CITIES, y=VALUES, hue=CITIES, palette="viridis", legend=False, ax=plt.gca())
    return "bar", ONE


def bar_seaborn_count():
    import seaborn

    seaborn.countplot(x=["a"] * 5 + ["b"] * 3 + ["c"] * 8, ax=plt.gca())
    return "bar", [series("abc", [5, 3, 8])]


def line():
    plt.plot(range(40), walk(1))
    return "line", [series(range(40), walk(1))]


def line_markers():
    plt.plot(range(12), walk(2, 12), "o--", color="crimson", linewidth=2)
    return "line", [series(range(12), walk(2, 12))]


def line_two():
    plt.plot(range(40), walk(1), label="first")
    plt.plot(range(40), walk(2), label="second", linestyle=":")
    plt.legend(loc="best")
    return "line", [series(range(40), walk(1), "first"), series(range(40), walk(2), "second")]


def line_dates():
    plt.plot(DATES, walk(3, 24))
    plt.gcf().autofmt_xdate()
    return "line", [series([str(d.date()) for d in DATES], walk(3, 24))]


def line_dates_short():
    plt.plot(DATES[:5], walk(3, 5), marker="s")
    return "line", [series([str(d.date()) for d in DATES[:5]], walk(3, 5))]


def line_dates_formatted():
    plt.plot(DATES, walk(3, 24))
    plt.gca().xaxis.set_major_formatter(matplotlib.dates.DateFormatter("%b %Y"))
    plt.xticks(rotation=30)
    return "line", [series([str(d.date()) for d in DATES], walk(3, 24))]


def line_pandas_dates():
    pd.Series(walk(3, 24), index=DATES).plot(ax=plt.gca())
    return "line", [series([str(d.date()) for d in DATES], walk(3, 24))]


def line_pandas_daily():
    index = pd.date_range("2024-03-01", periods=60, freq="D")
    pd.Series(walk(4, 60), index=index).plot(ax=plt.gca())
    return "line", [series([str(d.date()) for d in index], walk(4, 60))]


def line_pandas_frame():
    frame().plot(ax=plt.gca(), marker="o")
    return "line", TWO


def line_categories():
    plt.plot(CITIES, VALUES, marker="o")
    return "line", ONE


def line_gaps():
    y = walk(5)
    y[10:13] = np.nan
    plt.plot(range(40), y)
    keep = ~np.isnan(y)
    return "line", [series(np.arange(40)[keep], y[keep])]


def line_years():
    plt.plot(range(1990, 2021), walk(6, 31))
    plt.axhline(20, color="grey", linestyle="--")
    return "line", [series(range(1990, 2021), walk(6, 31))]


def line_seaborn():
    import seaborn

    seaborn.lineplot(x=range(40), y=walk(7), ax=plt.gca())
    return "line", [series(range(40), walk(7))]


def line_seaborn_hue():
    import seaborn

    data = pd.concat([pd.DataFrame({"t": range(20), "v": walk(s, 20), "who": n}) for s, n in ((1, "ann"), (2, "bob"))])
    seaborn.lineplot(data, x="t", y="v", hue="who", ax=plt.gca())
    return "line", [series(range(20), walk(1, 20), "ann"), series(range(20), walk(2, 20), "bob")]


def line_log():
    plt.semilogy(range(1, 11), 2.0 ** np.arange(10))
    return "line", [series(range(1, 11), 2.0 ** np.arange(10))]


def line_huge():
    y = np.array([7, 2, 9, 4], dtype=np.uint64) * np.uint64(10**18)
    plt.plot([1, 2, 3, 4], y)
    return "line", [series([1, 2, 3, 4], y)]


def line_long():
    plt.plot(range(3000), walk(8, 3000), linewidth=0.8)
    return "line", [series(range(3000), walk(8, 3000))]


def line_band():
    y = walk(9)
    plt.plot(range(40), y)
    plt.fill_between(range(40), y - 1, y + 1, alpha=0.2)
    return "line", [series(range(40), y)]


def scatter():
    plt.scatter(walk(1), walk(2))
    return "scatter", [series(walk(1), walk(2))]


def scatter_colors():
    plt.scatter(walk(1), walk(2), c=walk(3), s=60, alpha=0.6, cmap="plasma")
    plt.colorbar(label="third")
    return "scatter", [series(walk(1), walk(2))]


def scatter_sizes():
    plt.scatter(walk(1), walk(2), s=np.linspace(10, 200, 40), edgecolors="k")
    return "scatter", [series(walk(1), walk(2))]


def scatter_plot():
    plt.plot(walk(1), walk(2), "x")
    return "scatter", [series(walk(1), walk(2))]


def scatter_two():
    plt.scatter(walk(1), walk(2), label="a", marker="^")
    plt.scatter(walk(3), walk(4), label="b")
    plt.legend()
    return "scatter", [series(walk(1), walk(2), "a"), series(walk(3), walk(4), "b")]


def scatter_fit():
    x, y = walk(1), walk(2)
    plt.scatter(x, y)
    a, b = np.polyfit(x, y, 1)
    plt.plot(np.sort(x), a * np.sort(x) + b, color="red")
    return "scatter", [series(x, y)]


def scatter_seaborn_hue():
    import seaborn

    data = pd.DataFrame({"x": walk(1), "y": walk(2), "who": ["ann", "bob"] * 20})
    seaborn.scatterplot(data, x="x", y="y", hue="who", ax=plt.gca())
    return "scatter", [series(g.x, g.y, n) for n, g in data.groupby("who")]


def scatter_pandas():
    pd.DataFrame({"x": walk(1), "y": walk(2)}).plot.scatter("x", "y", ax=plt.gca(), c="darkgreen")
    return "scatter", [series(walk(1), walk(2))]


def scatter_regplot():
    import seaborn

    seaborn.regplot(x=walk(1), y=walk(2), ax=plt.gca(), ci=None)
    return "scatter", [series(walk(1), walk(2))]


def bins(values, edges):
    counts, edges = np.histogram(values, edges)
    return "histogram", [series(edges, counts)]


def hist():
    plt.hist(walk(1, 300), bins=12)
    return bins(walk(1, 300), 12)


def hist_edges():
    plt.hist(walk(1, 300), bins=[-20, 0, 10, 20, 40, 90], edgecolor="white", color="teal")
    return bins(walk(1, 300), [-20, 0, 10, 20, 40, 90])


def hist_pandas():
    pd.Series(walk(1, 300)).plot.hist(bins=20, ax=plt.gca(), alpha=0.7)
    return bins(walk(1, 300), 20)


def hist_series():
    pd.Series(walk(1, 300)).hist(bins=10, ax=plt.gca())
    return bins(walk(1, 300), 10)


def hist_seaborn():
    import seaborn

    seaborn.histplot(walk(1, 300), bins=15, kde=True, ax=plt.gca())
    return bins(walk(1, 300), 15)


def hist_narrow():
    plt.hist(walk(1, 300), bins=10, rwidth=0.9)
    return bins(walk(1, 300), 10)


def shares(labels, values):
    return "pie", {"labels": labels, "values": (np.array(values) / np.sum(values)).tolist()}


def pie():
    plt.pie(VALUES, labels=CITIES)
    return shares(CITIES, VALUES)


def pie_percent():
    plt.pie(VALUES, labels=CITIES, autopct="%1.1f%%", startangle=90, explode=[0, 0.1, 0, 0, 0], shadow=True)
    plt.axis("equal")
    return shares(CITIES, VALUES)


def pie_legend():
    wedges, _ = plt.pie(VALUES)
    plt.legend(wedges, CITIES, loc="center left", bbox_to_anchor=(1, 0.5))
    return shares(CITIES, VALUES)


def pie_donut():
    plt.pie(VALUES, labels=CITIES, wedgeprops={"width": 0.4, "edgecolor": "w"}, counterclock=False)
    return shares(CITIES, VALUES)


def pie_pandas():
    frame()["north"].plot.pie(ax=plt.gca(), autopct="%.0f%%")
    return shares(CITIES, VALUES)


CASES = [
    bar, bar_labeled, bar_colors, barh, barh_inverted, bar_grouped, bar_pandas, bar_pandas_grouped, bar_years, bar_years_numeric, bar_negative, bar_large, bar_thousands, bar_hatched,
    bar_rotated, bar_vertical_names, bar_chinese, bar_seaborn, bar_seaborn_hue, bar_seaborn_palette, bar_seaborn_count,
    line, line_markers, line_two, line_dates, line_dates_short, line_dates_formatted, line_pandas_dates, line_pandas_daily,
    line_pandas_frame, line_categories, line_gaps, line_years, line_seaborn, line_seaborn_hue, line_long, line_huge, line_band,
    scatter, scatter_colors, scatter_sizes, scatter_plot, scatter_two, scatter_fit, scatter_seaborn_hue, scatter_pandas,
    scatter_regplot, hist, hist_edges, hist_pandas, hist_series, hist_seaborn, hist_narrow, pie, pie_percent, pie_legend,
    pie_donut, pie_pandas,
]  # fmt: skip

# Honest charts that are not checked, because forgeries of such charts got through.
NOT_PROVABLE = [bar_stacked, bar_pandas_stacked, bar_log, line_log]

# How a figure is styled and saved: (name, style, before saving, arguments of savefig, extension).
WAYS = [
    ("plain", "default", lambda: None, {}, "png"),
    ("tight", "default", lambda: plt.title("A title"), {"bbox_inches": "tight", "dpi": 150}, "png"),
    ("ggplot", "ggplot", lambda: plt.xlabel("below"), {"dpi": 120}, "png"),
    ("seaborn", "seaborn-v0_8", lambda: plt.tight_layout(), {"dpi": 200, "bbox_inches": "tight"}, "png"),
    ("dark", "dark_background", lambda: plt.ylabel("beside"), {}, "png"),
    ("grid", "default", lambda: plt.grid(True, linestyle="--", alpha=0.5), {"dpi": 72}, "png"),
    ("transparent", "default", lambda: None, {"transparent": True}, "png"),
    ("jpeg", "default", lambda: plt.title("A title"), {"dpi": 110}, "jpg"),
    ("fine", "bmh", lambda: plt.tight_layout(), {"dpi": 300}, "png"),
    ("538", "fivethirtyeight", lambda: plt.gcf().set_size_inches(10, 6), {"facecolor": "white", "bbox_inches": "tight"}, "png"),
]  # fmt: skip


def draw(case, way, folder, claims):
    """Draw and save; returns (kind, expected, path, the claim)."""
    name, style, before, arguments, extension = way
    plt.close("all")
    matplotlib.rcdefaults()
    matplotlib.use("agg")
    with plt.style.context(style):
        plt.figure()
        kind, expected = case()
        before()
        path = f"output/{case.__name__}-{name}.{extension}"
        full = os.path.join(folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        plt.savefig(full, **arguments)
    plt.close("all")
    return kind, expected, path, claims[-1]
