"""How the doctor looks: an answer, or a check that says why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.calling import AwsReader, CallRefused, pages
from spotline.adapters.clouds.aws.settings import AwsOffering, AwsSettings
from spotline.application.cloud_checks import CloudCheck, failed, left_open, warning
from spotline.contracts.errors import ProviderUnavailable

IAM_PREFIX = {"service-quotas": "servicequotas"}
NO_RIGHT = frozenset(
    {"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthorizationError"}
)
# What a service says to an operation that it does not have: only a rehearsal does.
_UNKNOWN = frozenset({"InvalidAction", "UnknownOperationException", "UnknownService"})


class Unread(Exception):
    """Something could not be read; `check` says why."""

    def __init__(self, check: CloudCheck) -> None:
        super().__init__(check.detail)
        self.check = check


@dataclass(frozen=True, slots=True)
class Look:
    """Asks AWS on behalf of one check; what it cannot learn becomes `Unread`."""

    reader: AwsReader
    name: str
    site: AwsPlace

    async def ask(self, service: str, operation: str, **params: Any) -> Any:
        """The answer of one operation."""
        try:
            return await self.reader.call(
                self.site.account, self.site.region, service, operation, **params
            )
        except ProviderUnavailable as error:
            raise Unread(unread(self.name, str(self.site), service, operation, error)) from error

    async def rows(self, service: str, operation: str, member: str, **params: Any) -> list[Any]:
        """All rows of an operation that answers in pages."""
        where = (self.site.account, self.site.region, service)
        try:
            return await pages(self.reader, where, operation, member, **params)
        except ProviderUnavailable as error:
            raise Unread(unread(self.name, str(self.site), service, operation, error)) from error


def unread(
    name: str, where: str, service: str, operation: str, error: ProviderUnavailable
) -> CloudCheck:
    """The check of something that was not answered."""
    action = f"{IAM_PREFIX.get(service, service)}:{operation}"
    if not isinstance(error, CallRefused):
        return failed(
            name,
            where,
            f"{action} is not answered: {error}",
            "check the network, proxies and VPC endpoints between here and AWS, then ask again",
        )
    if error.code in NO_RIGHT:
        return warning(
            name,
            where,
            f"could not be looked at: {error.code}",
            f"allow {action} (deploy/aws/doctor-policy.json), or look by hand",
        )
    if error.code in _UNKNOWN or error.message.endswith("is not rehearsed"):
        return left_open(name, where, f"{action} is not known there")
    return failed(name, where, f"{error.code}: {error.message}", "put right what AWS names")


def sites_of(settings: AwsSettings) -> Iterator[tuple[AwsPlace, list[AwsOffering]]]:
    """The accounts and regions with their offerings, in order."""
    found: dict[AwsPlace, list[AwsOffering]] = {}
    for offering in sorted(settings.offerings, key=lambda each: each.offering_id):
        if offering.savings_plan is not None:
            # It is launched as the offering beside it is.
            continue
        found.setdefault(AwsPlace(offering.account, offering.region), []).append(offering)
    for site in sorted(found):
        yield site, found[site]
