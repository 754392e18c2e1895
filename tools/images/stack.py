"""The compose stack under test: its containers, and the CLI that talks to it from outside."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tools.images.engine import ROOT, Engine, called

PORTS = ("ALLOCATOR", "CONFIGURATOR", "PLACER", "ANALYTICS", "HTTP")
_POLL_S = 0.5
_BUILD_S = 1800
_UP_S = 300

# Kills the service itself, below the container's init: an engine restarts what dies, and leaves
# alone what it was told to kill. There is a shell in every image, and no more to rely on.
_KILL = """
for folder in /proc/[0-9]*; do
    pid=${folder#/proc/}
    [ "$pid" = 1 ] || [ "$pid" = $$ ] || ! grep -q -e "$0" "$folder/cmdline" || kill -9 "$pid"
done
"""

ResultT = TypeVar("ResultT")


class TooLate(Exception):
    """What was waited for did not come in time."""


def eventually(what: str, ask: Callable[[], ResultT | None], *, within_s: float) -> ResultT:
    """Ask until the answer is neither None nor false, and return it.

    Raises
    ------
    TooLate
        It is not within `within_s` seconds.
    """
    deadline = time.monotonic() + within_s
    while True:
        if answer := ask():
            return answer
        if time.monotonic() > deadline:
            raise TooLate(f"{what}: not within {within_s:g} s")
        time.sleep(_POLL_S)


@dataclass(slots=True)
class Stack:
    """The services of docker-compose.yml under a project name of their own, on any free ports.

    `settings` are compose's variables, `shown` those by which the CLI is let in.
    """

    engine: Engine
    project: str
    settings: Mapping[str, str]
    shown: Mapping[str, str]
    ports: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ports = {name: _free_port() for name in PORTS}

    @property
    def environment(self) -> dict[str, str]:
        """Of compose, which fills the file's variables from it."""
        kept = {k: v for k, v in self.engine.environment.items() if not k.startswith("SPOTLINE_")}
        ports = {f"SPOTLINE_{name}_PORT": str(port) for name, port in self.ports.items()}
        return {**kept, **ports, **self.settings}

    def compose(self, *words: str, timeout_s: float = _UP_S, check: bool = True) -> str:
        """Call compose on the stack and return what it said."""
        command = (*self.engine.compose, "--project-name", self.project)
        command += ("--file", "docker-compose.yml", *words)
        return called(command, self.environment, timeout_s=timeout_s, check=check).stdout

    def build(self, service: str) -> None:
        """Build one service's image."""
        self.compose("build", *self.engine.build_arguments, service, timeout_s=_BUILD_S)

    def services(self) -> list[str]:
        """The names of all services, ours and the broker."""
        import yaml

        return sorted(yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"])

    # --- containers -------------------------------------------------------------------------

    def containers(self, service: str = "") -> list[str]:
        """The names of the containers, of one service or of all."""
        labels = [f"label=com.docker.compose.project={self.project}"]
        if service:
            labels.append(f"label=com.docker.compose.service={service}")
        filters = [word for label in labels for word in ("--filter", label)]
        return self.engine.run("ps", "--all", *filters, "--format", "{{.Names}}").stdout.split()

    def container(self, service: str) -> str:
        """The name of a service's only container."""
        (name,) = self.containers(service)
        return name

    def healthy(self, service: str) -> bool:
        """Whether its health check passes now."""
        if self.engine.is_podman:
            # Its timers need systemd, so nobody else runs the check.
            container = self.container(service)
            return not self.engine.run("healthcheck", "run", container, check=False).returncode
        state = "{{.State.Health.Status}}"
        return self._inspected(service, state) == "healthy"

    def started_at(self, service: str) -> str:
        """When its container was started last."""
        return self._inspected(service, "{{.State.StartedAt}}")

    def kill(self, service: str) -> str:
        """Kill the service's process, and return what went wrong with that as far as the engine can tell.

        The container ends with it, so that the command in it may not live to say how it ended: whether
        the process died shows in when its container is started again.
        """
        program = "nats-server" if service == "nats" else f"services.{service}"
        words = "exec", self.container(service), "sh", "-c", _KILL, program
        return self.engine.run(*words, check=False).stderr.strip()

    def exec(self, service: str, *words: str) -> str:
        """Run a command in a service's container and return what it said."""
        return self.engine.run("exec", self.container(service), *words).stdout

    def logs(self, service: str) -> str:
        """The end of what a service said."""
        done = self.engine.run("logs", "--tail", "15", self.container(service), check=False)
        return done.stdout + done.stderr

    def _inspected(self, service: str, template: str) -> str:
        words = ("inspect", "--format", template, self.container(service))
        return self.engine.run(*words).stdout.strip()

    # --- from outside -----------------------------------------------------------------------

    def slots_opened(self) -> int:
        """How many slots market_ingest has opened, as a scrape from another container shows."""
        text = self.exec("nats", "wget", "-qO-", "http://market_ingest:8080/metrics")
        for line in text.splitlines():
            if line.startswith("messaging_process_duration_seconds_count{") and all(
                label in line
                for label in ('spotline_service="market_ingest"', 'spotline_kind="market.slot"')
            ):
                return int(float(line.rpartition(" ")[2]))
        return 0

    def cli(self, *words: str, port: str = "ALLOCATOR") -> subprocess.CompletedProcess[str]:
        """Call the CLI on this machine against a published port."""
        address = f"127.0.0.1:{self.ports[port]}"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SPOTLINE_")}
        command = (sys.executable, "-c", "from spotline.cli.main import app; app()", *words)
        return called(
            (*command, "--address", address, "--json"), {**kept, **self.shown}, check=False
        )

    def status(self, job_id: str) -> dict[str, Any] | None:
        """Where a job stands, None while the allocator does not answer."""
        done = self.cli("status", job_id)
        if done.returncode:
            return None
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    # --- the end ----------------------------------------------------------------------------

    def take_down(self) -> list[str]:
        """Remove containers, volumes, networks and images; name what is still there."""
        self.compose("down", "--volumes", "--rmi", "local", check=False)
        left = self.containers()
        for kind in ("volume", "network"):
            listed = self.engine.run(kind, "ls", "--format", "{{.Name}}").stdout.split()
            left += [f"{kind} {name}" for name in listed if self._is_ours(name)]
        images = self.engine.run("images", "--format", "{{.Repository}}").stdout.split()
        return left + [f"image {name}" for name in images if self._is_ours(name)]

    def _is_ours(self, name: str) -> bool:
        return re.search(rf"(^|/){re.escape(self.project)}[-_]", name) is not None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def folder_readable_by_all(folder: Path) -> Path:
    """Let the user inside a container, who is not root, read what is mounted from here."""
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)
    return folder
