"""How many instances of a launch are of use to its job: a gang that is too small runs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spotline.application.cloud_actuator.log_fold import LogView
from spotline.domain.ledger.intents import HeldInstance, Intent, Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class GangCounts:
    """The counts that jobs run on, and what each holds of an offering once releases are made."""

    allowed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    kept: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def counts_of_use(self, intent: Intent, launch: Launch, granted: int) -> tuple[int, ...]:
        """Counts of a launch that make an allowed one, ascending; empty: any is of use.

        `granted` came of the intent's launches before; those after it may come in full or not at all.
        """
        allowed = self.allowed.get(intent.job_id, ())
        if not allowed:
            return ()
        there = self.kept.get((intent.job_id, intent.offering_id), 0) + granted
        first = intent.launches.index(launch) + 1
        later = sum(other.permitted for other in intent.launches[first:])
        counts = {count - there - still for count in allowed for still in (0, later)} | {
            launch.permitted
        }
        return tuple(sorted(count for count in counts if 0 < count <= launch.permitted))


def gangs_of(
    log: LogView | None, held: Sequence[HeldInstance], intents: Sequence[Intent]
) -> GangCounts:
    """The gangs of a revision; none where nobody said what the log says."""
    if log is None:
        return GangCounts()
    released: Collection[str] = {one for intent in intents for one in intent.release}
    kept = Counter((one.job_id, one.offering_id) for one in held if one.instance_id not in released)
    jobs = log.says.jobs
    allowed = {
        intent.job_id: jobs[intent.job_id].allowed_counts
        for intent in intents
        if intent.job_id in jobs
    }
    return GangCounts(allowed=allowed, kept=kept)
