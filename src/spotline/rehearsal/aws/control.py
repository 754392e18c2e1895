"""The control endpoint: what a test does to the rehearsed cloud, and what it may know of it.

Plain JSON below `/_rehearsal/`. No part of AWS: nothing but tests and demos calls it.

- GET `clock`, `bill`, `state`.
- POST `interrupt` {instance_id, lead_s = 120}: EC2 takes an instance back, and says so in time.
- POST `terminate` {instance_id}: somebody ends an instance at the console.
- POST `fail` {operation, code, times = 1, message, effect = before | after, raised = as EC2, account_id,
  region}: the next calls of an operation fail; `code` may be `ConnectionLost`.
- POST `capacity` {offering, count, lifecycle = spot}: so many are there, whatever the market says;
  count null: as the market says again.
- POST `quota` {account_id, region, code, vcpus}: a quota is so high.
- POST `deny` {account_id, operation, allow = false}: an account has no right to an operation.
- POST `foreign` {offering, count, lifecycle = spot, tags}: others in the account have instances.
- POST `advance` {seconds}: time goes on, where it stands (`--speed 0`).
- POST `hold` {operation, effect = before | after, skip = 0}: a call of an operation stands still when it
  comes, after `skip` others; `state` shows it in `held`.
- POST `release` {dropped = false}: nothing is held any more; what was goes on, or its connection is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.bill import bill_of, total_micro_usd
from spotline.rehearsal.aws.clock import StandingClock
from spotline.rehearsal.aws.ec2.filling import Filling
from spotline.rehearsal.aws.ec2.launching import Marks, Source, instances_of
from spotline.rehearsal.aws.ec2.resources import subnet_of
from spotline.rehearsal.aws.ec2.service import OPERATIONS, Ec2
from spotline.rehearsal.aws.faults import Effect, Faults, Script
from spotline.rehearsal.aws.holding import Hold, Holds
from spotline.rehearsal.aws.places import ON_DEMAND, SPOT
from spotline.rehearsal.aws.quotas import POOLS
from spotline.rehearsal.aws.state import PENDING, RUNNING
from spotline.rehearsal.aws.world import RehearsedWorld

_Command = Callable[["Control", Mapping[str, Any]], dict[str, Any]]


class ControlRefused(ValueError):
    """What is asked cannot be done."""


class Control:
    """What can be done to a world, its faults, EC2's rights and calls; `state` is its folder."""

    def __init__(
        self,
        world: RehearsedWorld,
        faults: Faults,
        ec2: Ec2,
        state: Path,
        holds: Holds | None = None,
    ) -> None:
        self.world = world
        self.faults = faults
        self.ec2 = ec2
        self.state = state
        self.holds = holds or Holds()

    def clock(self) -> dict[str, Any]:
        """The line of its time, and the time now."""
        return {**self.world.clock.described(), "now_ns": self.world.settle()}

    def bill(self) -> dict[str, Any]:
        """The bill by instance, from the state log, to now."""
        return said_bill(self.state, self.world.settle())

    def told(self) -> dict[str, Any]:
        """What there is, and how many calls failed how."""
        now_ns = self.world.settle()
        state = self.world.state
        return {
            "now_ns": now_ns,
            "accounts": {one.name: one.account_id for one in self.world.accounts},
            "instances": [asdict(state.instances[name]) for name in state.instances],
            "tokens": len(state.tokens),
            "calls": self.faults.calls,
            "failed": dict(sorted(self.faults.struck.items())),
            "came": dict(sorted(self.holds.came.items())),
            "held": self.holds.held,
        }


def said_bill(state: Path, until_ns: int | None = None) -> dict[str, Any]:
    """A rehearsal's bill as JSON has it; errors as `bill_of`."""
    bill = bill_of(state, until_ns)
    return {"total_micro_usd": total_micro_usd(bill), "lines": [asdict(line) for line in bill]}


def _interrupt(control: Control, said: Mapping[str, Any]) -> dict[str, Any]:
    instance_id = _living(control, said)
    lead_s = _stated(said, "lead_s", (int, float), 120)
    if lead_s < 0:
        raise ValueError(f"lead_s must be >= 0, was {lead_s}")
    instance = control.world.state.instances[instance_id]
    if not instance.is_spot:
        raise ValueError(f"instance_id must be of a spot instance, {instance_id} is on demand")
    if instance.taken_ns:
        raise ValueError(f"instance_id must be without notice so far, {instance_id} has one")
    control.world.interrupt(instance_id, lead_s)
    return {"taken_ns": control.world.state.instances[instance_id].taken_ns}


def _terminate(control: Control, said: Mapping[str, Any]) -> dict[str, Any]:
    control.world.terminate(_living(control, said))
    return {}


def _fail(control: Control, said: Mapping[str, Any]) -> dict[str, Any]:
    script = Script(
        operation=_stated(said, "operation", str),
        code=_stated(said, "code", str),
        times=_stated(said, "times", int, 1),
        message=_stated(said, "message", str, ""),
        effect=_effect(said),
        raised=_stated(said, "raised", (bool, type(None)), None),
        account_id=_stated(said, "account_id", str, ""),
        region=_stated(said, "region", str, ""),
    )
    control.faults.scripts.append(script)
    return {}


def _capacity(control: Control, said: Mapping[str, Any]) -> dict[str, Any]:
    offering_id, lifecycle = _place(control, said)
    count = _stated(said, "count", (int, type(None)))
    if count is not None and count < 0:
        raise ValueError(f"count must be >= 0 or null, was {count}")
    control.world.set_count(offering_id, lifecycle, count)
    return {"free": control.world.free(offering_id, lifecycle)}


def _quota(control: Control, said: Mapping[str, Any]) -> dict[str, Any]:
    code = _stated(said, "code", str)
    known = [pool.code for pool in POOLS]
    if code not in known:
        raise ValueError(f"code must be one of {', '.join(known)}, was {code!r}")
    vcpus = _stated(said, "vcpus", (int, float))
    control.world.record(
        "quota",
        control.world.now_ns(),
        account_id=_account(control, said),
        region=_stated(said, "region", str),
        code=code,
        vcpus=vcpus,
    )
    return {}


def _deny(control: Control, said: Mapping[str, Any]) -> dict[str, Any]:
    operation = _stated(said, "operation", str)
    if operation not in OPERATIONS:
        raise ValueError(f"operation must be one of EC2's here, was {operation!r}")
    right = _account(control, said), operation
    if _stated(said, "allow", bool, default=False):
        control.ec2.denied.discard(right)
    else:
        control.ec2.denied.add(right)
    return {}


def _foreign(control: Control, said: Mapping[str, Any]) -> dict[str, Any]:
    offering_id, lifecycle = _place(control, said)
    count, tags = _stated(said, "count", int), _stated(said, "tags", dict, {})
    return {"instance_ids": launch_foreign(control.world, offering_id, lifecycle, count, tags)}


def launch_foreign(
    world: RehearsedWorld, offering_id: str, lifecycle: str, count: int, tags: Mapping[str, str]
) -> list[str]:
    """Have others in an account launch; their instances by id.

    Raises
    ------
    ValueError
        So many are not there.
    """
    free = world.free(offering_id, lifecycle)
    if not 1 <= count <= free:
        raise ValueError(f"count must be >= 1 and <= {free}, what is there, was {count}")
    place = world.places.places[offering_id]
    source = Source(place=place, template=None, subnet=subnet_of(world, place))
    number = world.state.records
    made = instances_of(
        world,
        [source],
        Filling(counts={0: count}),
        lifecycle,
        Marks(tags=tags, client_token=f"foreign-{number}"),
        first=len(world.state.instances),
    )
    world.launch([replace(instance, foreign=True) for instance in made], None)
    return [instance.instance_id for instance in made]


def _advance(control: Control, said: Mapping[str, Any]) -> dict[str, Any]:
    clock = control.world.clock
    if not isinstance(clock, StandingClock):
        raise ControlRefused("advance needs a time that stands: start with --speed 0")
    clock.advance(round(_stated(said, "seconds", (int, float)) * NS_PER_S))
    now_ns = control.world.settle()
    control.world.wake()
    return {"now_ns": now_ns}


def _hold(control: Control, said: Mapping[str, Any]) -> dict[str, Any]:
    hold = Hold(
        operation=_stated(said, "operation", str),
        effect=_effect(said),
        skip=_stated(said, "skip", int, 0),
    )
    control.holds.ask(hold)
    return {}


def _release(control: Control, said: Mapping[str, Any]) -> dict[str, Any]:
    dropped = _stated(said, "dropped", bool, default=False)
    return {"released": control.holds.release(dropped=dropped)}


_COMMANDS: dict[str, _Command] = {
    "interrupt": _interrupt,
    "terminate": _terminate,
    "fail": _fail,
    "capacity": _capacity,
    "quota": _quota,
    "deny": _deny,
    "foreign": _foreign,
    "advance": _advance,
    "hold": _hold,
    "release": _release,
}


def control_app(control: Control) -> Starlette:
    """The endpoint, to be mounted at `/_rehearsal`."""
    reads = {"clock": control.clock, "bill": control.bill, "state": control.told}
    routes = [Route(f"/{name}", _reading(read), methods=["GET"]) for name, read in reads.items()]
    routes += [
        Route(f"/{name}", _commanding(control, command), methods=["POST"])
        for name, command in _COMMANDS.items()
    ]
    return Starlette(routes=routes)


def _reading(read: Callable[[], dict[str, Any]]) -> Callable[[Request], Any]:
    async def answer(_: Request) -> JSONResponse:
        return JSONResponse(read())

    return answer


def _commanding(control: Control, command: _Command) -> Callable[[Request], Any]:
    async def answer(request: Request) -> JSONResponse:
        try:
            said = _object(await request.body())
            control.world.settle()
            return JSONResponse(command(control, said))
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=400)

    return answer


def _object(body: bytes) -> dict[str, Any]:
    said = json.loads(body or b"{}")
    if not isinstance(said, dict):
        raise ControlRefused("the body must be an object")
    return said


_REQUIRED: Any = object()


def _stated(said: Mapping[str, Any], name: str, kind: Any, default: Any = _REQUIRED) -> Any:
    """A field of that type, or its default; raises ValueError."""
    if name not in said:
        if default is _REQUIRED:
            raise ValueError(f"{name} must be given")
        return default
    kinds = kind if isinstance(kind, tuple) else (kind,)
    value = said[name]
    # A bool is an int to Python, and to nobody else.
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = " or ".join(one.__name__ for one in kinds)
        raise ValueError(f"{name} must be {names}, was {value!r}")
    return value


def _effect(said: Mapping[str, Any]) -> Effect:
    """Before or after a call takes effect: before, where nothing is said."""
    effect = _stated(said, "effect", str, Effect.BEFORE.value)
    if effect not in {one.value for one in Effect}:
        raise ValueError(f"effect must be before or after, was {effect!r}")
    return Effect(effect)


def _living(control: Control, said: Mapping[str, Any]) -> str:
    instance_id = str(_stated(said, "instance_id", str))
    instance = control.world.state.instances.get(instance_id)
    if instance is None or instance.state not in (PENDING, RUNNING):
        raise ValueError(f"instance_id must be of an instance that is alive, was {instance_id!r}")
    return instance_id


def _place(control: Control, said: Mapping[str, Any]) -> tuple[str, str]:
    offering_id = _stated(said, "offering", str)
    known = control.world.places.places
    if offering_id not in known:
        raise ValueError(f"offering must be one of {', '.join(known)}, was {offering_id!r}")
    lifecycle = _stated(said, "lifecycle", str, SPOT)
    if lifecycle not in (SPOT, ON_DEMAND):
        raise ValueError(f"lifecycle must be {SPOT} or {ON_DEMAND}, was {lifecycle!r}")
    return offering_id, lifecycle


def _account(control: Control, said: Mapping[str, Any]) -> str:
    account_id = _stated(said, "account_id", str)
    known = [account.account_id for account in control.world.accounts]
    if account_id not in known:
        raise ValueError(f"account_id must be one of {', '.join(known)}, was {account_id!r}")
    return str(account_id)
