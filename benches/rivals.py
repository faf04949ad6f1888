"""What the interpreter is compared with, measured in the same run; one JSON object per line on stdout.

    python rivals.py first COUNT           seconds to the first result with pandas, one kernel after another
    python rivals.py cells COUNT           cells per second in one kernel
    python rivals.py sessions COUNT WIDTH  kernels started, used and shut down per second, WIDTH at a time
    python rivals.py hold COUNT            COUNT live kernels with pandas; holds them until stdin closes
    python rivals.py cold COUNT            seconds of a cold `python -c` with the same cell

Kernels are ipykernel's through nbclient, as PyBench's own agent uses them.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time

import nbformat
from nbclient import NotebookClient

GIVE_UP = 60
CELL = "import pandas as pd\nint(pd.Series([1, 2]).sum())"


class Kernel:
    def __init__(self):
        notebook = nbformat.v4.new_notebook()
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.client = NotebookClient(notebook, timeout=600)
        self.client.create_kernel_manager()
        self.client.start_new_kernel()
        self.client.start_new_kernel_client()

    def run(self, code):
        cell = nbformat.v4.new_code_cell(code)
        self.client.nb.cells.append(cell)
        index = len(self.client.nb.cells) - 1
        self.loop.run_until_complete(self.client.async_execute_cell(cell, index))

    def close(self):
        self.loop.run_until_complete(self.client._async_cleanup_kernel())
        self.loop.close()


def timed(action):
    begun = time.perf_counter()
    value = action()
    return value, time.perf_counter() - begun


def first(count):
    for _ in range(count):
        def start():
            kernel = Kernel()
            kernel.run(CELL)
            return kernel
        kernel, seconds = timed(start)
        kernel.close()
        yield {"seconds": seconds}


def cells(count):
    kernel = Kernel()
    kernel.run(CELL)
    _, seconds = timed(lambda: [kernel.run("x = 1") for _ in range(count)])
    kernel.close()
    yield {"seconds": seconds}


def session(_):
    kernel = Kernel()
    kernel.run(CELL)
    kernel.close()


def sessions(count, width):
    """A kernel that dies while it starts can hang its thread for ever; it is given up after GIVE_UP seconds
    in which no other ended, and the time is that of the last that did end."""
    todo, ended = iter(range(count)), []
    begun = time.perf_counter()

    def work():
        for number in todo:  # `next` of a range's iterator is atomic
            session(number)
            ended.append(time.perf_counter() - begun)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(width)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        last = ended[-1] if ended else 0
        if time.perf_counter() - begun - last > GIVE_UP:
            break
        time.sleep(0.01)
    yield {"seconds": max(ended), "lost": count - len(ended)}


def hold(count):
    kernels = []
    for _ in range(count):
        kernel = Kernel()
        kernel.run(CELL)
        kernels.append(kernel)
    print(json.dumps({"ready": count}), flush=True)
    sys.stdin.read()
    for kernel in kernels:
        kernel.close()
    return iter(())


def cold(count):
    for _ in range(count):
        run = lambda: subprocess.run([sys.executable, "-c", CELL], check=True)
        yield {"seconds": timed(run)[1]}


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    for result in globals()[what](*map(int, numbers)):
        print(json.dumps(result), flush=True)
    os._exit(0)  # a thread that hangs would be waited for
