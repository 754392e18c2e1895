"""The metrics of conditions: one says of each whether it is well, the others by which figure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spotline.application.health.conditions import ConditionKind

CONDITION = "spotline.condition"
HEALTHY = "spotline.condition.healthy"

CONDITION_FIGURES: Mapping[ConditionKind, str] = MappingProxyType(
    {
        ConditionKind.LOG: "spotline.log.lost",
        ConditionKind.BUS: "spotline.bus.silent",
        ConditionKind.PUBLISHING: "spotline.publish.failing",
        ConditionKind.STORAGE: "spotline.storage.free",
        ConditionKind.SLOTS: "spotline.slot.waited",
        ConditionKind.QUOTES: "spotline.quotes.age",
        ConditionKind.FEEDS: "spotline.feeds.failing",
        ConditionKind.DISK: "spotline.disk.free",
        ConditionKind.SNAPSHOT: "spotline.snapshot.failing",
        ConditionKind.LOOP: "spotline.loop.blocked",
        ConditionKind.TASKS: "spotline.tasks.ended",
        ConditionKind.HEARD: "spotline.services.silent",
        ConditionKind.AGREEMENT: "spotline.agreement.age",
        ConditionKind.PARKED: "spotline.parked",
        ConditionKind.FREEZES: "spotline.freezes",
        ConditionKind.ORPHANS: "spotline.orphans",
    }
)

CONDITION_GAUGES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "1": {HEALTHY: "1 while the condition is as it should be, else 0."},
        "{message}": {
            "spotline.log.lost": "Entries that the service has taken and the log no longer has.",
            "spotline.parked": "Entries that are parked.",
        },
        "s": {
            "spotline.bus.silent": "How long the broker has not said how the log is.",
            "spotline.publish.failing": "For how long events could not be stored.",
            "spotline.slot.waited": "How long the next slot has been due.",
            "spotline.quotes.age": "Age of the oldest quote in use, in market time.",
            "spotline.feeds.failing": "For how long a feed of the live market has not answered, the worst of them, in market time.",
            "spotline.snapshot.failing": "For how long the state could not be saved.",
            "spotline.loop.blocked": "The longest time the event loop stood still within a minute.",
        },
        "By": {
            "spotline.storage.free": "What JetStream may still store; absent where it has no limit.",
            "spotline.disk.free": "What is free where store or ledger are.",
        },
        "{task}": {"spotline.tasks.ended": "Tasks that have ended and should run."},
        "{service}": {
            "spotline.services.silent": "Services that the allocator has not heard for too long."
        },
        "{slot}": {
            "spotline.agreement.age": "Slots since log, ledger and cloud were compared last."
        },
        "{freeze}": {"spotline.freezes": "Stops of buying in force."},
        "{instance}": {"spotline.orphans": "Instances that belong to no job."},
    }
)
"""By unit: names and meanings of what is read."""
