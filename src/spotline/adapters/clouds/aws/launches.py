"""Launches: sent once, noted before, and answered as they were answered the first time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from spotline.adapters.clouds.aws.api import AwsApi, AwsPlace, Reply
from spotline.adapters.clouds.aws.errors import (
    AwsRefused,
    NoAnswer,
    NotReached,
    lacks_spot_role,
)
from spotline.adapters.clouds.aws.listing import described
from spotline.adapters.clouds.aws.parse import Shown, granted_ids, refusal_in
from spotline.adapters.clouds.aws.requests import (
    among,
    client_token,
    fleet_of,
    launched_by,
    payload_of,
)
from spotline.adapters.clouds.aws.settings import AwsOffering, AwsSettings
from spotline.adapters.clouds.aws.store import AwsStore, SentLaunch
from spotline.adapters.clouds.aws.zones import ZoneHealth
from spotline.application.cloud_actuator.ports import (
    CloudClock,
    Grant,
    Instance,
    InstanceState,
    LaunchRequest,
    Refusal,
)
from spotline.contracts.errors import ProviderUnavailable, UnknownOutcome
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S

_log = structlog.get_logger(__name__)

# "A client token is valid for at least 24 hours after the termination of the instance" is said of
# RunInstances; of fleets nothing is. Within an hour none is known to be forgotten.
TOKEN_AGE_S = 3600
# Permissions are taken for checked as long as by Karpenter's validation.
SPOT_ROLE_S = 1800
# What leaves a token unused: it is asked for again with it.
_PASSING = (RefusalClass.THROTTLED, RefusalClass.SERVER)
# What EC2 refuses before it looks at a token: of an earlier call with it that says nothing.
_BEFORE_TOKENS = (RefusalClass.UNAUTHORISED, RefusalClass.UNSUPPORTED)


class FleetLaunches:
    """Launches, one fleet each."""

    def __init__(
        self,
        api: AwsApi,
        store: AwsStore,
        settings: AwsSettings,
        clock: CloudClock,
        zones: ZoneHealth,
    ) -> None:
        self._api, self._store, self._clock, self._zones = api, store, clock, zones
        self._offerings = {offering.offering_id: offering for offering in settings.offerings}
        self._without_spot_ns: dict[str, int] = {}

    async def launch(self, request: LaunchRequest) -> Grant:
        """Launch; errors and idempotence as the port says."""
        owner, token = request.owner.name, request.token
        payload = payload_of(request)
        sent = self._store.launch(owner, token)
        if sent is not None and sent.payload != payload:
            return _refused(
                RefusalClass.TOKEN_MISMATCH,
                f"token {token} was sent with other parameters before",
            )
        if sent is not None and sent.answer is not None:
            return self._grant_of(request, sent.answer)
        offering = self._offerings.get(request.offering_id)
        if offering is None:
            known = ", ".join(sorted(self._offerings)) or "none"
            return _refused(
                RefusalClass.UNSUPPORTED,
                f"offering must be one of the settings ({known}), was {request.offering_id!r}",
            )
        place = AwsPlace(offering.account, offering.region)
        barred = self._barred(request, offering, place)
        if barred is not None and sent is None:
            return barred
        if sent is None:
            return await self._send_first(request, offering, place, payload)
        return await self._send_again(request, offering, place, sent)

    def _barred(
        self, request: LaunchRequest, offering: AwsOffering, place: AwsPlace
    ) -> Grant | None:
        """Why AWS is not asked at all."""
        if self._zones.is_impaired(place, offering.zone):
            return _refused(RefusalClass.NETWORK, f"zone {offering.zone} is impaired, says AWS")
        until_ns = self._without_spot_ns.get(place.account, 0)
        if request.capacity_type is CapacityType.SPOT and self._clock.now_ns() < until_ns:
            return _refused(
                RefusalClass.UNAUTHORISED,
                f"account {place.account} lacks the role of the spot service",
                spot_only=True,
            )
        return None

    async def _send_first(
        self, request: LaunchRequest, offering: AwsOffering, place: AwsPlace, payload: str
    ) -> Grant:
        owner, token = request.owner.name, request.token
        try:
            fleet = fleet_of(request, offering, client_token(owner, token))
        except ValueError as error:
            return _refused(RefusalClass.UNSUPPORTED, str(error))
        self._store.sending(owner, token, payload, fleet, self._clock.now_ns())
        return await self._send(request, offering, place, fleet, again=False)

    async def _send_again(
        self, request: LaunchRequest, offering: AwsOffering, place: AwsPlace, sent: SentLaunch
    ) -> Grant:
        """Ask again what was never answered, word for word as it was sent: AWS compares."""
        if self._clock.now_ns() - sent.sent_ns < TOKEN_AGE_S * NS_PER_S:
            return await self._send(request, offering, place, sent.fleet, again=True)
        # AWS may have forgotten the token: then it would launch once more.
        filters = launched_by(request.owner.name, request.token)
        with_token = await described(self._api, place, filters)
        if not with_token:
            raise UnknownOutcome(
                "aws", request.token, f"it was sent {TOKEN_AGE_S} s ago or more and shows nothing"
            )
        return await self._answered(request, with_token, None)

    async def _send(
        self,
        request: LaunchRequest,
        offering: AwsOffering,
        place: AwsPlace,
        fleet: Mapping[str, Any],
        *,
        again: bool,
    ) -> Grant:
        try:
            answer = await self._api.call(place, "ec2", "create_fleet", **fleet)
        except NotReached as error:
            raise ProviderUnavailable(f"aws: {error}") from error
        except NoAnswer as error:
            raise UnknownOutcome("aws", request.token, str(error)) from error
        except AwsRefused as error:
            if again and error.refusal_class in _BEFORE_TOKENS:
                raise UnknownOutcome(
                    "aws", request.token, f"sent before, and now {error}"
                ) from error
            return await self._refused_by(request, place, error)
        granted = granted_ids(answer)
        refusal = refusal_in(answer, wanted=request.instances, granted=len(granted))
        if refusal is not None and not granted and refusal.refusal_class in _PASSING:
            return self._try_anew(request, offering, refusal)
        launched = await self._launched(request, offering, place, granted, again=again)
        self._note_spot_role(place, answer)
        return await self._answered(request, launched, refusal)

    def _try_anew(self, request: LaunchRequest, offering: AwsOffering, refusal: Refusal) -> Grant:
        """An empty fleet for a passing reason: AWS keeps to that answer, so the next try is another."""
        owner, token = request.owner.name, request.token
        sent = self._store.launch(owner, token)
        tries = (0 if sent is None else sent.tries) + 1
        fleet = fleet_of(request, offering, client_token(owner, token, tries))
        self._store.sending_anew(owner, token, fleet, self._clock.now_ns())
        return Grant(instances=(), refusal=refusal)

    async def _refused_by(
        self, request: LaunchRequest, place: AwsPlace, error: AwsRefused
    ) -> Grant:
        refusal = Refusal(
            refusal_class=error.refusal_class,
            detail=str(error),
            retry_after_s=error.retry_after_s,
            spot_only=lacks_spot_role(error.code),
        )
        if refusal.spot_only:
            self._without_spot_ns[place.account] = self._clock.now_ns() + SPOT_ROLE_S * NS_PER_S
        if refusal.refusal_class in _PASSING:
            return Grant(instances=(), refusal=refusal)
        return await self._answered(request, (), refusal)

    def _note_spot_role(self, place: AwsPlace, answer: Reply) -> None:
        if any(lacks_spot_role(error.get("ErrorCode", "")) for error in answer.get("Errors", ())):
            self._without_spot_ns[place.account] = self._clock.now_ns() + SPOT_ROLE_S * NS_PER_S

    async def _launched(
        self,
        request: LaunchRequest,
        offering: AwsOffering,
        place: AwsPlace,
        granted: Sequence[str],
        *,
        again: bool,
    ) -> list[Shown]:
        """What a fleet launched. Of one that was sent before, as it is shown by now."""
        launched: list[Shown] = []
        if again and granted:
            try:
                launched = await described(self._api, place, among(granted))
            except (AwsRefused, NotReached, NoAnswer) as error:
                _log.warning("launch_not_described", token=request.token, error=str(error))
        known = {one.instance.instance_id for one in launched}
        now_ns = self._clock.now_ns()
        return launched + [
            Shown(
                instance=_instance(request, instance_id, now_ns),
                owner=request.owner.name,
                place=place,
                zone=offering.zone,
            )
            for instance_id in granted
            if instance_id not in known
        ]

    async def _answered(
        self, request: LaunchRequest, launched: Sequence[Shown], refusal: Refusal | None
    ) -> Grant:
        """Note what came, and release at once what makes no count that is of use."""
        useful = [count for count in request.useful_counts if count <= len(launched)]
        kept = max(useful, default=0)
        instances = [one.instance for one in launched]
        if kept < len(instances) and refusal is not None:
            released = len(instances) - kept
            refusal = replace(
                refusal,
                detail=f"{refusal.detail}; {released} of {len(instances)} released: "
                f"of use are {', '.join(map(str, request.useful_counts))}",
            )
        answer = _stated(instances, kept, refusal)
        now_ns = self._clock.now_ns()
        self._store.answered(request.owner.name, request.token, answer, launched, now_ns)
        return self._grant_of(request, answer)

    def _grant_of(self, request: LaunchRequest, answer: Mapping[str, Any]) -> Grant:
        instances = tuple(
            replace(
                _instance(request, one["instance_id"], one["ready_ns"]),
                state=InstanceState(one["state"]),
                hold=one["hold"],
            )
            for one in answer["instances"]
        )
        stated = answer["refusal"]
        refusal = None
        if stated is not None:
            refusal = Refusal(**{**stated, "refusal_class": RefusalClass(stated["refusal_class"])})
        kept = answer["kept"]
        return Grant(instances=instances[:kept], refusal=refusal, released=instances[kept:])


def _stated(instances: Sequence[Instance], kept: int, refusal: Refusal | None) -> Mapping[str, Any]:
    return {
        "instances": [
            {
                "instance_id": one.instance_id,
                "ready_ns": one.ready_ns,
                "state": one.state.value,
                "hold": one.hold,
            }
            for one in instances
        ],
        "kept": kept,
        "refusal": None
        if refusal is None
        else {
            "refusal_class": refusal.refusal_class.value,
            "detail": refusal.detail,
            "retry_after_s": refusal.retry_after_s,
            "spot_only": refusal.spot_only,
        },
    }


def _refused(refusal_class: RefusalClass, detail: str, *, spot_only: bool = False) -> Grant:
    refusal = Refusal(refusal_class=refusal_class, detail=detail, spot_only=spot_only)
    return Grant(instances=(), refusal=refusal)


def _instance(request: LaunchRequest, instance_id: str, ready_ns: int) -> Instance:
    return Instance(
        instance_id=instance_id,
        token=request.token,
        job_id=request.job_id,
        tenant=request.tenant,
        quota_pool=request.quota_pool,
        offering_id=request.offering_id,
        capacity_type=request.capacity_type,
        ready_ns=ready_ns,
        state=InstanceState.PENDING,
        installation_id=request.installation_id,
    )
