"""The accounts that there are, who may act in them, and by which keys."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

FIRST = "default"
"""The account of this name is 000000000001; the others follow in order of name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumableRole:
    """A role that other accounts may assume, if they say the external id."""

    arn: str
    external_id: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedAccount:
    """An account: its twelve digits, the name that a market file calls it, keys and roles."""

    account_id: str
    name: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    roles: tuple[AssumableRole, ...] = ()


def accounts_of(names: Iterable[str], seed: int) -> tuple[RehearsedAccount, ...]:
    """The accounts of those names, in order of their ids; keys depend on the seed alone."""
    named = sorted(set(names), key=lambda name: (name != FIRST, name))
    # Without an account of that name its number stays free: ids do not move with who else is there.
    first = 1 if named and named[0] == FIRST else 2
    return tuple(_account(f"{number:012d}", name, seed) for number, name in enumerate(named, first))


def _account(account_id: str, name: str, seed: int) -> RehearsedAccount:
    drawn = hashlib.sha256(f"{seed}:{account_id}:{name}".encode()).digest()
    role = AssumableRole(
        arn=f"arn:aws:iam::{account_id}:role/spotline",
        external_id=base64.b32encode(drawn[10:20]).decode(),
    )
    return RehearsedAccount(
        account_id=account_id,
        name=name,
        access_key_id="AKIA" + base64.b32encode(drawn[:10]).decode(),
        secret_access_key=base64.b64encode(hashlib.sha256(drawn).digest()[:30]).decode(),
        roles=(role,),
    )
