"""The public images that ours are built on: pulled where a registry answers, else made here.

A stand-in has the name that the Dockerfile and the compose file say, and lives in the storage that
Podman keeps for these tests alone. It is Debian with its Python, and with nats-server as our lock
has it.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

import yaml

from tools.images.engine import ROOT, Engine, MissingPart, called

SUITE = "bookworm"
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates,wget"
_PULL_S = 300
_BOOTSTRAP_S = 900
_CONTAINERFILE = """\
FROM {base}
COPY nats-server /usr/local/bin/nats-server
ENTRYPOINT ["nats-server"]
"""


def public_images() -> tuple[str, str]:
    """The image that the services' Dockerfile begins from, and the broker's."""
    base = re.search(r"^FROM (\S+)", (ROOT / "services/Dockerfile").read_text(), re.MULTILINE)
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    if base is None:
        raise ValueError("services/Dockerfile must have a FROM")
    return base[1], compose["services"]["nats"]["image"]


def provide_public_images(engine: Engine) -> list[str]:
    """See to it that both are there; say how, one line each.

    Raises
    ------
    MissingPart
        No registry answers, and what a stand-in is made with is not installed.
    """
    base, broker = public_images()
    said = []
    for image, make in ((base, _make_base), (broker, _make_broker)):
        full = f"docker.io/library/{image}"
        if not engine.run("image", "inspect", full, check=False).returncode:
            said.append(f"{image}: there already")
        elif not engine.run("pull", full, check=False, timeout_s=_PULL_S).returncode:
            said.append(f"{image}: pulled")
        elif engine.is_podman:
            make(engine, full)
            said.append(f"{image}: no registry answers; made a stand-in")
        else:
            raise MissingPart(
                f"{image}: docker cannot pull it; see what `docker pull {image}` says"
            )
    return said


def _make_base(engine: Engine, name: str) -> None:
    program = shutil.which("mmdebstrap")
    if program is None:
        raise MissingPart("mmdebstrap: apt-get install mmdebstrap (no registry answers here)")
    with tempfile.TemporaryDirectory(dir=engine.folder) as folder:
        archive = Path(folder) / "base.tar"
        words = ("--variant=minbase", f"--include={PACKAGES}", SUITE, str(archive))
        called((program, *words), engine.environment, timeout_s=_BOOTSTRAP_S)
        engine.run("import", "--quiet", str(archive), name, timeout_s=_BOOTSTRAP_S)


def _make_broker(engine: Engine, name: str) -> None:
    server = Path(sys.executable).with_name("nats-server")
    if not server.exists():
        raise MissingPart(f"nats-server: make setup puts it beside {sys.executable}")
    base, _ = public_images()
    with tempfile.TemporaryDirectory(dir=engine.folder) as folder:
        shutil.copy(server, Path(folder) / "nats-server")
        (Path(folder) / "Containerfile").write_text(_CONTAINERFILE.format(base=base))
        engine.run("build", *engine.build_options, "--tag", name, folder, timeout_s=_BOOTSTRAP_S)
