"""What the agent of an instance tells its ranks when it starts them (ADR 0031)."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXIT_TO_RESUME = 75
"""`EX_TEMPFAIL`: saved, wants to go on."""

DEFAULT_INTERVAL_S = 600.0
DEFAULT_GRACE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAllocation:
    """Where this process stands in its generation.

    Parameters
    ----------
    generation
        Counts the starts of the program, from 1; 0 outside Spotline.
    node_rank, nnodes
        Of this instance, and how many there are.
    rank, local_rank, world_size
        Of this process among all and on its instance, and how many there are in all.
    instance_ids
        The members in rank order; empty where the agent has not said.
    """

    generation: int
    node_rank: int
    nnodes: int
    rank: int
    local_rank: int
    world_size: int
    instance_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnvironment:
    """The variables of a rank. Outside Spotline `run_dir` is None.

    Parameters
    ----------
    job_id
        Empty outside Spotline.
    run_dir
        The folder that agent and program share.
    notice_file
        Where the agent writes notices.
    checkpoint_uri
        A folder or an fsspec URL, below which `checkpoints/` lies; empty: none is kept.
    interval_s
        Wall seconds between two periodic checkpoints, > 0; infinite: none.
    grace_s
        Wall seconds between being told to stop and being killed, >= 0.
    """

    job_id: str
    run_dir: Path | None
    notice_file: Path | None
    checkpoint_uri: str
    interval_s: float
    grace_s: float
    allocation: RankAllocation

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> RankEnvironment:
        """Read the variables; without SPOTLINE_RUN_DIR this is outside Spotline.

        Raises
        ------
        ValueError
            A variable does not hold what it should; the message names it.
        """
        run_dir = Path(environ["SPOTLINE_RUN_DIR"]) if environ.get("SPOTLINE_RUN_DIR") else None
        notices = environ.get("SPOTLINE_NOTICE_FILE")
        node_rank, nnodes = (
            whole(environ, "SPOTLINE_NODE_RANK", 0),
            whole(environ, "SPOTLINE_NNODES", 1),
        )
        return cls(
            job_id=environ.get("SPOTLINE_JOB_ID", ""),
            run_dir=run_dir,
            notice_file=Path(notices) if notices else run_dir and run_dir / "notice.json",
            checkpoint_uri=environ.get("SPOTLINE_CHECKPOINT_URI", ""),
            interval_s=seconds(environ, "SPOTLINE_CHECKPOINT_INTERVAL_S", DEFAULT_INTERVAL_S),
            grace_s=seconds(environ, "SPOTLINE_GRACE_S", DEFAULT_GRACE_S),
            allocation=RankAllocation(
                generation=whole(environ, "SPOTLINE_GENERATION", 0),
                node_rank=node_rank,
                nnodes=nnodes,
                rank=whole(environ, "RANK", node_rank),
                local_rank=whole(environ, "LOCAL_RANK", 0),
                world_size=whole(environ, "WORLD_SIZE", nnodes),
            ),
        )

    def scratch(self) -> Path:
        """Return the folder for what is on its way to or from a remote store; all ranks of the instance share it."""
        if self.run_dir is not None:
            return self.run_dir / "checkpoints"
        return Path(tempfile.gettempdir()) / f"spotline-{os.getuid()}-{self.job_id or 'local'}"


def whole(environ: Mapping[str, str], name: str, default: int) -> int:
    """Read a variable that holds a whole number >= 0."""
    text = environ.get(name) or str(default)
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name} must be a whole number >= 0, was {text!r}")
    return int(text)


def seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    """Read a variable that holds seconds >= 0; `inf` is allowed."""
    text = environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise ValueError(f"{name} must be seconds >= 0, was {text!r}")
    return value


class WatchedFile:
    """A JSON file that another process replaces; read again only when it has changed."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._content: Any = None

    def content(self) -> Any:
        """Return what the file holds, or None while there is none.

        Raises
        ------
        ValueError
            The file is not JSON: its writer replaces it whole, so it is not half written.
        """
        if self._path is None:
            return None
        try:
            status = self._path.stat()
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                self._content = json.loads(self._path.read_bytes())
                self._seen = seen
        except FileNotFoundError:
            self._seen, self._content = None, None
        except json.JSONDecodeError as error:
            raise ValueError(f"{self._path} must be JSON: {error}") from error
        return self._content
