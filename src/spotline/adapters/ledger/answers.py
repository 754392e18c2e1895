"""A call's answers as text: each event's kind and its payload, as in the log."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

from spotline.contracts.codec import decode, encode
from spotline.contracts.errors import ContractError
from spotline.contracts.subjects import KINDS
from spotline.domain.events.event import Event


def dump_answers(answers: Sequence[Event]) -> str:
    """Write events as a JSON list of [kind, payload in base64]."""
    return json.dumps(
        [[KINDS[type(event)], base64.b64encode(encode(event)).decode("ascii")] for event in answers]
    )


def load_answers(text: str) -> tuple[Event, ...]:
    """Read what `dump_answers` wrote.

    Raises
    ------
    ContractError
        The text is none of ours, or holds an event that this version cannot read.
    """
    try:
        said = [(str(kind), base64.b64decode(payload)) for kind, payload in json.loads(text)]
    except (ValueError, TypeError, RecursionError) as error:
        raise ContractError(
            "answers", f"a list of [kind, payload] was expected: {error}"
        ) from error
    return tuple(decode(kind, payload) for kind, payload in said)
