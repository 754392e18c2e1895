"""Callers of every role, and the authority and keys by which servers of a test know them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spotline.adapters.identity.authority import Authority
from spotline.adapters.identity.endpoints import ClientIdentity
from spotline.adapters.identity.shown import ServerIdentity
from spotline.contracts.access import Caller, Role
from spotline.contracts.errors import Unauthenticated

OWN, OTHER = "research", "rival"

CALLERS: Mapping[str, Caller] = {
    "owner": Caller(subject="ann", role=Role.OWNER, tenant=OWN),
    "rival": Caller(subject="rob", role=Role.OWNER, tenant=OTHER),
    "operator": Caller(subject="olga", role=Role.OPERATOR),
    "viewer": Caller(subject="vera", role=Role.VIEWER),
    "tenant-viewer": Caller(subject="tom", role=Role.VIEWER, tenant=OWN),
    "service": Caller(subject="selector", role=Role.SERVICE),
    "instance": Caller(subject="i-1", role=Role.INSTANCE, tenant=OWN, job_id="job-1", generation=1),
}
"""One of each role, by the token that proves it; and one of another tenant."""


class KnownTokens:
    """An authenticator of these tokens."""

    def __init__(self, callers: Mapping[str, Caller] = CALLERS) -> None:
        self._callers = callers

    async def caller(self, token: str) -> Caller:
        """Whose it is."""
        known = self._callers.get(token)
        if known is None:
            raise Unauthenticated("the token is unknown")
        return known


@dataclass(frozen=True, slots=True)
class TestIdentities:
    """What servers of a test show, and its clients."""

    __test__ = False

    authority: Authority

    @classmethod
    def at(cls, folder: Path) -> TestIdentities:
        """With an authority in this folder."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(Authority(folder, title="A test's authority"))

    def server(self, *, mtls: bool = False) -> ServerIdentity:
        """For one server."""
        return ServerIdentity(
            authenticator=KnownTokens(),
            key_and_chain=self.authority.server_identity(()),
            clients_ca_pem=self.authority.ca_pem.encode() if mtls else b"",
        )

    def client(self, token: str, *, certified: bool = False) -> ClientIdentity:
        """For a client that shows this token, and a certificate of its own where it is certified."""
        return ClientIdentity(
            token=token,
            ca_pem=self.authority.ca_pem.encode(),
            key_and_chain=self.authority.service_identity("selector") if certified else None,
        )
