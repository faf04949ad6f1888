"""`pip` where nothing can be installed."""

import re
import sys
from importlib import metadata

EXPLANATION = """\
ERROR: packages cannot be installed here: this interpreter has no network and a fixed set of packages.
Not available: {missing}. Run `pip list` to see what is, and use that instead."""


def installed(requirement):
    name = re.match(r"[A-Za-z0-9._-]*", requirement).group()
    try:
        return name, metadata.version(name)
    except (metadata.PackageNotFoundError, ValueError):
        return name or requirement, None


def install(arguments):
    missing = []
    for requirement in [a for a in arguments if not a.startswith("-")]:
        name, version = installed(requirement)
        if version is None:
            missing.append(name)
        else:
            print(f"Requirement already satisfied: {requirement} ({version})")
    if missing:
        print(EXPLANATION.format(missing=", ".join(missing)), file=sys.stderr)
    return 1 if missing else 0


def main():
    command, arguments = (sys.argv[1:2] or ["help"])[0], sys.argv[2:]
    if command in ("install", "download", "wheel"):
        return install(arguments)
    if command in ("list", "freeze"):
        for name, version in sorted({(d.name, d.version) for d in metadata.distributions()}):
            print(f"{name}=={version}")
        return 0
    if command == "show":
        for name, version in map(installed, arguments):
            print(f"Name: {name}\nVersion: {version}" if version else f"WARNING: Package(s) not found: {name}")
        return 0
    if command in ("--version", "-V"):
        print("pip (stand-in: lists packages, installs nothing)")
        return 0
    print("ERROR: only `pip list`, `pip show` and `pip freeze` work here; packages cannot be installed.", file=sys.stderr)
    return 1


sys.exit(main())
