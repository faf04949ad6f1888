"""The runner's end of the protocol: frames of a 4-byte big-endian length and JSON, over a socket.

Text output never passes through here: it goes to the files behind fd 1 and 2, which the host reads.
Each event carries how long both files are at that moment (`at`), so the host can put text and events
in order.
"""

import base64
import json
import os
import signal
import threading

MAX_ITEM = 8 << 20  # bytes of one MIME item
MAX_FRAME = 16 << 20
MAX_OUTPUTS = 48 << 20  # bytes of results, displays and charts, per cell; the host ends a session at 64 MiB of frames
MAX_CHART = 2 << 20  # bytes; the host's limit is the same
MAX_CHART_VALUES = 400_000  # the host's limit is a little higher
MAX_MARKS = 1000  # changes between stdout and stderr that are told, per cell


class Wire:
    """Silent until it is connected."""

    def __init__(self):
        self.socket = None
        self.files = []
        self.lock = threading.Lock()
        self.cell = 0
        self.marks = 0
        self.sent = 0
        self.last = None
        self.alive = False
        self.sending = False
        self.interrupted = False
        # A forked child of the cell must not speak on the parent's socket.
        os.register_at_fork(after_in_child=self._mute)

    def _mute(self):
        self.alive = False

    def connect(self, socket):
        self.socket = socket

    def open(self):
        """From here on events are sent."""
        self.files = [os.dup(fd) for fd in (1, 2)]  # the cell may close or redirect 1 and 2
        self.alive = True

    def on_interrupt(self, signum, frame):
        """Raises KeyboardInterrupt, but never in the middle of a frame."""
        if self.sending:
            self.interrupted = True
        else:
            raise KeyboardInterrupt

    def receive(self):
        """The next request, or None at the end."""
        header = self._exactly(4)
        if header is None:
            return None
        body = self._exactly(int.from_bytes(header, "big"))
        return None if body is None else json.loads(body)

    def _exactly(self, count):
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(min(count - len(data), 1 << 20))
            if not piece:
                return None
            data += piece
        return bytes(data)

    def send(self, event, **fields):
        if not self.alive:
            return
        fields.update(event=event, cell=self.cell, at=[os.fstat(fd).st_size for fd in self.files])
        body = encode(fields)
        if len(body) > MAX_FRAME or not self._fits(event, len(body)):
            return
        with self.lock:
            self.sending = True
            try:
                self.socket.sendall(len(body).to_bytes(4, "big") + body)
            finally:
                self.sending = False
        if self.interrupted and threading.current_thread() is threading.main_thread():
            self.interrupted = False
            raise KeyboardInterrupt

    def _fits(self, event, size):
        """Whether the cell may send another output of this size; says once that outputs are dropped."""
        if event not in ("result", "display", "chart"):
            return True
        before, self.sent = self.sent, self.sent + size
        if before <= MAX_OUTPUTS < self.sent:
            os.write(self.files[1], f"[further outputs were dropped: more than {MAX_OUTPUTS >> 20} MiB]\n".encode())
        return self.sent <= MAX_OUTPUTS

    def send_chart(self, path, record):
        """Tells the host of a figure; of one that is too large only that it is."""
        text = encode(record)
        values = sum(text.count(mark) for mark in (b",", b"[", b"{"))
        if len(text) > MAX_CHART or values > MAX_CHART_VALUES:
            record = {"version": record.get("version"), "failed": f"the record is too large: {len(text)} bytes, {values} values"}
        self.send("chart", path=path, figure=record)

    def begin(self, cell):
        """Set up for a cell."""
        self.cell, self.marks, self.sent, self.last, self.interrupted = cell, 0, 0, None, False

    def mark(self, stream):
        """Tells the host that output changes to another stream here."""
        first, self.last = self.last is None, stream
        if not first and self.marks < MAX_MARKS:
            self.marks += 1
            self.send("mark")


def encode(fields):
    """JSON that a strict parser accepts: no NaN, no lone surrogates."""
    try:
        text = json.dumps(fields, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(fields), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace")


def _finite(value):
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def bundle(data):
    """A MIME bundle with every value a string: base64 for bytes, JSON for structures."""
    out = {}
    for mime, value in data.items():
        if isinstance(value, bytes):
            value = base64.b64encode(value).decode()
        elif not isinstance(value, str):
            value = json.dumps(value, default=str)
        if len(value) > MAX_ITEM:
            out.setdefault("text/plain", f"[{mime} of {len(value)} characters was too large to show]")
        else:
            out[str(mime)] = value
    return out
