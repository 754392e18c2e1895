"""The public images that ours are built on: pulled where a registry answers, else made here.

A stand-in has the name that the Dockerfile and the compose file say, without its digest, and lives in
the storage that Podman keeps for these tests alone. It is Debian with its Python, and with nats-server as our lock
has it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.images.engine import ROOT, Engine, MissingPart, called
from tools.supply.images import Image, named

DOCKERFILE = ROOT / "services/Dockerfile"

SUITE = "bookworm"
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates,wget"
_PULL_S = 300
_BOOTSTRAP_S = 900
_CONTAINERFILE = """\
FROM {base}
COPY nats-server /usr/local/bin/nats-server
ENTRYPOINT ["nats-server"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provided:
    """The images to build on and to run, by the names that they have here.

    `said` is how each came, one line each.
    """

    base: str
    broker: str
    said: tuple[str, ...]


def public_images() -> tuple[Image, Image]:
    """The image that the services' Dockerfile begins from, and the broker's."""
    (base,) = named(DOCKERFILE, DOCKERFILE.read_text())
    compose = ROOT / "docker-compose.yml"
    (broker,) = named(compose, compose.read_text())
    return base, broker


def provide_public_images(engine: Engine) -> Provided:
    """See to it that both are there.

    Raises
    ------
    MissingPart
        No registry answers, and what a stand-in is made with is not installed.
    """
    base, broker = public_images()
    here, how = _provided(engine, base, _make_base)
    server, how_server = _provided(engine, broker, partial(_make_broker, base=here))
    return Provided(base=here, broker=server, said=(how, how_server))


def _provided(engine: Engine, image: Image, make: Callable[[Engine, str], None]) -> tuple[str, str]:
    """The name of an image that is there, and how it came.

    A stand-in cannot have the digest of what it stands for: it has the tag alone.
    """
    stand_in = f"{image.repository}:{image.tag}"
    full = f"{image.repository}@{image.digest}" if image.digest else stand_in
    if not engine.run("image", "inspect", full, check=False).returncode:
        return full, f"{image.name}: there already"
    if not engine.run("pull", full, check=False, timeout_s=_PULL_S).returncode:
        return full, f"{image.name}: pulled"
    if not engine.is_podman:
        raise MissingPart(f"{full}: docker cannot pull it; see what `docker pull {full}` says")
    if not engine.run("image", "inspect", stand_in, check=False).returncode:
        return stand_in, f"{image.name}: no registry answers; a stand-in is there already"
    make(engine, stand_in)
    return stand_in, f"{image.name}: no registry answers; made a stand-in"


def _make_base(engine: Engine, name: str) -> None:
    program = shutil.which("mmdebstrap")
    if program is None:
        raise MissingPart("mmdebstrap: apt-get install mmdebstrap (no registry answers here)")
    with tempfile.TemporaryDirectory(dir=engine.folder) as folder:
        archive = Path(folder) / "base.tar"
        words = ("--variant=minbase", f"--include={PACKAGES}", SUITE, str(archive))
        called((program, *words), engine.environment, timeout_s=_BOOTSTRAP_S)
        engine.run("import", "--quiet", str(archive), name, timeout_s=_BOOTSTRAP_S)


def _make_broker(engine: Engine, name: str, *, base: str) -> None:
    server = Path(sys.executable).with_name("nats-server")
    if not server.exists():
        raise MissingPart(f"nats-server: make setup puts it beside {sys.executable}")
    with tempfile.TemporaryDirectory(dir=engine.folder) as folder:
        shutil.copy(server, Path(folder) / "nats-server")
        (Path(folder) / "Containerfile").write_text(_CONTAINERFILE.format(base=base))
        engine.run("build", *engine.build_options, "--tag", name, folder, timeout_s=_BOOTSTRAP_S)
