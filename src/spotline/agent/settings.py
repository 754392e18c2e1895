"""What an agent is told by its environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spotline.contracts.errors import ConfigError

_NEEDED = (
    "SPOTLINE_CONTROL",
    "SPOTLINE_CONTROL_CA",
    "SPOTLINE_INSTANCE_ID",
    "SPOTLINE_JOB_ID",
    "SPOTLINE_JOIN_TOKEN",
)
# What a document stands for: it is of an instance, and the control plane knows its job.
_OF_TOKENS = ("SPOTLINE_JOB_ID", "SPOTLINE_JOIN_TOKEN")
_PEM = "-----BEGIN"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The variables of an agent, as docs/agent.md lists them.

    Parameters
    ----------
    control, control_ca
        `host:port` of the control plane; the certificate of its authority, PEM.
    host
        Where other members reach this instance.
    job_id
        Which job; empty where only the control plane knows it.
    join_token, identity_document, identity_signature
        What is shown to join: a token, or else the instance's document that its cloud has signed.
    base_dir
        Folder of all that the agent keeps on the instance.
    metadata_dir, secrets_dir
        Where the cloud says notices, and where secrets lie; None: nowhere.
    """

    control: str
    control_ca: bytes = field(repr=False)
    instance_id: str
    job_id: str
    join_token: str = field(repr=False)
    host: str
    base_dir: Path
    metadata_dir: Path | None = None
    secrets_dir: Path | None = None
    cloud_kind: str = ""
    aws_endpoint: str = ""
    identity_document: str = field(default="", repr=False)
    identity_signature: str = field(default="", repr=False)
    environ: Mapping[str, str] = field(repr=False, default_factory=dict)

    @property
    def work_dir(self) -> Path:
        """The program's working directory."""
        return self.base_dir / "work"

    @property
    def run_dir(self) -> Path:
        """The folder of what agent and program say to each other."""
        return self.base_dir / "run"

    @property
    def output_dir(self) -> Path:
        """The folder of what the program wrote."""
        return self.base_dir / "output"


def read_shutdown_command(environ: Mapping[str, str]) -> str:
    """A line for a shell that shuts the instance down; empty: its end is the agent's end.

    It is read apart: it counts also where the rest of the environment is wrong.
    """
    return environ.get("SPOTLINE_SHUTDOWN_COMMAND", "").strip()


def read_settings(
    environ: Mapping[str, str], *, document: str = "", signature: str = ""
) -> AgentSettings:
    """Read the agent's environment.

    Parameters
    ----------
    document, signature
        What is shown instead of a join token; then no token and no job is needed there.

    Raises
    ------
    ConfigError
        Variables are missing or wrong; it names them all.
    """
    needed = [name for name in _NEEDED if not (document and name in _OF_TOKENS)]
    if missing := [name for name in needed if not environ.get(name, "").strip()]:
        raise ConfigError(
            f"{', '.join(missing)} must be set: an agent is started with the user data that "
            "Spotline made for its instance"
        )
    host, _, port = environ["SPOTLINE_CONTROL"].strip().rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"SPOTLINE_CONTROL must be HOST:PORT, was {environ['SPOTLINE_CONTROL']!r}"
        )
    instance_id = environ["SPOTLINE_INSTANCE_ID"].strip()
    if os.sep in instance_id or instance_id in (".", ".."):
        raise ConfigError(f"SPOTLINE_INSTANCE_ID must be an instance's id, was {instance_id!r}")
    metadata_dir = _folder(environ, "SPOTLINE_METADATA_DIR")
    base_dir = _folder(environ, "SPOTLINE_WORK_DIR")
    if base_dir is None:
        base_dir = metadata_dir / "agent" if metadata_dir else Path(f"spotline-{instance_id}")
    return AgentSettings(
        control=environ["SPOTLINE_CONTROL"].strip(),
        control_ca=_certificate(environ["SPOTLINE_CONTROL_CA"]),
        instance_id=instance_id,
        job_id=environ.get("SPOTLINE_JOB_ID", "").strip(),
        join_token="" if document else environ["SPOTLINE_JOIN_TOKEN"].strip(),
        identity_document=document,
        identity_signature=signature,
        host=environ.get("SPOTLINE_HOST", "").strip() or own_address(host, int(port)),
        base_dir=base_dir.absolute(),
        metadata_dir=metadata_dir,
        secrets_dir=_folder(environ, "SPOTLINE_SECRETS_DIR"),
        cloud_kind=environ.get("SPOTLINE_CLOUD_KIND", "").strip(),
        aws_endpoint=environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "").strip(),
        environ=dict(environ),
    )


def _folder(environ: Mapping[str, str], name: str) -> Path | None:
    value = environ.get(name, "").strip()
    return Path(value).absolute() if value else None


def _certificate(said: str) -> bytes:
    if _PEM in said:
        return said.encode()
    try:
        found = Path(said.strip()).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"SPOTLINE_CONTROL_CA must be a certificate in PEM or a file with one: {error}"
        ) from error
    if _PEM.encode() not in found:
        raise ConfigError(f"SPOTLINE_CONTROL_CA must be PEM; {said.strip()} holds something else")
    return found


def own_address(host: str, port: int) -> str:
    """The address of this machine on its way to `host`; empty where there is none.

    A UDP socket that is connected sends nothing.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError):
        return ""  # a proxy resolves the name, or there is no way yet: SPOTLINE_HOST says it
