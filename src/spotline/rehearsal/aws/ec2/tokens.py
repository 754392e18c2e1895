"""Client tokens: what was sent with one before, and whether it is the same again."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.ec2.asking import Params, wrong
from spotline.rehearsal.aws.service import AwsCall, AwsError
from spotline.rehearsal.aws.state import TERMINATED, Token
from spotline.rehearsal.aws.world import RehearsedWorld

_MOST_CHARACTERS = 64
_UNSAID = ("ClientToken", "DryRun")


def known(world: RehearsedWorld, call: AwsCall, token: str) -> Token | None:
    """What was done with a token before, None if nothing; a forgotten one is a new one.

    EC2 remembers a token for at least a day after the end of what it launched: no longer here.
    https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html

    Raises
    ------
    AwsError
        It came with other parameters then, or it is no token.
    """
    if not token:
        return None
    if len(token) > _MOST_CHARACTERS or not token.isascii():
        raise wrong(f"ClientToken must be at most {_MOST_CHARACTERS} ASCII characters")
    found = world.state.tokens.get((call.account_id, call.region, token))
    if found is None or _is_forgotten(world, found):
        return None
    if (found.operation, found.digest) != (call.operation, digest(call.params)):
        raise AwsError(
            "IdempotentParameterMismatch",
            "Arguments on this idempotent request are inconsistent with arguments used in "
            "previous request(s).",
        )
    return found


def check_alive(world: RehearsedWorld, token: Token) -> None:
    """Refuse a token whose instances have ended; raises AwsError."""
    instances = [world.state.instances[name] for name in token.instance_ids]
    if instances and all(instance.state == TERMINATED for instance in instances):
        raise AwsError(
            "IdempotentInstanceTerminated",
            "The request to launch an instance uses the same client token as a previous request "
            "for which the instance has been terminated.",
        )


def remembered(call: AwsCall, token: str, answer: dict[str, Any]) -> dict[str, Any] | None:
    """What a record keeps of a call with a token; None without one."""
    if not token:
        return None
    return {
        "account_id": call.account_id,
        "region": call.region,
        "operation": call.operation,
        "token": token,
        "digest": digest(call.params),
        "answer": answer,
    }


def digest(params: Params) -> str:
    """A digest of parameters, but for those that may differ when a call is sent again."""
    said = {name: params[name] for name in params if name not in _UNSAID}
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def _is_forgotten(world: RehearsedWorld, token: Token) -> bool:
    instances = [world.state.instances[name] for name in token.instance_ids]
    if any(instance.state != TERMINATED for instance in instances):
        return False
    last_ns = max((instance.terminated_ns for instance in instances), default=token.at_ns)
    return world.now_ns() >= last_ns + world.weather.token_memory_s * NS_PER_S
