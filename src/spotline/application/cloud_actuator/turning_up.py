"""Instances of launches whose outcome was unknown: which revisions look for them, and tell of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spotline.application.cloud_actuator.lives import LivesInHand
from spotline.application.cloud_actuator.log_fold import LogView
from spotline.domain.events.capacity import ProvisioningCommanded
from spotline.domain.ledger.intents import HeldInstance


def is_in_doubt(commands: Iterable[ProvisioningCommanded], lives: LivesInHand) -> bool:
    """Whether nobody knows what an earlier launch for a job did that something is commanded for.

    The cloud is looked at first then: what has turned up by now is counted and released by the
    commands, as all that is held, before anything more is launched.
    """
    jobs = {command.job_id for command in commands}
    return any(launch.job_id in jobs for launch in lives.unknown_launches())


def untold(
    held: Sequence[HeldInstance],
    log: LogView | None,
    commands: Iterable[ProvisioningCommanded],
    lives: LivesInHand,
) -> frozenset[str]:
    """Held instances of which those who decide have not heard: they turned up since the last report.

    Of a job that the log does not know nobody would decide anything.

    Parameters
    ----------
    commands
        Those that are carried out: what they launched before a death is no news, it is their answer.
    """
    if log is None or log.named is None:
        return frozenset()
    own = {command.command_id for command in commands}
    found = set()
    for instance in held:
        if instance.instance_id in log.named or not log.says.knows(instance.job_id):
            continue
        life = lives.get(instance.instance_id)
        if life is None or life.command_id not in own:
            found.add(instance.instance_id)
    return frozenset(found)
