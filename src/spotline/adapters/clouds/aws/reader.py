"""`AwsReader` by the calls of AWS: what feeds and checks ask by."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from spotline.adapters.clouds.aws.api import AwsApi, AwsPlace, BotoApi
from spotline.adapters.clouds.aws.calling import Answer, CallRefused
from spotline.adapters.clouds.aws.calls import Calls
from spotline.adapters.clouds.aws.errors import AwsRefused, NoAnswer, NotReached
from spotline.adapters.clouds.aws.settings import AwsSettings
from spotline.contracts.errors import InvariantViolation, ProviderUnavailable, Throttled
from spotline.domain.events.capacity import RefusalClass

# Where AWS names no time: its buckets of tokens refill by the second.
RETRY_AFTER_S = 5.0

# Between askings again of what AWS failed at.
_WAITS_S = (0.2, 0.8)
_READS = ("Describe", "Get", "List", "Lookup")
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def method_name(operation: str) -> str:
    """What boto3 calls an operation: `describe_subnets` of `DescribeSubnets`."""
    return _CAPITAL.sub("_", operation).lower()


class ApiReader:
    """Implements `AwsReader` with boto3; makes no calls but those it is given.

    Connections are opened by the first call, and by the first one after `close`.
    """

    def __init__(self, settings: AwsSettings, calls: Calls) -> None:
        self._settings = settings
        self._calls = {service: tuple(map(method_name, names)) for service, names in calls.items()}
        self._opened: AwsApi | None = None

    async def call(
        self, account: str, region: str, service: str, operation: str, **params: Any
    ) -> Answer:
        """As `AwsReader.call`; what only reads is asked again, a few times, where AWS is unwell."""
        place, name = AwsPlace(account, region), method_name(operation)
        reads = operation.startswith(_READS)
        if self._opened is None:
            self._opened = BotoApi(self._settings, self._calls)
        ask = self._opened.read if reads else self._opened.call
        for wait_s in (*(_WAITS_S if reads else ()), 0.0):
            try:
                return await ask(place, service, name, **params)
            except AwsRefused as error:
                passing = error.refusal_class is RefusalClass.SERVER
                if not (passing and wait_s):
                    raise _told(operation, error) from error
            except (NotReached, NoAnswer) as error:
                raise ProviderUnavailable(f"aws did not answer: {error}") from error
            await asyncio.sleep(wait_s)
        raise InvariantViolation(f"{operation} was neither answered nor refused")

    def close(self) -> None:
        """Close the connections, if there are any."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _told(operation: str, error: AwsRefused) -> ProviderUnavailable:
    if error.refusal_class is RefusalClass.THROTTLED:
        return Throttled("aws", error.retry_after_s or RETRY_AFTER_S)
    return CallRefused(operation, error.code, error.message)
