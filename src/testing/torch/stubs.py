"""Makes empty NVIDIA libraries, so that PyTorch can be imported where only its CPU part is installed.

    stubs.py SITE OUT       SITE: the folder with torch/; OUT gets a library for each that is missing
"""

import pathlib
import re
import subprocess
import sys

# Those that `import torch` loads and that need NVIDIA's libraries.
LOADED = ("libtorch_cuda.so", "libtorch_nvshmem.so", "libtorch_python.so")


def tool(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def missing(site):
    """Name of a missing library → version of its symbols ("" for none) → symbols that are looked up at loading."""
    libraries = [site / "torch/lib" / name for name in LOADED]
    present = {path.name for path in [*site.glob("torch/lib/*"), *site.glob("nvidia/*/lib/*")]}
    wanted, versions, symbols = {}, {}, set()
    for library in libraries:
        for name in re.findall(r"NEEDED.*\[lib((?:cu|nv|nccl).*)\]", tool("readelf", "-d", library)):
            if f"lib{name}" not in present:
                wanted[f"lib{name}"] = {}
        for block in tool("readelf", "-V", library).split("File: ")[1:]:
            for version in re.findall(r"Name: (\S+)", block):
                versions[version] = block.split()[0]
        symbols |= {line.split()[-1] for line in tool("nm", "-D", "--undefined-only", library).splitlines()}
    for symbol in symbols:
        name, _, version = symbol.partition("@")
        of = versions.get(version) or next((file for file in wanted if belongs(name, file)), None)
        if of in wanted:
            wanted[of].setdefault(version, set()).add(name)
    return wanted


def belongs(symbol, library):
    return symbol.lower().startswith(library.removeprefix("lib").split(".")[0].lower())


def make(out, name, versions):
    code = "".join(f".globl {s}\n.type {s}, @function\n{s}:\n" for symbols in versions.values() for s in sorted(symbols))
    (out / "stub.s").write_text(f".text\n{code}ret\n.section .note.GNU-stack\n")
    of = [f"{version} {{ {'; '.join(sorted(symbols))}; }};" for version, symbols in versions.items() if version]
    (out / "stub.map").write_text("\n".join(of))
    script = [f"-Wl,--version-script={out}/stub.map"] if of else []
    tool("cc", "-shared", "-nostdlib", f"-Wl,-soname,{name}", *script, out / "stub.s", "-o", out / name)


def main(site, out):
    for name, versions in missing(site).items():
        make(out, name, versions)


main(*map(pathlib.Path, sys.argv[1:]))
