"""The way out of a session in a container: a port of its own loopback, and what comes in there forwarded to
the one socket of the host that is mounted into the container, where a proxy decides (`network/door.rs`).

It runs in a thread of the relay, which no cell can trace, and whose descriptors none can open.
"""

import asyncio
import contextlib
import socket
import threading

PORT = 3128
DOOR = "/opt/door/socket"
MOST = 16  # connections at once, as many as the host takes
PIECE = 64 << 10
LIFE = 630  # s; the host ends its side after ten minutes


def listen():
    """Before there is a session that could listen there itself."""
    return socket.create_server(("127.0.0.1", PORT), backlog=64)


def begin(listener):
    threading.Thread(target=lambda: asyncio.run(serve(listener)), daemon=True).start()


async def serve(listener):
    listener.setblocking(False)
    loop, room, tasks = asyncio.get_running_loop(), asyncio.Semaphore(MOST), set()

    def ended(task):
        tasks.discard(task)
        room.release()

    while True:
        await room.acquire()
        client, _ = await accepted(loop, listener)
        tasks.add(task := asyncio.create_task(forward(loop, client)))
        task.add_done_callback(ended)


async def accepted(loop, listener):
    while True:
        try:
            return await loop.sock_accept(listener)
        except OSError:  # a client that has gone already
            await asyncio.sleep(0.1)


async def forward(loop, client):
    with client, socket.socket(socket.AF_UNIX) as host, contextlib.suppress(OSError):
        client.setblocking(False)
        host.setblocking(False)
        async with asyncio.timeout(LIFE):
            await loop.sock_connect(host, DOOR)
            out = asyncio.create_task(to_host(loop, client, host))
            try:
                await carry(loop, host, client)
                await out
            finally:
                out.cancel()
                await asyncio.wait([out])  # it lets go of the sockets before they are closed


async def to_host(loop, client, host):
    """A host that hears no more may still have something to say."""
    with contextlib.suppress(OSError):
        await carry(loop, client, host)


async def carry(loop, source, target):
    while data := await loop.sock_recv(source, PIECE):
        await loop.sock_sendall(target, data)
    target.shutdown(socket.SHUT_WR)
