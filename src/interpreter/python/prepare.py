"""Prepares a Python environment for sessions: caches that would cost each of them seconds, and the
mark that says it is complete. Usage: python -I prepare.py ENVIRONMENT LOCK"""

import json
import os
import platform
import sys
from pathlib import Path

# In order of preference; the first one present draws what DejaVu lacks.
CJK_FONTS = ["Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei"]


def matplotlib_cache(folder: Path) -> None:
    """The font list (seconds to build), and a matplotlibrc whose font falls back to a CJK one."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*"):
        stale.unlink()
    os.environ["MPLCONFIGDIR"] = str(folder)
    import matplotlib.font_manager

    present = {font.name for font in matplotlib.font_manager.fontManager.ttflist}
    fallback = [name for name in CJK_FONTS if name in present][:1]
    (folder / "matplotlibrc").write_text(f"font.family: {', '.join(['sans-serif', *fallback])}\n")


def jieba_cache(folder: Path) -> None:
    """jieba's dictionary, as it would write it to the temporary folder."""
    import jieba

    jieba.setLogLevel("ERROR")
    folder.mkdir(parents=True, exist_ok=True)
    jieba.dt.tmp_dir = str(folder)
    jieba.initialize()
    (folder / "jieba.cache").chmod(0o644)  # made private, but sessions run as another user


def main() -> None:
    environment, lock = Path(sys.argv[1]), sys.argv[2]
    mark = environment / "pybench.json"
    caches = environment / "caches"
    for build in (lambda: matplotlib_cache(caches / "matplotlib"), lambda: jieba_cache(caches)):
        try:
            build()
        except ImportError as error:
            print(f"setup: {error}: this environment lacks it", file=sys.stderr)
    record = {"python": platform.python_version(), "base": sys.base_prefix, "lock": lock}
    temporary = mark.with_suffix(".new")
    temporary.write_text(json.dumps(record) + "\n")
    temporary.rename(mark)


main()
