"""How a stream is, and how much room JetStream has left."""

from __future__ import annotations

from collections.abc import Sequence

import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, StreamInfo

from spotline.adapters.nats.continuity import place_of
from spotline.application.health.flow import LogFacts, PlaceFacts


async def log_facts(js: JetStreamContext, stream: str, places: Sequence[str]) -> LogFacts:
    """Ask the JetStream API how `stream`, its room and these consumers are.

    A limit of the server as a whole (`max_file_store`) is told to no account: only refused events
    show that it is reached.

    Raises
    ------
    nats.js.errors.NotFoundError
        There is no such stream.
    nats.errors.Error
        No answer, or JetStream cannot give one.
    """
    found = {}
    for name in places:
        place = await _place(js, stream, name)
        if place is not None:
            found[name] = place
    # After the places: what a service has taken was stored before.
    info = await js.stream_info(stream)
    used, limit = await _room(js, info)
    return LogFacts(
        first_seq=info.state.first_seq,
        last_seq=info.state.last_seq,
        storage_bytes=used,
        storage_limit_bytes=limit,
        places=found,
    )


async def _place(js: JetStreamContext, stream: str, name: str) -> PlaceFacts | None:
    try:
        info = await js.consumer_info(stream, name)
    except nats.js.errors.NotFoundError:
        return None
    floor_seq, incarnation = place_of(info)
    return PlaceFacts(
        floor_seq=floor_seq,
        waiting=(info.num_pending or 0) + (info.num_ack_pending or 0),
        incarnation=incarnation,
    )


async def _room(js: JetStreamContext, info: StreamInfo) -> tuple[int, int]:
    """Bytes stored and their limit, 0 for none: of the account, or of the stream if that is less."""
    account = await js.account_info()
    rooms = []
    if account.limits.max_storage > 0:
        rooms.append((account.storage, account.limits.max_storage))
    most = info.config.max_bytes or 0
    # A stream that forgets its oldest entries always has room.
    if most > 0 and info.config.discard == DiscardPolicy.NEW:
        rooms.append((info.state.bytes, most))
    return min(rooms, key=lambda room: room[1] - room[0], default=(account.storage, 0))
