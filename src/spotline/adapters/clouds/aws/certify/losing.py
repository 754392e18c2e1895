"""AWS as processes of a trial have it: over the same connections, one with an answer that is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from spotline.adapters.clouds.aws.api import AwsApi, AwsPlace, Reply
from spotline.adapters.clouds.aws.errors import NoAnswer


class LosingApi:
    """Implements `AwsApi` on another one, which stays open when this one is closed.

    Of `operation` the first answer is dropped: it takes effect, and nobody hears of it. Empty: none is.
    """

    def __init__(self, api: AwsApi, operation: str = "") -> None:
        self._api = api
        self._operation = operation

    async def call(self, place: AwsPlace, service: str, operation: str, **params: Any) -> Reply:
        """Call, and drop what comes back of the operation that is lost."""
        reply = await self._api.call(place, service, operation, **params)
        if operation == self._operation:
            self._operation = ""
            raise NoAnswer(f"{operation}: the answer was dropped on purpose")
        return reply

    async def read(self, place: AwsPlace, service: str, operation: str, **params: Any) -> Reply:
        """As the other one."""
        return await self._api.read(place, service, operation, **params)

    def start(self, work: Callable[[], None]) -> Future[None]:
        """As the other one."""
        return self._api.start(work)

    def call_now(self, place: AwsPlace, service: str, operation: str, **params: Any) -> Reply:
        """As the other one."""
        return self._api.call_now(place, service, operation, **params)

    def close(self) -> None:
        """Nothing is to be done: the connections are of who opened them."""
