"""Check what can be checked of compose files without Docker; with its compose plugin, let it judge too.

The first file is the base, every further one an overlay on it. Checked: known keys, build files
and mounted files that exist, images of the service that they are built for, declared volumes,
dependencies on services that exist, a health check (its own or its image's) and a memory limit for
every service, and environment variables that the service's settings read.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from spotline.bootstrap.stated_config import VARIABLE as CONFIG
from spotline.runtime.settings import ServiceSettings

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "SPOTLINE_"
TOP_LEVEL_KEYS = {"name", "services", "volumes", "networks", "configs", "secrets"}
SERVICE_KEYS = {
    *("build", "cap_add", "command", "configs", "depends_on", "entrypoint", "environment"),
    *("expose", "healthcheck", "image", "init", "mem_limit", "networks", "ports", "profiles"),
    *("read_only", "restart", "secrets", "stop_grace_period", "user", "volumes"),
}
BUILD_KEYS = {"args", "context", "dockerfile", "target"}
HEALTHCHECK_KEYS = {"disable", "interval", "retries", "start_period", "test", "timeout"}
CONDITIONS = {"service_completed_successfully", "service_healthy", "service_started"}
DURATION = re.compile(r"(\d+(h|m|s|ms|us))+")
SIZE = re.compile(r"\d+(b|k|m|g|kb|mb|gb)", re.IGNORECASE)


def settings_variables(service: str) -> set[str] | None:
    """Environment variables that a service reads, from its settings class; None if it has none."""
    if not (ROOT / "services" / service / "settings.py").exists():
        return None
    module = importlib.import_module(f"services.{service}.settings")
    variables: set[str] = set()
    for candidate in vars(module).values():
        if isinstance(candidate, type) and issubclass(candidate, ServiceSettings):
            variables |= candidate.variables()
    return variables


def service_problems(
    name: str, service: Mapping[str, Any], services: Mapping[str, Any], volumes: Mapping[str, Any]
) -> Iterator[str]:
    """What is wrong with one merged service."""
    for key in sorted(service.keys() - SERVICE_KEYS):
        yield f"unknown key {key!r}"
    if ("image" in service) == ("build" in service):
        yield "exactly one of image and build is needed"
    build = service.get("build", {})
    yield from build_problems(name, build)
    if "healthcheck" in service or not image_checks_itself(build):
        yield from healthcheck_problems(service.get("healthcheck", {}))
    if not SIZE.fullmatch(str(service.get("mem_limit", ""))):
        yield f"mem_limit must be a size such as 512m, was {service.get('mem_limit')!r}"
    for other, how in service.get("depends_on", {}).items():
        if other not in services:
            yield f"depends on unknown service {other!r}"
        if how.get("condition") not in CONDITIONS:
            yield f"condition on {other} must be one of {sorted(CONDITIONS)}"
    for mount in service.get("volumes", ()):
        # ${VARIABLE:-./path} is judged by its default.
        source = re.sub(r"^\$\{\w+:-([^}]*)\}", r"\1", mount).split(":")[0]
        if source.startswith((".", "/")):
            if source.endswith((".conf", ".yml", ".yaml")) and not (ROOT / source).is_file():
                yield f"mounts {source}, which does not exist"
        elif source not in volumes:
            yield f"mounts undeclared volume {source!r}"
    yield from environment_problems(name, service.get("environment", {}))


def build_problems(name: str, build: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the build section of service `name`."""
    for key in sorted(build.keys() - BUILD_KEYS):
        yield f"unknown key {key!r} in build"
    if not build:
        return
    if not dockerfile_of(build).is_file():
        yield f"there is no {build['dockerfile']}"
    built = build.get("args", {}).get("SERVICE")
    if built != name:
        yield f"is built with SERVICE {built!r}, expected {name!r}"
    elif not (ROOT / "services" / name / "__main__.py").is_file():
        yield f"there is no services/{name}/__main__.py to run"


def dockerfile_of(build: Mapping[str, Any]) -> Path:
    """The Dockerfile that a build section names."""
    return Path(ROOT, build.get("context", "."), build["dockerfile"])


def image_checks_itself(build: Mapping[str, Any]) -> bool:
    """Whether the image has a health check of its own."""
    if not build or not dockerfile_of(build).is_file():
        return False
    lines = dockerfile_of(build).read_text().splitlines()
    return any(line.startswith("HEALTHCHECK ") for line in lines)


def healthcheck_problems(healthcheck: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a health check."""
    for key in sorted(healthcheck.keys() - HEALTHCHECK_KEYS):
        yield f"unknown key {key!r} in healthcheck"
    if not healthcheck.get("test") and not healthcheck.get("disable"):
        yield "has no health check"
    for key in ("interval", "timeout", "start_period"):
        if key in healthcheck and not DURATION.fullmatch(str(healthcheck[key])):
            yield f"healthcheck {key} must be a duration such as 10s, was {healthcheck[key]!r}"


def environment_problems(name: str, environment: Mapping[str, Any]) -> Iterator[str]:
    """Variables that are no strings, or that the service's settings would never read."""
    known = settings_variables(name)
    for variable, value in environment.items():
        if not isinstance(value, str):
            yield f"{variable} must be a string, was {value!r}"
        if known is not None and variable.startswith(PREFIX) and variable not in {*known, CONFIG}:
            yield f"{variable} is no setting of the service; it has {', '.join(sorted(known))}"


def merged(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Merge mappings key by key and append lists, which is what compose does with overlays."""
    result = dict(base)
    for key, value in overlay.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        elif isinstance(value, list) and isinstance(result.get(key), list) and key != "command":
            result[key] = result[key] + value
        else:
            result[key] = value
    return result


def problems(compose: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a merged compose file, one line each."""
    for key in compose:
        if key not in TOP_LEVEL_KEYS and not key.startswith("x-"):
            yield f"unknown top-level key {key!r}"
    services = compose.get("services") or {}
    volumes = compose.get("volumes") or {}
    if not services:
        yield "there are no services"
    for name, service in services.items():
        for problem in service_problems(name, service, services, volumes):
            yield f"{name}: {problem}"


def docker_judges(files: list[Path]) -> bool:
    """Let `docker compose config` read the files; true where that is installed.

    Raises
    ------
    SystemExit
        It refused them; its message has been printed.
    """
    if shutil.which("docker") is None:
        return False
    if subprocess.run(
        ["docker", "compose", "version"], check=False, capture_output=True
    ).returncode:
        return False
    chosen = [argument for file in files for argument in ("--file", str(file))]
    if subprocess.run(["docker", "compose", *chosen, "config", "--quiet"], check=False).returncode:
        sys.exit(f"docker compose refused {' + '.join(map(str, files))}")
    return True


def main() -> None:
    """Check the base file, and the base with each overlay."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("overlays", type=Path, nargs="*")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))  # the services live outside the wheel

    failed = False
    base = yaml.safe_load(arguments.base.read_text())
    for overlay in (None, *arguments.overlays):
        files = [arguments.base, *([overlay] if overlay else [])]
        compose = merged(base, yaml.safe_load(overlay.read_text())) if overlay else base
        label = " + ".join(map(str, files))
        found = list(problems(compose))
        for problem in found:
            print(f"{label}: {problem}")
        failed |= bool(found)
        if not found:
            judge = "docker compose agrees" if docker_judges(files) else "structure only"
            print(f"{label}: ok ({judge})")
    sys.exit(failed)


if __name__ == "__main__":
    main()
