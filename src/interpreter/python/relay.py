"""Carries a session's sockets and streams over standard input and output, for containers into which the
host cannot hand descriptors. The host's half is `container/relay.rs`.

Packets both ways: a byte that says what, a 4-byte big-endian length, and that many bytes. From the host:
`c` for the control socket, `i` for the interrupt socket, `t` the number of a stream that is to be empty
again, `h` now and then, to be heard. To the host: `c` from the control socket, `1` and `2` what was written to stdout and stderr. What a
stream held when a frame was sent goes before the frame.
"""

import fcntl
import os
import select
import signal
import socket
import time

from . import syscalls

PIECE = 64 << 10
SHORTEST, LONGEST = 10, 200  # ms between looks at the streams
SILENCE = 120  # s without a word from the host, which gives one every ten, after which it is taken for dead


def main(start, signals=False, way=False):
    """`start(control, interrupt)` becomes the session, in a child. `signals`: where the kernel makes no
    signal of what comes in on a socket, an interrupt is sent as one, too. `way`: there is a way out."""
    syscalls.adopt_orphans()
    listener = None
    if way:
        from . import way as ways  # not always: what it imports takes memory

        listener = ways.listen()
    control, control_inside = socket.socketpair()
    interrupt, interrupt_inside = socket.socketpair()
    streams = [stream(name) for name in ("stdout", "stderr")]
    child = os.fork()
    if child == 0:
        null = os.open("/dev/null", os.O_RDONLY)
        for number, fd in enumerate((null, *streams)):
            os.dup2(fd, number)
        fds = control_inside.detach(), interrupt_inside.detach()
        for fd in (null, *streams, control.detach(), interrupt.detach()):
            os.close(fd)
        if listener:
            listener.close()
        start(*fds)
        os._exit(0)
    syscalls.set_dumpable(False)  # nobody traces it, nobody opens its descriptors
    control_inside.close(), interrupt_inside.close()
    if listener:
        ways.begin(listener)
    try:
        Relay(control, interrupt, streams, child if signals else None).run()
    except OSError:
        pass  # the host has gone
    while kill_children():
        time.sleep(0.01)
    os._exit(0)


def stream(name):
    """As the host makes them elsewhere: every writer appends, and nobody can seal it."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    return fd


class Relay:
    def __init__(self, control, interrupt, streams, signaled):
        self.signaled = signaled
        self.control, self.interrupt, self.streams = control, interrupt, streams
        self.told = [0, 0]  # how much of each stream the host has
        self.input = b""

    def run(self):
        """Until the host hangs up or the session's process has ended."""
        patience, heard = SHORTEST, time.monotonic()
        poll = select.poll()
        for fd in (0, self.control.fileno()):
            poll.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll(patience)}
            active = self.tell_streams() or bool(ready)
            patience = SHORTEST if active else min(2 * patience, LONGEST)
            if 0 in ready:
                heard = time.monotonic()
                if not self.hear():
                    return
            elif time.monotonic() - heard > SILENCE:
                return  # engines keep the input open when their program is killed
            if self.control.fileno() in ready:
                data = self.control.recv(PIECE)
                self.tell_streams()
                if not data:
                    return
                self.tell(b"c", data)
            reap()

    def hear(self):
        data = os.read(0, PIECE)
        self.input += data
        while len(self.input) >= 5:
            end = 5 + int.from_bytes(self.input[1:5], "big")
            if len(self.input) < end:
                break
            what, body, self.input = self.input[:1], self.input[5:end], self.input[end:]
            self.obey(what, body)
        return bool(data)

    def obey(self, what, body):
        if what == b"c":
            self.control.sendall(body)
        elif what == b"i":
            self.interrupt.send(body)
            if self.signaled is not None:
                os.killpg(self.signaled, signal.SIGINT)
        elif what == b"t":
            os.ftruncate(self.streams[body[0]], 0)
            self.told[body[0]] = 0

    def tell_streams(self):
        told = False
        for number, fd in enumerate(self.streams):
            size = os.fstat(fd).st_size
            self.told[number] = min(self.told[number], size)  # a cell may cut its own streams
            while self.told[number] < size and (data := os.pread(fd, PIECE, self.told[number])):
                self.told[number] += len(data)
                self.tell(b"%d" % (number + 1), data)
                told = True
        return told

    def tell(self, what, data):
        packet = memoryview(what + len(data).to_bytes(4, "big") + data)
        while packet:
            packet = packet[os.write(1, packet) :]


def reap():
    """Wait for whatever has ended, as the adopter of orphans."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def kill_children():
    """Kill all children, reap those that have ended; whether there were any. Their own children become
    ours."""
    me, found = os.getpid(), False
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parent = int(file.read().rsplit(") ", 1)[1].split()[1])
            if parent == me:
                found = True
                os.kill(int(name), signal.SIGKILL)
        except (OSError, IndexError, ValueError):
            pass
    reap()
    return found
