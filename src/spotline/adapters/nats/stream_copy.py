"""Copies of whole streams, as the server makes and takes them: with their `seq`, times and places."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from spotline.contracts.errors import ConfigError, ProviderUnavailable

_CHUNK_BYTES = 1 << 17
# Between two chunks.
_ANSWER_S = 30.0
_NOT_FOUND = 10059


async def copy_stream(client: Client, name: str, to: Path) -> dict[str, Any] | None:
    """Write a stream's content to a file; what the server says of it, None where there is none.

    The server takes care that it is of one moment, whoever writes to the stream meanwhile.

    Raises
    ------
    ProviderUnavailable
        The server stopped answering, or says that the stream is damaged.
    """
    chunks: asyncio.Queue[Msg] = asyncio.Queue()
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox, cb=chunks.put)
    try:
        # Checked by the server as it reads: a damaged stream is no copy.
        body = {"deliver_subject": inbox, "chunk_size": _CHUNK_BYTES, "jsck": True}
        told = await _asked(client, f"STREAM.SNAPSHOT.{name}", body)
        if told.get("error", {}).get("err_code") == _NOT_FOUND:
            return None
        _refuse(told, f"{name} cannot be copied")
        with to.open("wb") as file:
            while True:
                chunk = await _next(chunks, name)
                if not chunk.data:
                    status = (chunk.headers or {}).get("Status", "")
                    if status not in ("", "204"):
                        said = (chunk.headers or {}).get("Description", status)
                        raise ProviderUnavailable(f"{name} cannot be copied: {said}")
                    break
                file.write(chunk.data)
                if chunk.reply:
                    await client.publish(chunk.reply)
        return {"config": told["config"], "state": told["state"]}
    finally:
        await subscription.unsubscribe()


async def put_stream(client: Client, name: str, said: dict[str, Any], content: Path) -> None:
    """Make a stream of what `copy_stream` wrote.

    Raises
    ------
    ConfigError
        The server has a stream of that name, or refuses the content.
    """
    told = await _asked(client, f"STREAM.RESTORE.{name}", said)
    if "error" in told:
        raise ConfigError(f"{name} cannot be restored: {told['error'].get('description')}")
    deliver = str(told["deliver_subject"])
    with content.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            answer = await client.request(deliver, chunk, timeout=_ANSWER_S)
            if answer.data:
                _refuse(json.loads(answer.data), f"{name} cannot be restored")
    answer = await client.request(deliver, b"", timeout=_ANSWER_S)
    told = json.loads(answer.data)
    if "error" in told:
        raise ConfigError(f"{name} cannot be restored: {told['error'].get('description')}")


async def _next(chunks: asyncio.Queue[Msg], name: str) -> Msg:
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await chunks.get()
    except TimeoutError as error:
        raise ProviderUnavailable(
            f"{name} cannot be copied: the server was silent for {_ANSWER_S:g} s"
        ) from error


async def _asked(client: Client, what: str, body: dict[str, Any]) -> dict[str, Any]:
    payload = json.dumps(body).encode()
    answer = await client.request(f"$JS.API.{what}", payload, timeout=_ANSWER_S)
    told: dict[str, Any] = json.loads(answer.data)
    return told


def _refuse(told: dict[str, Any], problem: str) -> None:
    if "error" in told:
        raise ProviderUnavailable(f"{problem}: {told['error'].get('description')}")
