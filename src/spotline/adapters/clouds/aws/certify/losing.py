"""AWS with an answer that is lost: the call takes effect, and nobody hears of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from spotline.adapters.clouds.aws.api import AwsApi, Place, Reply
from spotline.adapters.clouds.aws.errors import NoAnswer


class LosingApi:
    """Implements `AwsApi` on another one; of one operation the first answer is dropped."""

    def __init__(self, api: AwsApi, operation: str) -> None:
        self._api = api
        self._operation = operation

    async def call(self, place: Place, service: str, operation: str, **params: Any) -> Reply:
        """Call, and drop what comes back of the operation that is lost."""
        reply = await self._api.call(place, service, operation, **params)
        if operation == self._operation:
            self._operation = ""
            raise NoAnswer(f"{operation}: the answer was dropped on purpose")
        return reply

    async def read(self, place: Place, service: str, operation: str, **params: Any) -> Reply:
        """As the other one."""
        return await self._api.read(place, service, operation, **params)

    def start(self, work: Callable[[], None]) -> Future[None]:
        """As the other one."""
        return self._api.start(work)

    def call_now(self, place: Place, service: str, operation: str, **params: Any) -> Reply:
        """As the other one."""
        return self._api.call_now(place, service, operation, **params)

    def close(self) -> None:
        """Close the other one."""
        self._api.close()
