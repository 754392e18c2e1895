"""What a recorded log says about itself: `manifest.json` beside its entries."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any

from spotline import __version__
from spotline.adapters.whole_file import opened, replacing
from spotline.contracts.errors import SpotlineError
from spotline.domain.decision_version import DECISION_VERSION

FORMAT_VERSION = 1
_MOST_BYTES = 1 << 24
MANIFEST_FILE = "manifest.json"
ENTRIES_FILE = "entries.jsonl"
STATISTICS_FILE = "statistics.jsonl"

# What can change the result of a deciding program, beside the program itself.
_DECIDING_PACKAGES = ("llvmlite", "numba", "numpy", "ortools", "protobuf", "river", "scipy")


class UnreadableLog(SpotlineError):
    """A log cannot be read, or not from its first entry to its last without a hole."""


class LogStatus(Enum):
    """How a recording ended, if it did."""

    RUNNING = "running"
    ENDED = "ended"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where decisions were computed: equal but for `spotline`, they promise equal decisions.

    `spotline` is the release, for people: whether it decides otherwise is said by
    `decision_version`. `python` is major.minor, `packages` the versions of what computes,
    `platform` the operating system and machine.
    """

    spotline: str
    python: str
    platform: str
    packages: Mapping[str, str]
    # Manifests of 0.1.0 do not state it.
    decision_version: int = 1

    def differences(self, other: Environment) -> tuple[str, ...]:
        """One phrase per thing that can change decisions, such as `numpy: 2.4.6 there, 2.5.0 here`."""
        there, here = self._facts(), other._facts()
        found = [
            f"{name}: {there.get(name, 'absent')} there, {here.get(name, 'absent')} here"
            for name in sorted(there.keys() | here.keys())
            if there.get(name) != here.get(name)
        ]
        if self.decision_version != other.decision_version:
            found.insert(
                0,
                f"decision_version: {self.decision_version} there (Spotline {self.spotline}), "
                f"{other.decision_version} here (Spotline {other.spotline}); "
                f"verify it with a release that decides by version {self.decision_version}",
            )
        return tuple(found)

    def _facts(self) -> dict[str, str]:
        return {**self.packages, "python": self.python, "platform": self.platform}


def environment() -> Environment:
    """The environment of this process, from installed metadata; imports nothing heavy."""
    packages = {}
    for name in _DECIDING_PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return Environment(
        spotline=__version__,
        python=".".join(platform.python_version_tuple()[:2]),
        platform=f"{platform.system()} {platform.machine()}",
        packages=packages,
        decision_version=DECISION_VERSION,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A log's identity, circumstances and extent.

    `settings` holds the settings of every service by name, `seeds` every seed by purpose. Times
    are nanoseconds since the epoch; `ended_ns`, `first_seq` and `last_seq` are 0 where unknown.
    `statistics_file` is where the entries of the statistics' own stream are, beside the others;
    empty where there are none, as in logs of before, which hold statistics among their entries.
    `incarnation` counts the log's, from 1; those before it are in folders of their own beside.
    """

    run_id: str
    stream: str
    started_ns: int
    environment: Environment
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: Mapping[str, int] = field(default_factory=dict)
    status: LogStatus = LogStatus.RUNNING
    ended_ns: int = 0
    first_seq: int = 0
    last_seq: int = 0
    statistics_file: str = ""
    incarnation: int = 1

    @property
    def settings_sha256(self) -> str:
        """Hash of the settings: equal for equal settings, however they are ordered."""
        text = json.dumps(self.settings, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replace the manifest of a log at once: a reader sees the old one or the new one."""
    text = {
        "format_version": FORMAT_VERSION,
        **asdict(manifest),
        "status": manifest.status.value,
        "settings_sha256": manifest.settings_sha256,
    }
    with (
        replacing(directory / MANIFEST_FILE) as unfinished,
        unfinished.open("w", encoding="utf-8") as file,
    ):
        json.dump(text, file, indent=2, sort_keys=True)
        file.write("\n")


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a log.

    Raises
    ------
    UnreadableLog
        There is none, it is not JSON, it is of another format version, or a field is missing.
    """
    path = directory / MANIFEST_FILE
    try:
        with opened(path) as stream:
            content = stream.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise UnreadableLog(f"{path}: expected at most {_MOST_BYTES:,} bytes, found more")
        text = json.loads(content)
    except (FileNotFoundError, NotADirectoryError):
        raise UnreadableLog(
            f"{directory}: expected the folder of a recorded log, found no {MANIFEST_FILE} in it"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UnreadableLog(f"{path}: expected a log's JSON, found: {error}") from error
    except OSError as error:
        found = error.strerror or str(error)
        raise UnreadableLog(f"{path}: expected a readable file, found: {found}") from error
    version = text.get("format_version") if isinstance(text, dict) else None
    if version != FORMAT_VERSION:
        raise UnreadableLog(
            f"{path}: format_version: expected {FORMAT_VERSION}, found {version}; "
            "read it with the version of spotline that wrote it"
        )
    try:
        text = {"statistics_file": "", "incarnation": 1, **text}
        known = {member.name: text[member.name] for member in fields(Manifest)}
        known["environment"] = Environment(**text["environment"])
        known["status"] = LogStatus(text["status"])
        known["incarnation"] = int(text["incarnation"])
    except KeyError as error:
        raise UnreadableLog(
            f"{path}: {error.args[0]}: expected this field, found nothing"
        ) from error
    except (TypeError, ValueError) as error:
        raise UnreadableLog(f"{path}: expected what a run writes, found: {error}") from error
    return Manifest(**known)
