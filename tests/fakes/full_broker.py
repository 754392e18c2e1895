"""A log that may not grow, as on a full disk, and one that may again."""

from __future__ import annotations

from dataclasses import replace

from nats.js.api import DiscardPolicy

from spotline.adapters.nats.connection import NatsConnection
from spotline.contracts.subjects import stream_name
from tests.fakes.jetstream import jetstream_of


async def leave_no_room(url: str) -> None:
    """Let the log take nothing more."""
    async with NatsConnection(url, name="full") as connection:
        js = await jetstream_of(connection)
        info = await js.stream_info(stream_name())
        full = replace(info.config, max_bytes=info.state.bytes, discard=DiscardPolicy.NEW)
        await js.update_stream(full)


async def make_room(url: str) -> None:
    """Let the log take what comes."""
    async with NatsConnection(url, name="full") as connection:
        js = await jetstream_of(connection)
        info = await js.stream_info(stream_name())
        await js.update_stream(replace(info.config, max_bytes=-1))
