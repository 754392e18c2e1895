"""Streams as Spotline wants them: created where absent, brought up to date where they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import nats.errors
import structlog
from nats.aio.client import Client

from spotline.contracts.errors import ConfigError, ProviderUnavailable
from spotline.contracts.subjects import StreamPart, stream_name, stream_subjects
from spotline.domain.units import NS_PER_S
from spotline.runtime.patience import Patience

_log = structlog.get_logger(__name__)

DUPLICATE_WINDOW_S = 120.0

_ANSWER_S = 5.0
_NAME_IN_USE = 10058
# How long a server may be unable to, as while it removes the folder of a deleted stream.
_PATIENCE_S = 5.0
# How long those that set up may take to come.
_OTHERS_PATIENCE_S = 30.0
_RETRY_S = 0.1
# What makes a stream another one than ours.
_IDENTITY = ("storage", "retention", "deny_delete", "deny_purge")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """What a stream keeps: entries younger than `max_age_s`, `max_bytes` in all; 0: everything."""

    max_age_s: float = 0.0
    max_bytes: int = 0


DECISIONS_KEPT = StreamLimits(max_age_s=7 * 86_400.0, max_bytes=1 << 30)
"""A week of what was decided, a gigabyte at most."""


class _NotNow(Exception):
    """The server could not, and may be able to in a moment."""


async def ensure_stream(
    client: Client,
    part: StreamPart,
    *,
    partition: int = 0,
    limits: StreamLimits | None = None,
    patience_s: float | None = None,
    may_make: bool = True,
) -> None:
    """Create a stream of a partition, or have the one that is there take what it is to take now.

    What a store of before holds stays in it, and readable; a limit that somebody has set stays,
    unless `limits` says otherwise. A server that cannot do so is asked again for `patience_s`.
    An identity that may not make streams waits for one that takes what it is to take.

    Raises
    ------
    ConfigError
        A stream of this name or on these subjects exists, and is another one.
    ProviderUnavailable
        The server failed for `patience_s`: its disk is full, or its store not writable.
    nats.errors.Error
        The server does not answer.
    """
    wanted = _wanted(part, partition, limits)
    ensured = _ensure if may_make else _await_made
    if patience_s is None:
        patience_s = _PATIENCE_S if may_make else _OTHERS_PATIENCE_S
    patience = Patience(patience_s)
    while True:
        try:
            await ensured(client, wanted, limits)
        except _NotNow as error:
            if patience.left_s() <= 0:
                raise ProviderUnavailable(
                    f"the server could not provide the stream {wanted['name']} for "
                    f"{patience_s:g} s: {error}"
                ) from error
            await asyncio.sleep(_RETRY_S)
        else:
            return


async def _ensure(client: Client, wanted: Mapping[str, Any], limits: StreamLimits | None) -> None:
    name = wanted["name"]
    answer = await _ask(client, f"STREAM.CREATE.{name}", wanted)
    if _code(answer) == _NAME_IN_USE:
        answer = await _ask(client, f"STREAM.INFO.{name}", None)
        _refuse(answer, name)
        present = answer["config"]
        for key in _IDENTITY:
            if present.get(key, False) != wanted.get(key, False):
                raise ConfigError(
                    f"the stream {name} cannot be used: {key} must be {wanted.get(key, False)}, "
                    f"was {present.get(key, False)}"
                )
        changed = {**present, "subjects": wanted["subjects"]}
        if limits is not None:
            changed |= {key: wanted[key] for key in ("max_age", "max_bytes")}
        if changed == present:
            return
        answer = await _ask(client, f"STREAM.UPDATE.{name}", changed)
    _refuse(answer, name)


async def _await_made(
    client: Client, wanted: Mapping[str, Any], limits: StreamLimits | None
) -> None:
    """Look whether somebody else has made the stream as it is to be; `_NotNow` where not."""
    name = wanted["name"]
    answer = await _ask(client, f"STREAM.INFO.{name}", None)
    _refuse(answer, name)
    absent = set(wanted["subjects"]) - set(answer["config"].get("subjects", ()))
    if absent:
        raise _NotNow(f"the stream {name} does not take {', '.join(sorted(absent))} yet")
    if limits is not None:
        for key in ("max_age", "max_bytes"):
            if answer["config"].get(key) != wanted[key]:
                _log.warning(
                    "stream_limit_of_another",
                    stream=name,
                    limit=key,
                    wanted=wanted[key],
                    found=answer["config"].get(key),
                )


def _wanted(part: StreamPart, partition: int, limits: StreamLimits | None) -> dict[str, Any]:
    kept = limits or StreamLimits()
    is_log = part in (StreamPart.LOG, StreamPart.STATISTICS)
    config: dict[str, Any] = {
        "name": stream_name(partition, part),
        "subjects": sorted(stream_subjects(part)),
        "storage": "file",
        "retention": "limits",
        "num_replicas": 1,
        "max_age": int(kept.max_age_s * NS_PER_S),
        "max_bytes": kept.max_bytes or -1,
        "duplicate_window": int(DUPLICATE_WINDOW_S * NS_PER_S),
        "deny_delete": is_log,
        "deny_purge": is_log,
        "allow_direct": True,
    }
    if not is_log:
        # Made again from the log where a crash took its end, or no more than what programs wrote:
        # it need not be synced write by write.
        config["persist_mode"] = "async"
    return config


async def _ask(client: Client, what: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
    payload = b"" if body is None else json.dumps(body).encode()
    answer = await client.request(f"$JS.API.{what}", payload, timeout=_ANSWER_S)
    told: dict[str, Any] = json.loads(answer.data)
    error = told.get("error", {})
    code = error.get("code", 0)
    if code == 503:
        raise nats.errors.NoRespondersError
    # Its own failure; or the stream went between two questions.
    if code >= 500 or code == 404:
        raise _NotNow(error.get("description"))
    return told


def _code(answer: Mapping[str, Any]) -> int:
    return int(answer.get("error", {}).get("err_code", 0))


def _refuse(answer: Mapping[str, Any], name: str) -> None:
    error = answer.get("error")
    if error:
        raise ConfigError(f"the stream {name} cannot be used: {error.get('description')}")
