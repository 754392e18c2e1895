"""What the parts of the rehearsal agree on: a call that came in, and who answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsCall:
    """One request, as its service's model reads it.

    Parameters
    ----------
    service, operation
        As botocore names them: `ec2`, `CreateFleet`.
    params
        The input shape's members by name, parsed and converted; what was not sent is absent.
    region, account_id, access_key
        Who asks, and where: by the scope of the signature. `account_id` is that of the credentials,
        an assumed role's among them.
    request_id
        A UUID of its own.
    """

    service: str
    operation: str
    params: Mapping[str, Any]
    region: str
    account_id: str
    access_key: str
    request_id: str


class AwsError(Exception):
    """What a service refuses, as AWS says it: a code, a sentence, an HTTP status."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = 400,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.headers = dict(headers or {})


class ConnectionLost(Exception):
    """The connection is closed and nothing is answered, whether or not the call took effect."""


class Service(Protocol):
    """One service of AWS in the rehearsal."""

    @property
    def name(self) -> str:
        """As botocore names it."""
        ...

    async def answer(self, call: AwsCall) -> Mapping[str, Any]:
        """The output shape's members by name.

        Raises
        ------
        AwsError
            It is refused.
        ConnectionLost
            The answer is lost.
        """
        ...


@dataclass(slots=True, kw_only=True)
class Registry:
    """The services that there are, by name."""

    services: dict[str, Service] = field(default_factory=dict)

    def add(self, service: Service) -> None:
        """Have a service answer its calls."""
        self.services[service.name] = service
