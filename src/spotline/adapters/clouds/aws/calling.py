"""Calls of AWS's services in the name of an account: what feeds and checks ask, and by whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from spotline.contracts.errors import ProviderUnavailable

Answer = Mapping[str, Any]

MOST_PAGES = 200


class CallRefused(ProviderUnavailable):
    """AWS answered with an error: its code and its own words."""

    def __init__(self, operation: str, code: str, message: str) -> None:
        super().__init__(f"aws refused {operation}: {code}: {message}")
        self.operation = operation
        self.code = code
        self.message = message


class AwsReader(Protocol):
    """Calls services of AWS in the name of the accounts of the settings."""

    async def call(
        self, account: str, region: str, service: str, operation: str, **params: Any
    ) -> Answer:
        """Call one operation, named as botocore names it (`ec2`, `DescribeSubnets`).

        Raises
        ------
        CallRefused
            It answered with an error.
        Throttled, ProviderUnavailable
            Not now: there is no answer, or we ask too often.
        ConfigError
            boto3 is not installed, or nothing says by which credentials to call.
        """
        ...


async def pages(
    api: AwsReader, where: tuple[str, str, str], operation: str, rows: str, **params: Any
) -> list[Any]:
    """All rows of an operation that answers in pages, at most `MOST_PAGES` of them.

    `where` is account, region and service; `rows` the member of an answer that holds rows. A page
    without rows may have a next one.

    Raises
    ------
    CallRefused, Throttled, ProviderUnavailable
        As `AwsReader.call`; or there are more pages.
    """
    account, region, service = where
    found: list[Any] = []
    asked = dict(params)
    for _ in range(MOST_PAGES):
        answer = await api.call(account, region, service, operation, **asked)
        found += answer.get(rows) or ()
        token = answer.get("NextToken")
        if not token:
            return found
        asked["NextToken"] = token
    raise ProviderUnavailable(
        f"aws: {operation} in {region} must answer in <= {MOST_PAGES} pages, had more"
    )
