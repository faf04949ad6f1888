"""Work in child processes: bounded in time, and forked so that heavy imports are paid once."""

import json
import os
import select
import signal
import time
import traceback


class Failed(Exception):
    """The child raised, ran out of time, or died."""


def start(work):
    """A child that writes the JSON of what `work` returns; (pid, fd to read)."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    try:
        os.setpgid(0, 0)
        os.close(read)
        try:
            result = {"ok": work()}
        except BaseException as error:
            ours = type(error).__name__ in ("Wrong", "OursError", "Failed")
            result = {"error": str(error) if ours else traceback.format_exc()[-1500:]}
        with os.fdopen(write, "w") as pipe:
            json.dump(result, pipe)
    finally:
        os._exit(0)


def call(work, seconds, what):
    """What `work` returns, made in a child."""
    pid, fd = start(work)
    data, deadline = b"", time.monotonic() + seconds
    try:
        while select.select([fd], [], [], max(deadline - time.monotonic(), 0))[0]:
            piece = os.read(fd, 1 << 16)
            if not piece:
                break
            data += piece
        else:
            raise Failed(f"{what} took more than {seconds} s")
    finally:
        os.close(fd)
        _end(pid)
    return parsed(data, what)


def parsed(data, what):
    """The result that a child wrote."""
    try:
        result = json.loads(data)
    except ValueError:
        raise Failed(f"{what}: the child died") from None
    if "error" in result:
        raise Failed(f"{what}: {result['error']}")
    return result["ok"]


def _end(pid):
    """The child and what it started."""
    for target in (os.killpg, os.kill):
        try:
            target(pid, signal.SIGKILL)
        except OSError:
            continue
    os.waitpid(pid, 0)


def pool(jobs, width, done):
    """Results of jobs, each in a child, `width` at a time; a failure is its text."""
    results, waiting, running = [None] * len(jobs), list(enumerate(jobs))[::-1], {}
    while waiting or running:
        while waiting and len(running) < width:
            number, job = waiting.pop()
            pid, fd = start(job)
            running[fd] = (number, pid, [])
        for fd in select.select(list(running), [], [])[0]:
            number, pid, data = running[fd]
            piece = os.read(fd, 1 << 16)
            data.append(piece)
            if piece:
                continue
            os.close(fd)
            del running[fd]
            _end(pid)
            try:
                results[number] = parsed(b"".join(data), "the task")
            except Failed as error:
                results[number] = str(error)
            done(results[number])
    return results
