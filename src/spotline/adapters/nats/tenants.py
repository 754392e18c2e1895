"""What a tenant's read identity gets of the time before it listened."""

from __future__ import annotations

from contextlib import suppress

import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from spotline.contracts.bus_access import history_subject, tenant_identity, tenant_subjects
from spotline.contracts.subjects import StreamPart, stream_name


async def ensure_history(
    js: JetStreamContext, tenant: str, *, partition: int = 0, again: bool = False
) -> None:
    """Have the broker put a tenant's decisions where only the tenant hears them.

    It begins with the oldest that is kept, when the tenant listens, and goes on from where it came
    when the tenant comes back. The tenant asks for nothing: whoever may ask may name the subject of
    the answer. `again` begins with the oldest once more.

    Raises
    ------
    nats.js.errors.NotFoundError
        There is no stream of decisions yet.
    """
    stream = stream_name(partition, StreamPart.DECISIONS)
    name = tenant_identity(tenant)
    if again:
        with suppress(nats.js.errors.NotFoundError):
            await js.delete_consumer(stream, name)
    config = ConsumerConfig(
        durable_name=name,
        deliver_subject=history_subject(tenant),
        deliver_policy=DeliverPolicy.ALL,
        ack_policy=AckPolicy.NONE,
        filter_subjects=list(tenant_subjects(tenant)),
    )
    await js.add_consumer(stream, config)
