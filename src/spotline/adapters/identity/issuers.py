"""Issuers of tokens that an installation trusts: `identity.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from spotline.adapters.files.fields import Name, Part, Seconds, Stated, Text, expected, read_part
from spotline.adapters.files.mistake import bad_file
from spotline.adapters.files.yaml_file import read_yaml
from spotline.application.identity.grants import RoleGrant
from spotline.contracts.access import Role

ALGORITHMS = ("ES256", "RS256", "PS256", "EdDSA")
"""What may sign a token. Never `none`; never HS*, whose key is a secret that checkers hold, and
under which a public key would pass for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """Who signs tokens, and what their groups may do here.

    Parameters
    ----------
    audience
        What a token must be for.
    algorithms
        Of `ALGORITHMS`.
    keys_url, keys_file
        Where its public keys are (JWKS); one of the two. `keys_ca` signs the URL's certificate, None
        for the authorities of the operating system.
    refresh_s, refetch_s
        How old keys get before they are fetched again, and how long at least between two fetches.
    leeway_s
        How far its clock may be from ours.
    groups_claim
        Claim that lists the groups of who the token is of; of several groups that are known here the
        first of `groups` counts.
    """

    issuer: str
    audience: str
    algorithms: tuple[str, ...]
    groups: Mapping[str, RoleGrant]
    keys_url: str = ""
    keys_file: Path | None = None
    keys_ca: Path | None = None
    refresh_s: int = 3600
    refetch_s: int = 60
    leeway_s: int = 30
    groups_claim: str = "groups"


def _algorithm(value: str) -> str:
    if value in ALGORITHMS:
        return value
    why = ""
    if value.lower() == "none" or value.upper().startswith("HS"):
        why = "; what is not signed, or signed with a shared secret, proves nobody"
    raise expected(f"one of {', '.join(ALGORITHMS)}{why}")


def _https(value: str) -> str:
    if value and not value.startswith("https://"):
        raise expected("a URL that begins with https://")
    if "@" in value.removeprefix("https://").partition("/")[0]:
        raise expected("a URL without user and password: keys are public")
    return value


class _GroupPart(Part):
    role: Literal["owner", "operator", "viewer", "service"]
    tenant: Text = ""

    @model_validator(mode="after")
    def _granted(self) -> _GroupPart:
        try:
            self.grant()
        except ValueError as error:
            what, _, found = str(error).partition(", was ")
            field, _, wanted = what.partition(" must ")
            raise expected(wanted, at=field, found=found) from None
        return self

    def grant(self) -> RoleGrant:
        return RoleGrant(role=Role(self.role), tenant=self.tenant)


class _IssuerPart(Part):
    issuer: Stated
    audience: Stated
    algorithms: Annotated[list[Annotated[str, AfterValidator(_algorithm)]], Field(min_length=1)]
    jwks_url: Annotated[Text, AfterValidator(_https)] = ""
    jwks_file: Text = ""
    jwks_ca: Text = ""
    refresh: Annotated[Seconds, Field(ge=1)] = 3600
    refetch: Annotated[Seconds, Field(ge=1)] = 60
    leeway: Annotated[Seconds, Field(le=600)] = 30
    groups_claim: Stated = "groups"
    groups: Annotated[dict[Name, _GroupPart], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_source(self) -> _IssuerPart:
        if bool(self.jwks_url) == bool(self.jwks_file):
            found = "both" if self.jwks_url else "neither"
            raise expected("either this field or jwks_file", at="jwks_url", found=found)
        return self


class _IdentityPart(Part):
    issuers: list[_IssuerPart]


def read_issuers(path: Path) -> tuple[Issuer, ...]:
    """Read who may sign tokens; paths in it count from its own folder.

    Raises
    ------
    BadFile
        The file is unreadable, or a field is not as expected: names each.
    """
    part: Any = read_part(_IdentityPart, read_yaml(path), where=str(path))
    issuers = tuple(_issuer(stated, path.parent) for stated in part.issuers)
    seen: dict[tuple[str, str], int] = {}
    for index, issuer in enumerate(issuers):
        first = seen.setdefault((issuer.issuer, issuer.audience), index)
        if first != index:
            raise bad_file(
                str(path), f"issuers[{index}]", "each issuer once for an audience", "it again"
            )
    return issuers


def _issuer(stated: _IssuerPart, folder: Path) -> Issuer:
    return Issuer(
        issuer=stated.issuer,
        audience=stated.audience,
        algorithms=tuple(dict.fromkeys(stated.algorithms)),
        groups={name: group.grant() for name, group in stated.groups.items()},
        keys_url=stated.jwks_url,
        keys_file=folder / stated.jwks_file if stated.jwks_file else None,
        keys_ca=folder / stated.jwks_ca if stated.jwks_ca else None,
        refresh_s=stated.refresh,
        refetch_s=stated.refetch,
        leeway_s=stated.leeway,
        groups_claim=stated.groups_claim,
    )
