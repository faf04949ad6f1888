"""BLAKE3 (unkeyed, 256 bits) with numpy: all chunks of a file at once. Source: the BLAKE3 paper, section 2."""

import numpy as np

IV = np.array([0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19], np.uint32)
ORDER = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
STEPS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15), (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8


def _turn(x, n):
    return (x >> np.uint32(n)) | (x << np.uint32(32 - n))


def _compress(chain, block, counter, length, flags):
    """Chaining values of many blocks: `chain` (8, n), `block` (16, n), the rest broadcast to (n,)."""
    n = chain.shape[1]
    wide = lambda v: np.broadcast_to(np.asarray(v, np.uint32), (n,)).copy()  # noqa: E731
    v = [*(row.copy() for row in chain), *(wide(i) for i in IV[:4]), wide(counter), wide(0), wide(length), wide(flags)]
    m = list(block)
    for _ in range(7):
        for i, (a, b, c, d) in enumerate(STEPS):
            v[a] = v[a] + v[b] + m[2 * i]
            v[d] = _turn(v[d] ^ v[a], 16)
            v[c] = v[c] + v[d]
            v[b] = _turn(v[b] ^ v[c], 12)
            v[a] = v[a] + v[b] + m[2 * i + 1]
            v[d] = _turn(v[d] ^ v[a], 8)
            v[c] = v[c] + v[d]
            v[b] = _turn(v[b] ^ v[c], 7)
        m = [m[i] for i in ORDER]
    return np.array([v[i] ^ v[i + 8] for i in range(8)])


def _chunks(data, first, root):
    """Chaining values (8, n) of whole or of one last, shorter chunk."""
    size = max(len(data), 1)
    count, each = (1, size) if size <= 1024 else (size // 1024, 1024)
    blocks = -(-each // 64)
    words = np.frombuffer(data.ljust(count * blocks * 64, b"\0"), "<u4").reshape(count, blocks, 16).astype(np.uint32)
    counter = np.arange(first, first + count, dtype=np.uint32)
    chain = np.repeat(IV[:, None], count, axis=1)
    for b in range(blocks):
        last = b == blocks - 1
        length = (len(data) if count == 1 else 1024) - b * 64 if last else 64
        flags = (CHUNK_START if b == 0 else 0) | ((CHUNK_END | (ROOT if root else 0)) if last else 0)
        chain = _compress(chain, words[:, b].T, counter, length, flags)
    return chain


def digest(data):
    """The hash of bytes (below 4 GiB · 1024) as hex."""
    whole = (max(len(data), 1) - 1) // 1024
    parts = [_chunks(data[: whole * 1024], 0, False)] if whole else []
    nodes = np.concatenate([*parts, _chunks(data[whole * 1024 :], whole, whole == 0)], axis=1)
    while nodes.shape[1] > 1:
        pairs = nodes.shape[1] // 2
        block = np.concatenate([nodes[:, 0 : 2 * pairs : 2], nodes[:, 1 : 2 * pairs : 2]])
        flags = PARENT | (ROOT if nodes.shape[1] == 2 else 0)
        parents = _compress(np.repeat(IV[:, None], pairs, axis=1), block, 0, 64, flags)
        nodes = np.concatenate([parents, nodes[:, 2 * pairs :]], axis=1)
    return nodes.T[0].astype("<u4").tobytes().hex()
