"""The `fixed` score where upstream's own test cannot be believed: the same intent, in our own words.

A task that is not here is scored by upstream's test, run alone with its own inputs and outputs. Functions
are called as upstream's are: `test_task_N(trajectory)` in a folder with `data/` and `output/`; they raise
where the task is not done. Why each one is here stands in its first line.
"""

import glob
import os
import re

import numpy
import pandas
from PIL import Image

FACT = 1e-2


def words(trajectory):
    """The last message, digits grouped by separators joined."""
    text = str(trajectory[-1]["content"])
    return re.sub(r"(?<=\d)[,，_ \u00a0\u202f](?=\d{3}(?!\d))", "", text)


def states(trajectory, value, within=FACT):
    """Whether the number stands in the last message."""
    numbers = re.findall(r"\d+(?:\.\d+)?", words(trajectory))
    return any(abs(float(number) - value) <= within for number in numbers if len(number) < 320)


def picture(path, mode=None):
    """A picture as floats."""
    with Image.open(path) as image:
        return numpy.asarray(image.convert(mode) if mode else image, float)


def given(pattern):
    """The one input of that name."""
    return sorted(glob.glob("data/" + pattern))[0]


def test_task_6(trajectory):
    """Upstream accepts only outliers removed until none is left; any usual rule is right."""
    before, after = pandas.read_csv(given("*.csv")), pandas.read_csv("output/6.csv")
    assert set(before.columns) <= set(after.columns), "a column is lost"
    assert len(after) >= 0.6 * len(before), "more than the outliers is gone"
    measures = [c for c in before.select_dtypes("number").columns if c != "Id"]
    spread = lambda frame: sum((frame[c].max() - frame[c].min()) / (before[c].std() or 1) for c in measures)  # noqa: E731
    assert spread(after) < spread(before), "the extremes are still there"


def test_task_9(trajectory):
    """Upstream looks for the type `object`, which newer pandas does not give to text."""
    for frame in (pandas.read_excel("output/9_1.xlsx"), pandas.read_csv("output/9_2.csv")):
        for name in frame.columns:
            if not pandas.api.types.is_numeric_dtype(frame[name]):
                plain = frame[name].dropna().astype(str).str.replace(r"[$,€£%\s]", "", regex=True)
                left = pandas.to_numeric(plain, errors="coerce")
                assert not len(plain) or left.isna().any(), f"{name} still holds numbers as text"


def test_task_11(trajectory):
    """Upstream asks for the truth of a table, which always raises."""
    paths = [path for path in ("output/11.xlsx", "output/11.xls") if os.path.exists(path)]
    assert paths and len(pandas.read_excel(paths[0])), "there is no table"


def test_task_14(trajectory):
    """Upstream compares rows that tie by their place."""
    views = pandas.read_csv("output/14.csv")["avg_us_viewers"].dropna()
    assert len(views) and views.is_monotonic_decreasing, "the rows are not in that order"


def test_task_18(trajectory):
    """Upstream looks for digits without separators, and for one of the two variances."""
    text = words(trajectory)
    assert "2526" in text and ("1506614" in text or "1412450" in text)


def test_task_20(trajectory):
    """Upstream names a variable that does not exist."""
    assert os.path.exists("output/20.png")


def test_task_21(trajectory):
    """Upstream wants the digits 50, which rounded shares need not hold."""
    frame = pandas.read_csv(given("insurance.csv"))
    shares = frame.groupby("region")["sex"].apply(lambda s: (s == "male").mean())
    text = words(trajectory)
    numbers = [float(n) / (100 if p else 1) for n, p in re.findall(r"(\d+(?:\.\d+)?)\s*([%％]?)", text)]
    assert all(any(abs(n - share) <= 0.006 for n in numbers) for share in shares), "a share is not stated"


def test_task_27(trajectory):
    """Upstream accepts the network with the fewest, and not both of those that tie."""
    text = words(trajectory)
    assert "CBS" in text or "NBC" in text


def test_task_32(trajectory):
    """Upstream counts rows; two of them are one Super Bowl."""
    assert states(trajectory, 52)


def test_task_59(trajectory):
    """Upstream looks for another name than its prompt asks for."""
    assert os.path.exists("output/59.txt")


def test_task_68(trajectory):
    """Upstream looks at the output of another task."""
    assert os.path.exists("output/68.png")


def test_task_74(trajectory):
    """Upstream looks for another name than its prompt asks for."""
    assert os.path.exists("output/74.xlsx")


def test_task_82(trajectory):
    """Upstream looks at the output of another task."""
    before, after = picture(given("82.*"), "RGB"), picture("output/82.png", "RGB")
    assert before.shape == after.shape, "the picture has another size"
    turned = before[::-1], before[::-1, ::-1]
    assert min(numpy.abs(one - after).mean() for one in turned) < 16, "it is not upside down"


def test_task_83(trajectory):
    """Upstream accepts parts side by side only."""
    with Image.open(given("83.*")) as image:
        width, height = image.size
    sizes = []
    for number in range(1, 5):
        with Image.open(f"output/83_{number}.png") as image:
            sizes.append(image.size)
    beside = sum(w for w, _ in sizes) / max(h for _, h in sizes)
    below = max(w for w, _ in sizes) / sum(h for _, h in sizes)
    assert min(abs(beside - width / height), abs(below - width / height)) <= 0.1, "they are not the whole"


def background_gone(path, share):
    """Upstream accepts a black background only; a transparent or white one is gone as well."""
    with Image.open(path) as image:
        pixels = numpy.asarray(image.convert("RGBA"), float)
    grey, alpha = pixels[..., :3].mean(axis=2), pixels[..., 3]
    gone = (alpha < 10), (alpha >= 10) & (grey <= 50), (alpha >= 10) & (grey >= 250)
    assert max(part.mean() for part in gone) > share, "the background is still there"


def test_task_88(trajectory):
    """Upstream accepts a black background only."""
    background_gone("output/88.png", 0.25)


def test_task_89(trajectory):
    """Upstream accepts a black background only."""
    background_gone("output/89.png", 0.3)


def test_task_99(trajectory):
    """Upstream wants a picture that is less sharp after noise was added."""
    import cv2

    grey = lambda path: cv2.Laplacian(picture(path, "L"), cv2.CV_64F).var()  # noqa: E731
    assert grey("output/99.png") > grey(given("99.*")), "there is no noise"


def test_task_100(trajectory):
    """Upstream accepts one way to store grey only."""
    pixels = picture("output/100.png", "RGB")
    assert (numpy.ptp(pixels, axis=2) <= 2).mean() > 0.99, "there is colour"


def edges(path, source):
    """Upstream accepts edges on black only; drawn over the photo or on white they are right as well."""
    after, before = picture(path, "L"), picture(source, "L")
    dark, light = (after <= 50).mean(), (after >= 205).mean()
    over = after.shape == before.shape and 0.005 < (numpy.abs(after - before) > 40).mean() < 0.5
    assert dark > 0.5 or light > 0.5 or over, "there are no edges"


def test_task_101(trajectory):
    """Upstream accepts edges on black only."""
    edges("output/101.png", given("101.*"))


def test_task_102(trajectory):
    """Upstream accepts edges on black only."""
    edges("output/102.png", given("102.*"))


def test_task_134(trajectory):
    """Upstream wants the digits without separators."""
    assert str(2**1000) in re.sub(r"[\s,，_]", "", str(trajectory[-1]["content"]))


def test_task_138(trajectory):
    """Upstream looks for an English word in the answer to a Chinese prompt."""
    text = words(trajectory).lower()
    assert any(word in text for word in ("no ", "not", "none", "没有", "不存在", "无极", "均无", "都无")), "it does not say that there are none"
