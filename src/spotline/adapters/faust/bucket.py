"""The key-value bucket of an app, read and written by compare-and-set."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import Header

from spotline.adapters.faust.declared import app_bucket
from spotline.adapters.faust.session import Session

# The server's codes for a write on a condition that does not hold.
WRONG_LAST_SEQUENCE = (10071, 10164)
_NAME_IN_USE = 10058


class Conflict(Exception):
    """Somebody else has written the key since."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a key holds, and the revision to replace it by; revision 0 if there is none."""

    content: bytes
    revision: int


class Bucket:
    """A JetStream key-value bucket.

    Parameters
    ----------
    name
        Of the bucket, as `nats kv ls` shows it.
    replicas
        Copies a cluster keeps.
    """

    def __init__(self, session: Session, name: str, *, replicas: int = 1) -> None:
        self.name = name
        self._session = session
        self._replicas = replicas

    def subject(self, key: str) -> str:
        """Where a change of `key` is published."""
        return f"$KV.{self.name}.{key}"

    async def open(self) -> None:
        """Create the bucket if it does not exist."""
        config = app_bucket(self.name, replicas=self._replicas)

        async def create(js: JetStreamContext) -> None:
            with suppress(nats.js.errors.NotFoundError):
                await js.stream_info(f"KV_{self.name}")
                return
            try:
                await js.create_key_value(config)
            except nats.js.errors.BadRequestError as error:
                # Of another configuration, which is its administrator's affair.
                if error.err_code != _NAME_IN_USE:
                    raise

        await self._session.ask(create)

    async def get(self, key: str) -> Entry:
        """Read `key` from the bucket's leader, so that no older value comes back."""
        try:
            message = await self._session.ask(
                lambda js: js.get_msg(f"KV_{self.name}", subject=self.subject(key))
            )
        except nats.js.errors.NotFoundError:
            return Entry(b"", 0)
        return Entry(message.data or b"", message.seq or 0)

    async def put(self, key: str, content: bytes, *, revision: int) -> int:
        """Replace what `key` held at `revision`, 0 for nothing, and return the new revision.

        Raises
        ------
        Conflict
            It holds something else. That may be `content`, if a first attempt was stored and its
            answer lost.
        """
        headers = {Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(revision)}
        try:
            ack = await self._session.ask(
                lambda js: js.publish(self.subject(key), content, headers=headers)
            )
        except nats.js.errors.BadRequestError as error:
            if error.err_code in WRONG_LAST_SEQUENCE:
                raise Conflict(key) from error
            raise
        return ack.seq
