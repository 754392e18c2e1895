"""What training programs write, as frozen values; the messages are in `output.proto`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from spotline.domain.problems import refuse_any

MOST_TEXT_BYTES = 64 * 1024
_MOST_RANK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputChunk:
    """A piece of what one process of a program wrote; `ts_ns` is wall time of its instance.

    `generation` 0 is the setup, `rank` that of the process in the whole program, `index` counts
    its pieces from 0, `text` is of 64 KiB at most.
    """

    job_id: str = ""
    tenant: str = ""
    instance_id: str = ""
    generation: int = 0
    rank: int = 0
    index: int = 0
    text: str = ""
    ts_ns: int = 0

    def __post_init__(self) -> None:
        refuse_any(self._problems())

    def _problems(self) -> Iterator[str]:
        size = len(self.text.encode("utf-8", "replace"))
        if size > MOST_TEXT_BYTES:
            yield f"text must have at most {MOST_TEXT_BYTES} bytes, had {size}"
        for name in ("generation", "rank", "index", "ts_ns"):
            if getattr(self, name) < 0:
                yield f"{name} must be >= 0, was {getattr(self, name)}"
        if self.rank > _MOST_RANK:
            yield f"rank must be <= {_MOST_RANK}, was {self.rank}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentOutput:
    """A piece as an agent sends it."""

    message_name: ClassVar[str] = "SendOutputRequest"

    chunk: OutputChunk


class OutputStore(Protocol):
    """Keeps what programs wrote, for a while. All may raise `ProviderUnavailable`."""

    async def append(self, chunk: OutputChunk) -> None:
        """Store a piece; returns when it is stored. The same piece again soon is the same."""
        ...

    async def begin(self, tenant: str, job_id: str, *, last: int) -> int:
        """The place to read from for the last `last` pieces of a job, or all of them (0)."""
        ...

    def read(
        self, tenant: str, job_id: str, *, first_seq: int
    ) -> AsyncIterator[tuple[int, OutputChunk]]:
        """Yield what is stored of a job from a place on, each with its own; ends with the last."""
        ...

    def mark(self, job_id: str) -> int:
        """How many pieces of a job have come through this process."""
        ...

    async def arrival(self, job_id: str, mark: int, *, timeout_s: float) -> None:
        """Return when more have come than when `mark` was taken, or in the end."""
        ...
