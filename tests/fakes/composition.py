"""docker-compose.yml as compose renders it, and each of its services as a process on loopback."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.ports import free_port
from tests.fakes.strict_yaml import read_yaml

_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
_ADDRESS = re.compile(r"(?P<host>[\w.]+):(?P<port>\d{2,5})$")
ANY = "0.0.0.0"


def rendered(value: Any, variables: Mapping[str, str]) -> Any:
    """A part of the file with its variables filled in, as compose does."""
    if isinstance(value, Mapping):
        return {name: rendered(part, variables) for name, part in value.items()}
    if isinstance(value, list):
        return [rendered(part, variables) for part in value]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: variables.get(found[1]) or found[2], value)
    return value


@dataclass(slots=True)
class Composition:
    """The services of the file; folders of containers are those that are mounted there.

    Parameters
    ----------
    variables
        Of compose's own environment.
    """

    repository: Path
    variables: Mapping[str, str]
    services: dict[str, Any] = field(default_factory=dict)
    ports: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        file = read_yaml(self.repository / "docker-compose.yml")
        self.services = rendered(file["services"], self.variables)

    def mounts(self, service: str) -> dict[str, Path]:
        """By the path in the container, what of this machine is there; volumes are left out."""
        found = {}
        for mount in self.services[service].get("volumes", ()):
            source, target = mount.split(":")[:2]
            if source.startswith(("/", ".")):
                found[target] = self.repository / source
        return found

    def environment(self, service: str) -> dict[str, str]:
        """The service's environment, with paths and addresses of this machine."""
        stated = self.services[service].get("environment", {})
        return {name: self._here(service, value) for name, value in stated.items()}

    def port(self, service: str, port: str) -> int:
        """The port of this machine in the place of a container's."""
        return self.ports.setdefault((service, port), free_port())

    def _here(self, service: str, value: str) -> str:
        for target, source in self.mounts(service).items():
            if value == target or value.startswith(f"{target}/"):
                return f"{source}{value.removeprefix(target)}"
        scheme, slashes, address = value.rpartition("//")
        found = _ADDRESS.fullmatch(address)
        if found is None or found["host"] not in (*self.services, ANY):
            return value
        of = service if found["host"] == ANY else found["host"]
        return f"{scheme}{slashes}127.0.0.1:{self.port(of, found['port'])}"


def bare_environment() -> dict[str, str]:
    """This process's environment without what is meant for Spotline."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SPOTLINE_")}
