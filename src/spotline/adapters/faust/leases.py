"""Who works on which partitions: the rules, on one document that all workers of an app share. Pure.

The document is written by compare-and-set, so every change below is one that somebody decided on
the state it replaces. A partition's epoch rises whenever it gets an owner; what an owner of an
earlier epoch writes is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A running process.

    `nonce` tells it from one of the same name before; `beat` counts signs of life; `url` is where
    its web server is.
    """

    nonce: str
    beat: int
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A partition's owner, empty while it has none, and its epoch, 0 before the first."""

    owner: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All workers of an app, and their leases by partition."""

    workers: Mapping[str, Worker]
    leases: Mapping[int, Lease]

    def owned_by(self, worker: str) -> dict[int, int]:
        """The epochs of the partitions that `worker` owns, by partition."""
        return {
            partition: lease.epoch
            for partition, lease in sorted(self.leases.items())
            if lease.owner == worker
        }


NOBODY = Group(workers={}, leases={})


def parse_group(content: bytes) -> Group:
    """Read the document.

    Raises
    ------
    ValueError
        It is none.
    """
    try:
        document = json.loads(content)
        return Group(
            workers={
                str(name): Worker(
                    nonce=str(entry["nonce"]), beat=int(entry["beat"]), url=str(entry["url"])
                )
                for name, entry in document["workers"].items()
            },
            leases={
                int(partition): Lease(owner=str(entry["owner"]), epoch=int(entry["epoch"]))
                for partition, entry in document["leases"].items()
            },
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the group document is malformed: {error!r}") from error


def dump_group(group: Group) -> bytes:
    """Write the document."""
    return json.dumps(
        {
            "workers": {
                name: {"nonce": entry.nonce, "beat": entry.beat, "url": entry.url}
                for name, entry in sorted(group.workers.items())
            },
            "leases": {
                str(partition): {"owner": entry.owner, "epoch": entry.epoch}
                for partition, entry in sorted(group.leases.items())
            },
        }
    ).encode()


def with_partitions(group: Group, partitions: int) -> Group:
    """Let there be at least `partitions`; what there is stays, for another may know more."""
    new = {
        partition: Lease(owner="", epoch=0)
        for partition in range(partitions)
        if partition not in group.leases
    }
    return replace(group, leases={**group.leases, **new}) if new else group


def with_beat(group: Group, name: str, *, nonce: str, url: str = "") -> Group:
    """A sign of life of `name`. If it was another process before, that one's leases end."""
    before = group.workers.get(name)
    if before is not None and before.nonce != nonce:
        group = without(group, [name])
        before = None
    beat = 1 if before is None else before.beat + 1
    worker = Worker(nonce=nonce, beat=beat, url=url)
    return replace(group, workers={**group.workers, name: worker})


def without(group: Group, names: Iterable[str]) -> Group:
    """Workers that left or died; their partitions are free."""
    gone = set(names)
    if not gone:
        return group
    return Group(
        workers={name: worker for name, worker in group.workers.items() if name not in gone},
        leases={
            partition: replace(lease, owner="") if lease.owner in gone else lease
            for partition, lease in group.leases.items()
        },
    )


def shares(group: Group) -> dict[str, int]:
    """How many partitions each worker should have: as many as any other, or one more.

    Those that have most keep the extra ones, so that as few as possible move.
    """
    if not group.workers:
        return {}
    each, extra = divmod(len(group.leases), len(group.workers))
    ranked = sorted(group.workers, key=lambda name: (-len(group.owned_by(name)), name))
    return {name: each + (rank < extra) for rank, name in enumerate(ranked)}


def surplus(group: Group, name: str) -> frozenset[int]:
    """What `name` should give up, once it has finished its work there."""
    owned = sorted(group.owned_by(name))
    return frozenset(owned[shares(group).get(name, 0) :])


def takeable(group: Group, name: str) -> frozenset[int]:
    """The free partitions that fall to `name`. Each falls to one worker, whichever asks."""
    free = sorted(p for p, lease in group.leases.items() if lease.owner not in group.workers)
    wanting = {
        worker: share - len(group.owned_by(worker)) for worker, share in shares(group).items()
    }
    for worker in sorted(wanting):
        count = max(wanting[worker], 0)
        if worker == name:
            return frozenset(free[:count])
        free = free[count:]
    return frozenset()


def taken(group: Group, name: str, partitions: Iterable[int]) -> Group:
    """`name` owns `partitions`, each in a new epoch."""
    leases = dict(group.leases)
    for partition in partitions:
        before = leases.get(partition, Lease(owner="", epoch=0))
        leases[partition] = Lease(owner=name, epoch=before.epoch + 1)
    return replace(group, leases=leases)


def released(group: Group, name: str, partitions: Iterable[int]) -> Group:
    """`name` no longer owns `partitions`; what it does not own stays as it is."""
    leases = dict(group.leases)
    for partition in partitions:
        lease = leases.get(partition)
        if lease is not None and lease.owner == name:
            leases[partition] = replace(lease, owner="")
    return replace(group, leases=leases)


class LeaseWatch:
    """When each worker's last sign of life was seen, on this process's own clock.

    So no two clocks are compared: a worker is taken for dead when its beat has not changed for a
    whole lease while somebody was looking.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._seen: dict[str, tuple[str, int, float]] = {}

    def look(self, group: Group, now_s: float) -> frozenset[str]:
        """Note what `group` shows at `now_s` and return who is dead."""
        seen = {}
        for name, worker in group.workers.items():
            before = self._seen.get(name)
            if before is None or before[:2] != (worker.nonce, worker.beat):
                seen[name] = (worker.nonce, worker.beat, now_s)
            else:
                seen[name] = before
        self._seen = seen
        return frozenset(
            name for name, (_, _, since_s) in seen.items() if now_s - since_s >= self._lease_s
        )
