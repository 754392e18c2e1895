"""Pages of a long answer, with tokens that say where the next one begins."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TypeVar

from spotline.rehearsal.aws.service import AwsError

Item = TypeVar("Item")


def page_of(
    items: Sequence[Item], size: int, token: str, *, refusal: str
) -> tuple[list[Item], str]:
    """One page, and the token of the next; empty: this was the last.

    Raises
    ------
    AwsError
        Of code `refusal`: the token is none that was given.
    """
    start = 0
    if token:
        try:
            kind, _, number = base64.b64decode(token, validate=True).decode().partition(" ")
            start = int(number)
        except ValueError as error:
            raise AwsError(refusal, "The NextToken is invalid") from error
        if kind != "from" or not 0 < start < len(items):
            raise AwsError(refusal, "The NextToken is invalid")
    end = start + size
    following = base64.b64encode(f"from {end}".encode()).decode() if end < len(items) else ""
    return list(items[start:end]), following
