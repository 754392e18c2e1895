"""Asking all accounts and regions at once, none of which may hold up the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import structlog

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.errors import AwsRefused, NoAnswer, NotReached
from spotline.adapters.clouds.aws.settings import AwsSettings
from spotline.contracts.errors import ProviderUnavailable, Throttled
from spotline.domain.events.capacity import RefusalClass

_log = structlog.get_logger(__name__)

Failure = AwsRefused | NotReached | NoAnswer
AnswerT = TypeVar("AnswerT")
# AWS names no time; the actuator waits longer by itself if it is asked to again.
_SLOW_DOWN_S = 1.0


def placed(settings: AwsSettings) -> tuple[AwsPlace, ...]:
    """All accounts and regions in which something is offered, in order."""
    return tuple(
        sorted({AwsPlace(offering.account, offering.region) for offering in settings.offerings})
    )


async def everywhere(
    places: Sequence[AwsPlace], ask: Callable[[AwsPlace], Awaitable[AnswerT]], what: str
) -> Mapping[AwsPlace, AnswerT | Failure]:
    """Ask in all places at once; an answer or what failed, by place.

    Raises
    ------
    Throttled
        AWS asks us to slow down, somewhere.
    ProviderUnavailable
        None of them answers.
    """

    async def one(place: AwsPlace) -> AnswerT | Failure:
        try:
            return await ask(place)
        except (AwsRefused, NotReached, NoAnswer) as error:
            return error

    answers = await asyncio.gather(*map(one, places))
    found = dict(zip(places, answers, strict=True))
    failed = [
        answer for answer in answers if isinstance(answer, AwsRefused | NotReached | NoAnswer)
    ]
    for failure in failed:
        if isinstance(failure, AwsRefused) and failure.refusal_class is RefusalClass.THROTTLED:
            raise Throttled("aws", failure.retry_after_s or _SLOW_DOWN_S) from failure
    if failed and len(failed) == len(answers) and not all(map(_is_about_rights, failed)):
        raise ProviderUnavailable(f"aws: {what}: {failed[0]}") from failed[0]
    for place, answer in found.items():
        if isinstance(answer, AwsRefused | NotReached | NoAnswer):
            _log.warning(
                f"aws_{what}_failed",
                account=place.account,
                region=place.region,
                error=str(answer),
            )
    return found


def _is_about_rights(failure: Failure) -> bool:
    """Whether it will not pass by itself: an account without rights must not stop the others."""
    passing = (RefusalClass.SERVER, RefusalClass.THROTTLED)
    return isinstance(failure, AwsRefused) and failure.refusal_class not in passing
