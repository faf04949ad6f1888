"""The same measurements of nbclient with ipykernel, as upstream runs cells, and of a cold Python per
cell. Prints lines of the same form as the example `interpreter-bench`."""

import asyncio
import os
import statistics
import subprocess
import sys
import time

import nbformat
from nbclient import NotebookClient

FIRST = "import numpy as np, pandas as pd, matplotlib.pyplot as plt\nint(pd.DataFrame({'a': [40, 2]}).a.sum())"
for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR"):
    os.environ[f"{name}_NUM_THREADS"] = "1"


class Kernel:
    """One notebook, as long as it is open."""

    async def start(self):
        self.client = NotebookClient(nbformat.v4.new_notebook(), timeout=600)
        self.client.create_kernel_manager()
        await self.client.async_start_new_kernel()
        await self.client.async_start_new_kernel_client()
        self.pid = self.client.km.provisioner.pid
        return self

    async def run(self, code):
        cell = nbformat.v4.new_code_cell(code)
        self.client.nb.cells.append(cell)
        await self.client.async_execute_cell(cell, len(self.client.nb.cells) - 1)
        return cell.outputs

    async def close(self):
        await self.client._async_cleanup_kernel()


async def session():
    kernel = await Kernel().start()
    outputs = await kernel.run(FIRST)
    assert outputs[0].data["text/plain"] == "42", outputs
    return kernel


def private_mib(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_")) / 1024


def told(who, what, value, unit):
    print(f"{who:<22} {what:<42} {value:>10.3f} {unit}", flush=True)


async def notebook(counts):
    who, times = "nbclient + ipykernel", []
    await (await session()).close()  # the page cache is warm from here on
    for _ in range(10):
        begun = time.perf_counter()
        kernel = await session()
        times.append(time.perf_counter() - begun)
        await kernel.close()
    told(who, "first result with pandas, median", statistics.median(times), "s")
    told(who, "first result with pandas, slowest of 10", max(times), "s")

    kernel = await session()
    begun = time.perf_counter()
    for _ in range(200):
        await kernel.run("1 + 1")
    told(who, "cells per second, one session", 200 / (time.perf_counter() - begun), "/s")
    await kernel.close()

    cores, total = os.cpu_count(), 10
    permits = asyncio.Semaphore(cores)

    async def one():
        async with permits:
            await (await session()).close()

    begun = time.perf_counter()
    await asyncio.gather(*[one() for _ in range(total)])
    told(who, "sessions per second and core", total / (time.perf_counter() - begun) / cores, "/s")

    for count in counts:
        kernels = []
        for _ in range(count):
            kernels.append(await session())
        mib = sum(private_mib(kernel.pid) for kernel in kernels) / count
        told(who, f"private memory per session, {count} live", mib, "MiB")
        for kernel in kernels:
            await kernel.close()


def cold():
    who, code = "cold python -c", FIRST.replace("\nint", "\nprint(int") + ")"
    times = []
    for _ in range(6):
        begun = time.perf_counter()
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"42\n"
        times.append(time.perf_counter() - begun)
    told(who, "first result with pandas, median", statistics.median(times[1:]), "s")
    begun = time.perf_counter()
    for _ in range(20):
        subprocess.run([sys.executable, "-c", "1 + 1"], check=True)
    told(who, "cells per second", 20 / (time.perf_counter() - begun), "/s")


asyncio.run(notebook([int(count) for count in sys.argv[1:]]))
cold()
