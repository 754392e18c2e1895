"""The container engine that this machine has: Docker, or Podman with what it lacks here made up for.

Docker is taken as it is. Podman gets a storage of its own, so that nothing here meets the images
and containers of its user. Where there is no systemd it is also configured to do without: with
runc, cgroupfs, and no timers for health checks, which callers then run by hand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = Path(__file__).with_name("runc_without_rlimits.py")

# Settings of pip that say where packages come from, by the variable that means the same.
PIP_SETTINGS = {
    "index-url": "PIP_INDEX_URL",
    "extra-index-url": "PIP_EXTRA_INDEX_URL",
    "find-links": "PIP_FIND_LINKS",
    "cert": "PIP_CERT",
}
# Helper programs of Podman are not on the PATH.
_HELPERS = "/usr/lib/podman:/usr/libexec/podman:/usr/local/libexec/podman"
_SYSTEMD = Path("/run/systemd/system")
PODMAN_COMPOSE = "podman-compose==1.6.0"


class MissingPart(Exception):
    """What is not installed here, and how to install it, one line each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """How to call the engine and its compose.

    `build_options` are arguments of one image's build; compose takes `build_arguments` alone, and
    what else a build needs is among the words of `compose`.
    """

    name: str
    compose: tuple[str, ...]
    environment: Mapping[str, str]
    build_arguments: tuple[str, ...] = ()
    build_options: tuple[str, ...] = ()
    folder: Path = field(default_factory=Path)

    @property
    def is_podman(self) -> bool:
        """Whether it is Podman."""
        return self.name == "podman"

    def run(
        self, *words: str, check: bool = True, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Call the engine and return what it said.

        Raises
        ------
        subprocess.CalledProcessError
            It failed, and `check` is set.
        """
        return called((self.name, *words), self.environment, check=check, timeout_s=timeout_s)


def called(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    check: bool = True,
    timeout_s: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run a command in the repository; where it fails, show what it said.

    Raises
    ------
    subprocess.CalledProcessError
        It failed, and `check` is set.
    """
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    if check and done.returncode:
        print(f"{' '.join(command)}\n{done.stdout}{done.stderr}", file=sys.stderr)
        done.check_returncode()
    return done


def engine_here(folder: Path) -> Engine:
    """The engine to use; Podman keeps its storage in `folder`.

    Raises
    ------
    MissingPart
        Neither engine is ready; says what is missing.
    """
    environment = dict(os.environ)
    if _answers("docker", "info"):
        if not _answers("docker", "compose", "version"):
            raise MissingPart("docker has no compose: install the package docker-compose-plugin")
        return Engine(
            name="docker",
            compose=("docker", "compose"),
            environment=environment,
            build_arguments=_as_arguments(pip_settings()),
            folder=folder,
        )
    missing = list(_missing_for_podman())
    if missing:
        raise MissingPart(
            "\n".join(("no Docker engine answers, and Podman lacks parts:", *missing))
        )
    settings = pip_settings()
    if "PIP_CERT" not in settings and (bundle := os.environ.get("SSL_CERT_FILE")):
        settings["PIP_CERT"] = bundle
    # A build's own network has no way out on some machines, and local packages must be seen in it.
    options = ["--network", "host"]
    for path in local_paths(settings.values()):
        options += ["--volume", f"{path}:{path}:ro"]
    return Engine(
        name="podman",
        compose=(_podman_compose(), "--podman-build-args", " ".join(options)),
        environment=environment | _podman_environment(folder),
        build_arguments=_as_arguments(settings),
        build_options=tuple(options),
        folder=folder,
    )


def pip_settings() -> dict[str, str]:
    """Where pip finds packages here, by environment variable."""
    listed = called((sys.executable, "-m", "pip", "config", "list"), os.environ).stdout
    found: dict[str, str] = {}
    for line in listed.splitlines():
        name, equals, value = line.partition("=")
        variable = PIP_SETTINGS.get(name.rpartition(".")[2])
        # The environment comes first in pip's list, and counts before its files.
        if equals and variable is not None:
            found.setdefault(variable, str(literal_eval(value)))
    return found


def local_paths(values: Iterable[str]) -> list[Path]:
    """The files and folders of this machine that settings of pip name."""
    words = [word for value in values for word in value.split()]
    paths = {Path(word.removeprefix("file://")) for word in words}
    return sorted(path for path in paths if path.is_absolute() and path.exists())


def _as_arguments(settings: Mapping[str, str]) -> tuple[str, ...]:
    pairs = (("--build-arg", f"{name}={value}") for name, value in sorted(settings.items()))
    return tuple(word for pair in pairs for word in pair)


def _answers(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return not called(command, os.environ, check=False).returncode


def _missing_for_podman() -> Iterator[str]:
    """The parts of Podman's that are not here, each with how to install it."""
    helpers = os.pathsep.join((_HELPERS, os.environ.get("PATH", ""), "/usr/sbin:/sbin"))
    wanted = [
        ("podman", "apt-get install podman"),
        ("netavark", "apt-get install netavark"),
        ("aardvark-dns", "apt-get install aardvark-dns"),
        ("iptables", "apt-get install iptables"),
        ("catatonit", "apt-get install catatonit"),
    ]
    if not _SYSTEMD.exists():
        wanted.append(("runc", "apt-get install runc"))
    for program, remedy in wanted:
        if shutil.which(program, path=helpers) is None:
            yield f"  {program}: {remedy}"
    compose = _podman_compose()
    if shutil.which(compose) is None:
        yield (
            f"  {compose}: pip install {PODMAN_COMPOSE} in an environment of its own, and name the "
            "program in PODMAN_COMPOSE"
        )


def _podman_compose() -> str:
    return os.environ.get("PODMAN_COMPOSE", "podman-compose")


def _podman_environment(folder: Path) -> dict[str, str]:
    """Write Podman's configuration into `folder`; the variables that make it count."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    )
    engine = {
        "lock_type": "file",
        "tmp_dir": f"{folder}/state",
        "volume_path": f"{folder}/volumes",
    }
    # Without it podman builds images that cannot have a health check.
    variables = {"BUILDAH_FORMAT": "docker"}
    runtimes = ""
    if not _SYSTEMD.exists():
        engine |= {"runtime": "plain", "cgroup_manager": "cgroupfs", "events_logger": "file"}
        runtimes = f'[engine.runtimes]\nplain = ["{RUNTIME}"]\n'
        variables["DISABLE_HC_SYSTEMD"] = "true"
    lines = "\n".join(f'{name} = "{value}"' for name, value in engine.items())
    (folder / "containers.conf").write_text(
        f"[engine]\n{lines}\n{runtimes}"
        f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{folder}/networks"\n'
    )
    return variables | {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }
