#!/usr/bin/env python3
"""Call runc with the resource limits left out of what it is to start.

Podman asks for limits on open files and processes in every container. To raise them takes
CAP_SYS_RESOURCE; where even root lacks that, as inside many virtual build machines, runc fails.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

# Podman gives its runtime no PATH to rely on.
_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin"


def values_of(arguments: list[str], *options: str) -> list[str]:
    """The values of `options`, given as `--option value` or `--option=value`."""
    found = []
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in options:
            found.append(value if equals else arguments[place + 1])
    return found


def main() -> None:
    """Strip the limits from the bundle or the process that is named, and become runc."""
    arguments = sys.argv[1:]
    runc = shutil.which("runc", path=_PATH)
    if runc is None:
        sys.exit("runc is not installed: apt-get install runc")
    files = [Path(bundle) / "config.json" for bundle in values_of(arguments, "--bundle", "-b")]
    files += [Path(process) for process in values_of(arguments, "--process", "-p")]
    for file in files:
        config = json.loads(file.read_text())
        # A bundle holds its process; a process to execute is one itself.
        config.get("process", config).pop("rlimits", None)
        file.write_text(json.dumps(config))
    os.execv(runc, [runc, *arguments])  # noqa: S606 - it becomes runc


if __name__ == "__main__":
    main()
