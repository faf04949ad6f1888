"""Videos of unknown origin: the bytes say what the container is, and only its demuxer reads them."""

import os

from common import Fail
from pictures import MAX_PIXELS

# FFmpeg would take a text for a playlist and read the files that it names. These options of OpenCV's reader pass its
# probing by, and bind whatever a container holds inside. References to other files in an MP4 are off in FFmpeg.
OPTIONS = "input_format;mov|format_whitelist;mov|protocol_whitelist;file"


def check_mp4(full, path):
    """Raise Fail where the file does not begin as an MP4."""
    with open(full, "rb") as file:
        head = file.read(12)
    if head[4:8] != b"ftyp" or head[8:12] == b"qt  ":
        raise Fail(f"{path} is no MP4")


def has_sound(full, path):
    """Whether an MP4 holds a sound track: a handler box of the type `soun`."""
    check_mp4(full, path)
    with open(full, "rb") as file:
        data = file.read()
    at = data.find(b"hdlr")
    while at >= 0:
        if data[at + 12 : at + 16] == b"soun":
            return True
        at = data.find(b"hdlr", at + 4)
    return False


def read_video(full, path):
    """(frames per second, an iterator of frames as RGB arrays of bytes)."""
    import cv2

    check_mp4(full, path)
    os.environ["OPENCV_FFMPEG_CAPTURE_OPTIONS"] = OPTIONS
    film = cv2.VideoCapture(full, cv2.CAP_FFMPEG)
    width, height = film.get(cv2.CAP_PROP_FRAME_WIDTH), film.get(cv2.CAP_PROP_FRAME_HEIGHT)
    if not film.isOpened() or not 0 < width * height <= MAX_PIXELS:
        raise Fail(f"{path} is no readable video")
    return film.get(cv2.CAP_PROP_FPS), _frames(film)


def _frames(film):
    while True:
        more, picture = film.read()
        if not more:
            return
        yield picture[..., ::-1]
