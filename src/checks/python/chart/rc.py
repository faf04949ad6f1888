"""Settings of a session that change how its primitives look, and nothing else."""

ALLOWED = (
    "text.hinting", "text.hinting_factor", "text.antialiased", "mathtext.fontset", "mathtext.default",
    "mathtext.fallback", "mathtext.rm", "mathtext.it", "mathtext.bf", "mathtext.cal", "mathtext.sf",
    "mathtext.tt", "path.snap", "path.simplify", "path.simplify_threshold", "agg.path.chunksize",
    "hatch.linewidth", "axes.unicode_minus",
)  # fmt: skip
FAMILIES = ("font.family", "font.serif", "font.sans-serif", "font.monospace", "font.cursive", "font.fantasy")


def settings(rc):
    """The allowed settings of a record; anything else in it is dropped."""
    rc = rc if isinstance(rc, dict) else {}
    kept = {key: rc[key] for key in ALLOWED if isinstance(rc.get(key), (str, int, float, bool))}
    for key in FAMILIES:
        names = rc.get(key)
        if isinstance(names, list) and len(names) <= 60 and all(isinstance(n, str) and len(n) < 100 for n in names):
            kept[key] = names
    return kept
