"""What there is in the rehearsed cloud: a fold over the records of its state log.

A record is a JSON object with `at_ns` (market time) and `kind`; nothing changes but by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from spotline.rehearsal.aws.places import SPOT

PENDING, RUNNING = "pending", "running"
SHUTTING_DOWN, TERMINATED = "shutting-down", "terminated"

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Instance:
    """An instance, as it is now. Times are market time; 0: not yet, or never.

    Parameters
    ----------
    lifecycle
        `spot` or `on-demand`.
    hidden_until_ns
        Before that it is missing from what is described.
    launched_ns, running_ns, ended_ns, terminated_ns
        When it became pending, running, shutting-down and terminated. Of what is still to come,
        `running_ns` and `terminated_ns` say when.
    noticed_ns, taken_ns, told_ns
        When it was given notice, when it will be taken, and when EventBridge says so (each time
        one event). `in_metadata` is whether its own metadata says so.
    disk_gb
        Its volumes together: made as it is launched, deleted as it ends.
    reason
        Code of its end, such as `Client.UserInitiatedShutdown`.
    user_data
        In base64, of its own request; empty: its launch template's.
    foreign
        Belongs to others in the same account: it uses quota and capacity.
    """

    instance_id: str
    account_id: str
    region: str
    zone: str
    instance_type: str
    offering_id: str
    lifecycle: str
    state: str
    launched_ns: int
    hidden_until_ns: int
    running_ns: int
    client_token: str
    template_id: str
    template_version: str
    subnet_id: str
    private_ip: str
    index: int = 0
    reservation_id: str = ""
    fleet_id: str = ""
    placement_group: str = ""
    spot_request_id: str = ""
    capacity_reservation_id: str = ""
    disk_gb: int = 0
    key_name: str = ""
    user_data: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    foreign: bool = False
    recommended_ns: int = 0
    noticed_ns: int = 0
    taken_ns: int = 0
    told_ns: tuple[int, ...] = ()
    in_metadata: bool = True
    ended_ns: int = 0
    terminated_ns: int = 0
    reason: str = ""

    @property
    def is_spot(self) -> bool:
        """Whether EC2 may take it back."""
        return self.lifecycle == SPOT

    @property
    def alive(self) -> bool:
        """Whether it is pending or running."""
        return self.state in (PENDING, RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A client token that was sent over HTTP: with what, and what was answered."""

    account_id: str
    region: str
    operation: str
    token: str
    digest: str
    at_ns: int
    answer: Mapping[str, Any]
    instance_ids: tuple[str, ...]


@dataclass(slots=True)
class State:
    """All that the records say so far."""

    instances: dict[str, Ec2Instance] = field(default_factory=dict)
    # Those that are not terminated: what still happens, happens to them.
    here: dict[str, Ec2Instance] = field(default_factory=dict)
    tokens: dict[tuple[str, str, str], Token] = field(default_factory=dict)
    # Counts that were set by hand, by offering and lifecycle.
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    # vCPUs that were set by hand, by account, region and code of the quota.
    quotas: dict[tuple[str, str, str], float] = field(default_factory=dict)
    at_ns: int = 0
    records: int = 0

    def apply(self, record: Record) -> None:
        """Take a record in; raises ValueError if its kind is unknown."""
        evolve = _EVOLVE.get(record["kind"])
        if evolve is None:
            raise ValueError(f"kind must be one of {', '.join(_EVOLVE)}, was {record['kind']!r}")
        evolve(self, record)
        self.at_ns = max(self.at_ns, int(record["at_ns"]))
        self.records += 1

    def put(self, instance: Ec2Instance) -> None:
        """Let an instance be as it is given."""
        self.instances[instance.instance_id] = instance
        if instance.state == TERMINATED:
            self.here.pop(instance.instance_id, None)
        else:
            self.here[instance.instance_id] = instance

    def living(self, offering_id: str, lifecycle: str) -> Iterator[Ec2Instance]:
        """Instances of a place that are pending or running."""
        for instance in self.here.values():
            if (
                instance.alive
                and instance.offering_id == offering_id
                and instance.lifecycle == lifecycle
            ):
                yield instance


def written(instance: Ec2Instance) -> dict[str, Any]:
    """An instance as a record holds it."""
    return asdict(instance)


def _instance(entry: Mapping[str, Any]) -> Ec2Instance:
    return Ec2Instance(**{**entry, "told_ns": tuple(entry["told_ns"])})


def _started(state: State, record: Record) -> None:
    """Says only how the world is made; a restart adds another."""


def _launched(state: State, record: Record) -> None:
    instances = [_instance(entry) for entry in record["instances"]]
    for instance in instances:
        state.put(instance)
    said = record["token"]
    if said:
        ids = tuple(instance.instance_id for instance in instances)
        token = Token(**said, at_ns=record["at_ns"], instance_ids=ids)
        state.tokens[token.account_id, token.region, token.token] = token


def _ran(state: State, record: Record) -> None:
    instance = state.instances[record["instance_id"]]
    state.put(replace(instance, state=RUNNING, running_ns=record["at_ns"]))


def _recommended(state: State, record: Record) -> None:
    instance = state.instances[record["instance_id"]]
    state.put(replace(instance, recommended_ns=record["at_ns"]))


def _noticed(state: State, record: Record) -> None:
    noticed = replace(
        state.instances[record["instance_id"]],
        noticed_ns=record["at_ns"],
        taken_ns=record["taken_ns"],
        told_ns=tuple(record["told_ns"]),
        in_metadata=record["in_metadata"],
    )
    state.put(noticed)


def _ending(state: State, record: Record) -> None:
    ending = replace(
        state.instances[record["instance_id"]],
        state=SHUTTING_DOWN,
        ended_ns=record["at_ns"],
        terminated_ns=record["terminated_ns"],
        reason=record["reason"],
    )
    state.put(ending)


def _ended(state: State, record: Record) -> None:
    instance = state.instances[record["instance_id"]]
    state.put(replace(instance, state=TERMINATED, terminated_ns=record["at_ns"]))


def _tagged(state: State, record: Record) -> None:
    for instance_id in record["instance_ids"]:
        instance = state.instances[instance_id]
        kept = {key: said for key, said in instance.tags.items() if key not in record["removed"]}
        state.put(replace(instance, tags={**kept, **record["tags"]}))


def _counted(state: State, record: Record) -> None:
    place = record["offering_id"], record["lifecycle"]
    if record["count"] is None:
        state.counts.pop(place, None)
    else:
        state.counts[place] = record["count"]


def _quota_set(state: State, record: Record) -> None:
    state.quotas[record["account_id"], record["region"], record["code"]] = record["vcpus"]


_EVOLVE = {
    "started": _started,
    "launched": _launched,
    RUNNING: _ran,
    "recommended": _recommended,
    "noticed": _noticed,
    SHUTTING_DOWN: _ending,
    TERMINATED: _ended,
    "tagged": _tagged,
    "count": _counted,
    "quota": _quota_set,
}
