"""Instance runs from lines of machine time: hours of a resource joined, a gap ends a run.

An export says in which hour a machine was used and for how long, not when in that hour. Of a run of
several hours the first is therefore filled from its end, the last from its beginning: that is exact
for a machine that ran through. A run within one hour is taken to begin with it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from spotline.domain.assessment.clock import ClockChange
from spotline.domain.assessment.facts import BoughtAs, HiredMachine, InstanceRun
from spotline.domain.assessment.lines import ExportLine, Tags, UsedWindow
from spotline.domain.units import S_PER_HOUR

# Two lines of one resource belong together when no more than this lies between them.
JOINED_S = 60
_NO_TIME = -1
_FIELDS = 7  # begin, end, used, micro, list, purchase, tags
_PURCHASES = tuple(BoughtAs)


@dataclass(slots=True)
class _Used:
    """The lines of one resource, packed: a bill has a million."""

    machine: HiredMachine
    rows: array[int] = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class RunLedger:
    """Takes lines of machine time and yields runs."""

    _used: dict[str, _Used] = field(default_factory=dict)
    _tags: dict[Tags, int] = field(default_factory=dict)

    def take(self, line: ExportLine) -> None:
        """Note a line; it names a machine."""
        machine = line.machine
        if machine is None:
            raise ValueError(f"machine of row {line.row} must be named, was None")
        used = self._used.get(line.resource)
        if used is None:
            used = self._used[line.resource] = _Used(machine)
        elif _knows_more(machine, used.machine):
            used.machine = _joined(used.machine, machine)
        used.rows.extend(
            (
                line.begin_s,
                line.end_s,
                _NO_TIME if line.used_s is None else line.used_s,
                line.micro,
                line.list_micro,
                _PURCHASES.index(line.purchase),
                self._tags.setdefault(line.tags, len(self._tags)),
            )
        )

    def machine_of(self, resource: str) -> HiredMachine | None:
        """What is known of a resource that was seen."""
        used = self._used.get(resource)
        return None if used is None else used.machine

    def lines_of(self, resource: str) -> int:
        """How many lines a resource had."""
        used = self._used.get(resource)
        return 0 if used is None else len(used.rows) // _FIELDS

    def windows(self) -> Iterator[tuple[str, HiredMachine, list[UsedWindow]]]:
        """The windows of each resource in order of time; resources in order of their ids."""
        names = list(self._tags)
        for resource in sorted(self._used):
            used = self._used[resource]
            rows = used.rows
            lines = sorted(tuple(rows[at : at + _FIELDS]) for at in range(0, len(rows), _FIELDS))
            yield resource, used.machine, list(_windows(lines, names))

    def runs(
        self, changes: Sequence[ClockChange], split_by: tuple[str, ...]
    ) -> Iterator[InstanceRun]:
        """The runs of all resources, in order of resource and time.

        Parameters
        ----------
        changes
            Clock changes by which times without a zone are set right, the latest first.
        split_by
            Keys of tags whose value ends a run where it changes.
        """
        for resource, machine, windows in self.windows():
            straight = windows
            for change in changes:
                straight = list(change.straightened(straight))
            for together in _together(straight, split_by):
                yield _run(resource, machine, together)


def _knows_more(new: HiredMachine, known: HiredMachine) -> bool:
    return (new.gpus > 0 and not known.gpus) or (bool(new.zone) and not known.zone)


def _joined(known: HiredMachine, new: HiredMachine) -> HiredMachine:
    return replace(
        new if new.gpus and not known.gpus else known,
        zone=known.zone or new.zone,
        region=known.region or new.region,
    )


def _windows(lines: Iterable[tuple[int, ...]], names: Sequence[Tags]) -> Iterator[UsedWindow]:
    """Lines with the same window as one."""
    held: list[tuple[int, ...]] = []
    for line in lines:
        if held and line[:2] != held[0][:2]:
            yield _window(held, names)
            held = []
        held.append(line)
    if held:
        yield _window(held, names)


def _window(lines: Sequence[tuple[int, ...]], names: Sequence[Tags]) -> UsedWindow:
    begin_s, end_s = lines[0][:2]
    seconds: dict[BoughtAs, int] = {}
    used_s = listed_s = listed = 0
    timed = any(line[2] > 0 for line in lines)
    for line in lines:
        # Where no line says for how long, the window is all that is known.
        used = line[2] if timed else end_s - begin_s
        # Memory and cores have a price and no time: theirs belongs to the machine's.
        listed += line[4]
        if used <= 0:
            continue
        purchase = _PURCHASES[line[5]]
        seconds[purchase] = seconds.get(purchase, 0) + used
        used_s += used
        listed_s += used if line[4] > 0 else 0
    if not timed:
        used_s = min(used_s, end_s - begin_s)
    tagged = max((line[6] for line in lines), key=lambda code: len(names[code]))
    return UsedWindow(
        begin_s=begin_s,
        end_s=end_s,
        used_s=used_s,
        micro=sum(line[3] for line in lines),
        list_micro=listed,
        listed_s=listed_s,
        seconds=seconds,
        tags=names[tagged],
    )


def _together(
    windows: Sequence[UsedWindow], split_by: tuple[str, ...]
) -> Iterator[list[UsedWindow]]:
    """Windows that follow each other closely and belong to one job, as far as tags say."""
    held: list[UsedWindow] = []
    marked = ""
    for window in windows:
        mark = mark_of(window.tags, split_by)
        apart = held and window.begin_s - held[-1].end_s > JOINED_S
        if held and (apart or (mark and marked and mark != marked)):
            yield held
            held, marked = [], ""
        held.append(window)
        marked = marked or mark
    if held:
        yield held


@lru_cache(maxsize=100_000)
def mark_of(tags: Tags, keys: tuple[str, ...]) -> str:
    """The value of the first of `keys` that is among the tags; "" for none."""
    named = {plain_key(key): value for key, value in tags}
    return next((named[key] for key in keys if named.get(key)), "")


@lru_cache(maxsize=10_000)
def plain_key(key: str) -> str:
    """A tag's key in the form in which exports do not differ: `user:Job_Name` is `job-name`."""
    text = key.lower()
    for prefix in ("resourcetags/", "user:", "user_", "aws:"):
        text = text.removeprefix(prefix)
    return "".join("-" if letter in "_:./ " else letter for letter in text)


def _run(resource: str, machine: HiredMachine, windows: Sequence[UsedWindow]) -> InstanceRun:
    first, last = windows[0], windows[-1]
    begin_s, end_s = first.begin_s, min(last.begin_s + last.used_s, last.end_s)
    if len(windows) > 1:
        begin_s = max(first.begin_s, first.end_s - first.used_s)
    seconds: dict[BoughtAs, int] = {}
    for window in windows:
        for purchase, used in window.seconds.items():
            seconds[purchase] = seconds.get(purchase, 0) + used
    listed_s = sum(window.listed_s for window in windows)
    listed = sum(window.list_micro for window in windows)
    return InstanceRun(
        instance_id=resource,
        machine=machine,
        purchase=max(_PURCHASES, key=lambda each: seconds.get(each, 0)),
        begin_s=begin_s,
        end_s=max(end_s, begin_s),
        paid_micro=sum(window.micro for window in windows),
        list_price_micro=round(listed * S_PER_HOUR / listed_s) if listed_s else 0,
        tags=next((window.tags for window in windows if window.tags), ()),
    )
