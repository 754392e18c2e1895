"""What a disk, an administrator or a restore does to the files of a log."""

import re
import shutil
from pathlib import Path

from nats.js import JetStreamContext

from spotline.contracts.subjects import stream_name


def blocks_of(broker_store: Path) -> list[Path]:
    """The files of the log's messages, in their order."""
    folder = next((broker_store / "jetstream").rglob(f"streams/{stream_name()}/msgs"))
    return sorted(folder.glob("*.blk"), key=lambda block: int(re.sub(r"\D", "", block.name)))


def flip_bytes(broker_store: Path, *, at: float) -> None:
    """Flip three bytes at this share of the last block, while no server runs.

    What the server noted of the stream goes too, as after a crash: it reads the blocks then.
    """
    block = blocks_of(broker_store)[-1]
    content = bytearray(block.read_bytes())
    place = int(len(content) * at)
    for offset in range(3):
        content[place + offset] ^= 0xFF
    block.write_bytes(content)
    for noted in block.parent.glob("index.db"):
        noted.unlink()


async def delete_log(js: JetStreamContext) -> None:
    """Delete the log's stream, as an administrator may."""
    await js.delete_stream(stream_name())


def copied(store: Path, to: Path) -> Path:
    """A copy of a folder, put where another one may be."""
    shutil.rmtree(to, ignore_errors=True)
    return shutil.copytree(store, to)
