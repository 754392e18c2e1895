"""What the program writes: masked, cut into pieces, kept while the control plane is away."""

from __future__ import annotations

import asyncio
import codecs
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from io import FileIO
from pathlib import Path

import structlog

from spotline.adapters.grpc.agent.client import AgentCallFailed
from spotline.adapters.grpc.agent.messages import MOST_PIECE_BYTES, OutputPiece
from spotline.agent.ports import AgentClock
from spotline.agent.secrets import Masker
from spotline.agent.timing import RetryPauses
from spotline.domain.units import NS_PER_S

MOST_KEPT_BYTES = 16 << 20
MOST_FILE_BYTES = 64 << 20

_MOST_BATCH_BYTES = 1 << 20
_LAST_WORDS_BYTES = 4000
# A line that never ends is looked at in parts of this size.
_LONGEST_LINE_BYTES = 16 * 1024

_log = structlog.get_logger()


class OutputSpool:
    """Pieces that are to be sent; of more than `most_bytes` it keeps the newest.

    What was dropped is said at the head of the next piece that is kept.
    """

    def __init__(self, *, most_bytes: int = MOST_KEPT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._waiting: deque[OutputPiece] = deque()
        self._bytes = 0
        self._there = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self.dropped_bytes = 0
        self._unsaid_bytes = 0

    def add(self, piece: OutputPiece) -> None:
        """Keep a piece."""
        self._waiting.append(piece)
        self._bytes += piece.size_bytes
        while self._bytes > self._most_bytes and len(self._waiting) > 1:
            dropped = self._waiting.popleft()
            self._bytes -= dropped.size_bytes
            self.dropped_bytes += dropped.size_bytes
            self._unsaid_bytes += dropped.size_bytes
        self._there.set()
        self._empty.clear()

    async def batch(self) -> Sequence[OutputPiece]:
        """The oldest pieces, as many as are sent at once; waits until there are any."""
        await self._there.wait()
        if self._unsaid_bytes:
            self._say_dropped()
        chosen: list[OutputPiece] = []
        size = 0
        for piece in self._waiting:
            size += piece.size_bytes
            if chosen and size > _MOST_BATCH_BYTES:
                break
            chosen.append(piece)
        return chosen

    def _say_dropped(self) -> None:
        head = self._waiting[0]
        said = f"[spotline: {self._unsaid_bytes} bytes of output before this were dropped]\n"
        room = MOST_PIECE_BYTES - len(said)
        kept = head.text.encode()[-room:].decode("utf-8", "ignore")
        self._waiting[0] = OutputPiece(
            generation=head.generation,
            rank=head.rank,
            index=head.index,
            text=said + kept,
            ts_ns=head.ts_ns,
        )
        self._bytes += self._waiting[0].size_bytes - head.size_bytes
        self._unsaid_bytes = 0

    def sent(self, pieces: Sequence[OutputPiece]) -> None:
        """Forget pieces that were delivered; some may have been dropped meanwhile."""
        last = {id(piece) for piece in pieces}
        while self._waiting and id(self._waiting[0]) in last:
            self._bytes -= self._waiting.popleft().size_bytes
        if not self._waiting:
            self._there.clear()
            self._empty.set()

    async def emptied(self) -> None:
        """Wait until all is delivered."""
        await self._empty.wait()

    async def deliver(
        self,
        send: Callable[[Sequence[OutputPiece]], Awaitable[None]],
        clock: AgentClock,
        pauses: RetryPauses,
    ) -> None:
        """Send all pieces, in order, for as long as the agent lives."""
        while True:
            pieces = await self.batch()
            try:
                await send(pieces)
            except AgentCallFailed as error:
                if not error.refused:
                    await clock.sleep(pauses.next_s())
                    continue
                _log.error("output_refused", pieces=len(pieces), error=str(error))
            pauses.reset()
            self.sent(pieces)


class LocalLog:
    """A file on the instance with what a rank wrote; at `most_bytes` it begins again.

    The part before is kept as `<name>.1`. A disk that is full ends the file, not the training.
    """

    def __init__(self, path: Path, *, most_bytes: int = MOST_FILE_BYTES) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._file: FileIO | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            _log.error("output_not_written", path=str(path), error=str(error))

    def write(self, data: bytes) -> None:
        """Append."""
        if self._file is None:
            return
        try:
            if self._file.tell() + len(data) > self._most_bytes:
                self._file.close()
                self._path.replace(self._path.with_name(self._path.name + ".1"))
                self._file = self._path.open("ab", buffering=0)
            self._file.write(data)
        except OSError as error:
            self.close()
            _log.error("output_not_written", path=str(self._path), error=str(error))

    def close(self) -> None:
        """Close the file; what is written later is left out."""
        if self._file is not None:
            self._file.close()
            self._file = None


class RankOutput:
    """Takes in what one rank writes.

    Parameters
    ----------
    masker
        One of its own.
    file
        Where it is kept on the instance, masked.
    first_index
        Of its first piece, where it goes on with what a process before it wrote.
    heed
        Called with every line, masked; a carriage return ends a line, too: progress bars use it.
    """

    def __init__(
        self,
        *,
        generation: int,
        rank: int,
        spool: OutputSpool,
        masker: Masker,
        clock: AgentClock,
        file: LocalLog | None = None,
        heed: Callable[[str], None] = lambda _: None,
        first_index: int = 0,
    ) -> None:
        self.generation = generation
        self.rank = rank
        self._spool = spool
        self._masker = masker
        self._clock = clock
        self._file = file
        self._heed = heed
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # UTF-8 of what was decoded: valid, whatever the program wrote.
        self._pending = bytearray()
        self._line = bytearray()
        self._last = bytearray()
        self.next_index = first_index

    def feed(self, data: bytes) -> None:
        """Take in bytes as they were read."""
        self._take(self._masker.feed(data), final=False)

    def flush(self) -> None:
        """Send the whole lines that are there; of what is no line, all but the last."""
        self._cut(whole_lines=True)

    def close(self) -> None:
        """Send all: the rank has ended."""
        self._take(self._masker.close(), final=True)
        self._cut(whole_lines=False)
        if self._line:
            self._heed_line()
        if self._file is not None:
            self._file.close()

    @property
    def last_words(self) -> str:
        """The end of what it wrote, in whole lines where there are any."""
        text = bytes(self._last[-_LAST_WORDS_BYTES:]).decode("utf-8", "ignore")
        if len(self._last) > _LAST_WORDS_BYTES and "\n" in text[:-1]:
            text = text.partition("\n")[2]
        return text.strip()

    def _take(self, shown: bytes, *, final: bool) -> None:
        if self._file is not None and shown:
            self._file.write(shown)
        valid = self._decoder.decode(shown, final).encode()
        self._pending += valid
        self._last += valid
        del self._last[: -2 * _LAST_WORDS_BYTES]
        for part in valid.replace(b"\r", b"\n").splitlines(keepends=True):
            self._line += part
            if part.endswith(b"\n") or len(self._line) > _LONGEST_LINE_BYTES:
                self._heed_line()
        while len(self._pending) >= MOST_PIECE_BYTES:
            self._emit(_cut_at(self._pending))

    def _heed_line(self) -> None:
        self._heed(self._line.decode("utf-8", "replace").rstrip("\n"))
        self._line.clear()

    def _cut(self, *, whole_lines: bool) -> None:
        end = len(self._pending)
        if whole_lines:
            end = self._pending.rfind(b"\n") + 1
        if end:
            self._emit(end)

    def _emit(self, end: int) -> None:
        text = bytes(self._pending[:end]).decode()
        del self._pending[:end]
        piece = OutputPiece(
            generation=self.generation,
            rank=self.rank,
            index=self.next_index,
            text=text,
            ts_ns=int(self._clock.wall_s() * NS_PER_S),
        )
        self.next_index += 1
        self._spool.add(piece)


def _cut_at(pending: bytearray) -> int:
    """Where to cut what is more than a piece: after a line where there is one, never in a letter."""
    end = pending.rfind(b"\n", 0, MOST_PIECE_BYTES) + 1
    if end:
        return end
    end = MOST_PIECE_BYTES
    while end < len(pending) and pending[end] & 0xC0 == 0x80:
        end -= 1
    return end
