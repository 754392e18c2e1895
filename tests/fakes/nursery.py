"""Real processes of a service that start at once: forked off one that has read all its modules.

To start Python and import a service takes seconds, most of what a test that kills it again and again
would last. A child is a process like any other: of its own environment, folder and signals.
"""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Nursery:
    """Starts processes of `services.<name>`, and waits for their ends."""

    def __init__(self, service: str, env: Mapping[str, str], log: Path) -> None:
        self._service, self._env, self._log = service, dict(env), log
        self._mother: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Nursery:
        with self._log.open("ab") as log:
            self._mother = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.fakes.nursery", self._service),
                env=self._env,
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        return self

    async def __aexit__(self, *exit_info: object) -> None:
        assert self._mother is not None
        assert self._mother.stdin is not None
        # It ends with its input, and its children with it.
        self._mother.stdin.close()
        await self._mother.wait()

    async def start(self, settings: Mapping[str, str]) -> int:
        """Start a process, `settings` being its environment beside the nursery's; its id."""
        return int(await self._ask({"start": dict(settings)}))

    async def ended(self, pid: int) -> int:
        """Wait until a process has ended: how, as `os.waitstatus_to_exitcode` says it."""
        return int(await self._ask({"wait": pid}))

    async def _ask(self, said: Mapping[str, object]) -> bytes:
        assert self._mother is not None
        assert self._mother.stdin is not None
        assert self._mother.stdout is not None
        self._mother.stdin.write(json.dumps(said).encode() + b"\n")
        await self._mother.stdin.drain()
        line = await self._mother.stdout.readline()
        assert line, self._log.read_text()[-2000:]
        return line


def main(service: str) -> None:
    """Read the service's modules, then start and wait as the lines of the input say."""
    __import__(f"services.{service}.__main__")
    # What it imports first as it serves.
    for name in ("boto3", "spotline.adapters.ledger.threaded", "spotline.bootstrap.cloud_signals"):
        __import__(name)
    children: set[int] = set()
    for line in sys.stdin:
        said = json.loads(line)
        if "wait" in said:
            _, status = os.waitpid(said["wait"], 0)
            children.discard(said["wait"])
            answer = os.waitstatus_to_exitcode(status)
        elif pid := os.fork():
            children.add(pid)
            answer = pid
        else:
            _serve(service, said["start"])
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    for pid in children:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def _serve(service: str, settings: Mapping[str, str]) -> None:
    """Be the service, and nothing else: what it says goes where the nursery's errors go."""
    os.environ.update(settings)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    sys.argv = [f"services.{service}"]
    code = 1
    try:
        runpy.run_module(f"services.{service}", run_name="__main__", alter_sys=False)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1])
