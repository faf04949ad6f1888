"""Whether an output opens as what its name says, whatever the checks ask of it."""

import os

from common import Fail, strict_json

PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")
SOUNDS = (".wav", ".flac", ".ogg", ".mp3")
TABLES = (".csv", ".tsv", ".xlsx", ".parquet", ".sqlite", ".db", ".jsonl")
NAMES = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".gif": "GIF", ".webp": "WEBP", ".bmp": "BMP", ".tif": "TIFF", ".tiff": "TIFF"}


def check(path, candidate):
    """Raise Fail where the file is absent, empty or of another type."""
    full = candidate.file(path)
    extension = os.path.splitext(path)[1].lower()
    if extension in PICTURES:
        _picture(path, candidate, extension)
    elif extension in SOUNDS:
        _sound(full, path)
    elif extension == ".mp4":
        from videos import check_mp4

        check_mp4(full, path)
    elif extension in TABLES:
        from tables import read_table

        read_table(full, path)
    elif extension in (".docx", ".pptx", ".zip"):
        from tables import check_zip

        check_zip(full, path)
    elif extension == ".pdf":
        with open(full, "rb") as file:
            if b"%PDF-" not in file.read(1024):
                raise Fail(f"{path} is no PDF")
    elif extension == ".json":
        _json(path, candidate)
    elif extension in (".txt", ".md", ".html", ".htm", ".py", ".svg", ".xml", ".ics"):
        candidate.text(path, 64 * 1024 * 1024)


def _picture(path, candidate, extension):
    from pictures import open_picture

    found = open_picture(candidate, path).format
    if found != NAMES[extension]:
        raise Fail(f"{path} holds {found}, not {NAMES[extension]}")


def _sound(full, path):
    import soundfile
    from sounds import read_sound

    read_sound(full, path)
    kind, wanted = soundfile.info(full).format, os.path.splitext(path)[1][1:].upper()
    if kind not in {"WAV": ("WAV", "WAVEX", "RF64"), "FLAC": ("FLAC",), "OGG": ("OGG",), "MP3": ("MP3", "MPEG")}[wanted]:
        raise Fail(f"{path} holds {kind}, not {wanted}")


def _json(path, candidate):
    try:
        strict_json(candidate.text(path))
    except (ValueError, RecursionError) as error:
        raise Fail(f"{path} is no JSON: {error}") from None
