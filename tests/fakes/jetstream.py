"""JetStream as tests ask it themselves."""

from nats.js import JetStreamContext

from spotline.adapters.nats.connection import NatsConnection
from tests.eventually import PATIENCE_S


async def jetstream_of(connection: NatsConnection) -> JetStreamContext:
    """The API on a connection, waiting patiently for its answers."""
    link = await connection.link(timeout_s=PATIENCE_S)
    return link.client.jetstream(timeout=PATIENCE_S)
