"""A request in parts, each as large as a transport takes, that are answered as the whole would be.

Jobs are served in order, each on what those before it left. A part says what was taken before it,
so that its jobs are served as in the whole, whatever the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from spotline.application.allocation.messages import AllocateRequest, JobTask
from spotline.domain.jobs.lot import Lot
from spotline.domain.policies.answer import JobAnswer


def ends_of_parts(
    request: AllocateRequest, *, most: int, size_of: Callable[[object], int]
) -> tuple[int, ...]:
    """Where to cut a request's tasks: the index behind each part's last task.

    Parameters
    ----------
    most
        What a part's tasks, and the laws that they name, may have together; what is larger by
        itself is a part of its own.
    size_of
        What a task or a law takes.
    """
    law_sizes = {named.law_id: size_of(named) for named in request.laws}
    ends: list[int] = []
    held, known, first = 0, set[str](), 0
    for index, task in enumerate(request.tasks):
        named = {law_id for law_id in law_ids_of(task) if law_id in law_sizes}
        own = size_of(task)
        more = own + sum(law_sizes[law_id] for law_id in named - known)
        if index > first and held + more > most:
            ends.append(index)
            held, known, first = 0, set(), index
            more = own + sum(law_sizes[law_id] for law_id in named)
        held += more
        known |= named
    return (*ends, len(request.tasks))


def part_of(
    request: AllocateRequest, first: int, end: int, answers: Iterable[JobAnswer]
) -> AllocateRequest:
    """The tasks `first`..`end` - 1 of a request, where those before were given these answers."""
    tasks = request.tasks[first:end]
    named = {law_id for task in tasks for law_id in law_ids_of(task)}
    return replace(
        request,
        tasks=tasks,
        laws=tuple(law for law in request.laws if law.law_id in named),
        taken=_sums((*request.taken, *(lot for answer in answers for lot in answer.lots))),
    )


def law_ids_of(task: JobTask) -> Iterator[str]:
    """The laws that a task's value tables are solved on, and those by which spot lasts elsewhere."""
    for use in (task.table_use, *(place.table_use for place in task.alternatives)):
        if use is not None:
            yield use.table.law_id
    for place in task.alternatives:
        if place.stay is not None:
            yield place.stay.law_id


def _sums(lots: Sequence[Lot]) -> tuple[Lot, ...]:
    """What lots take together, by offering: it leaves as much as one after the other."""
    spot: dict[str, int] = {}
    on_demand: dict[str, int] = {}
    for lot in lots:
        spot[lot.offering_id] = spot.get(lot.offering_id, 0) + lot.spot
        on_demand[lot.offering_id] = on_demand.get(lot.offering_id, 0) + lot.on_demand
    return tuple(
        Lot(offering_id=offering_id, spot=spot[offering_id], on_demand=on_demand[offering_id])
        for offering_id in sorted(spot)
    )
