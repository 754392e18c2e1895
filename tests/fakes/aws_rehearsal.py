"""The rehearsal of AWS on a free port of this process, its time moved by hand.

One server serves as long as the process: to make clients of boto3 costs more than what is asked of
them. A world of its own stands behind it for each test.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from spotline.adapters.clouds.aws.api import BotoApi
from spotline.adapters.clouds.aws.settings import AwsAccount, AwsOffering, AwsSettings
from spotline.adapters.market.parquet import write_market
from spotline.domain.market.market import OBSERVED, UNKNOWN, Market
from spotline.domain.market.offering import Offering
from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.cloud_trail import CloudTrail
from spotline.rehearsal.aws.ec2.resources import template_of
from spotline.rehearsal.aws.ec2.service import Ec2
from spotline.rehearsal.aws.events import EventBridge, envelope
from spotline.rehearsal.aws.faults import Faults
from spotline.rehearsal.aws.messaging import Messaging
from spotline.rehearsal.aws.opening import Making, opened
from spotline.rehearsal.aws.server import serve
from spotline.rehearsal.aws.service import AwsCall, AwsError, ConnectionLost, Registry, Service
from spotline.rehearsal.aws.service_quotas import ServiceQuotas
from spotline.rehearsal.aws.sqs import Sqs
from spotline.rehearsal.aws.sts import RehearsedKeys, RehearsedRole, Sts
from spotline.rehearsal.aws.surroundings import QUEUE, stand_up_queue
from spotline.rehearsal.aws.weather import Weather, calm
from spotline.rehearsal.aws.wire.signing import Credentials
from spotline.rehearsal.aws.world import INTERRUPTION, Event, RehearsedWorld

START_NS = 1_793_430_000 * NS_PER_S
REGION = "us-east-1"
ACCOUNTS = ("default", "other")
KINDS = {"default": ("p4d.24xlarge", "g5.12xlarge"), "other": ("p4d.24xlarge",)}
_SLOTS, _SLOT_S = 48, 3600


def market() -> Market:
    """Two types in one account, one in another; how many there are, tests say."""
    offerings = tuple(
        Offering(
            offering_id=f"aws:{account}:use1-az1:{kind}",
            provider="aws",
            account=account,
            region=REGION,
            zone="use1-az1",
            instance_type=kind,
            gpu_model="a100-40gb",
            gpus_per_instance=8,
            quota_pool=f"aws:{account}:{REGION}:p",
        )
        for account in ACCOUNTS
        for kind in KINDS[account]
    )
    shape = (_SLOTS, len(offerings))
    whole = functools.partial(np.full, shape, dtype=np.int64)
    starts = START_NS + np.arange(_SLOTS, dtype=np.int64) * _SLOT_S * NS_PER_S
    return Market(
        offerings=offerings,
        slot_s=_SLOT_S,
        start_ns=START_NS,
        spot_price_micro_usd=whole(10_000_000),
        on_demand_price_micro_usd=whole(30_000_000),
        spot_available=whole(8),
        spot_provenance=whole(OBSERVED),
        on_demand_available=whole(0),
        on_demand_provenance=whole(UNKNOWN),
        quoted_ns=np.repeat(starts[:, None], len(offerings), axis=1),
        source="test",
    )


@functools.cache
def _market_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "market.parquet"
        write_market(market(), path)
        return path.read_bytes()


class Interposed:
    """A service, some of whose next calls end as a test says: before they did anything, or after."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._next: list[tuple[str, Exception, bool, Callable[[], None]]] = []
        self.calls: list[str] = []

    @property
    def name(self) -> str:
        return self._service.name

    def will(
        self,
        operation: str,
        error: Exception,
        *,
        after: bool = False,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Have the next call of an operation (empty: of any) end with an error."""
        self._next.append((operation, error, after, then))

    def forget(self, error: Exception) -> None:
        """Let no call end with it any more."""
        self._next = [one for one in self._next if one[1] is not error]

    async def answer(self, call: AwsCall) -> Mapping[str, Any]:
        self.calls.append(call.operation)
        for one in self._next:
            operation, error, after, then = one
            if operation in ("", call.operation):
                self._next.remove(one)
                then()
                if after:
                    await self._service.answer(call)
                raise error
        return await self._service.answer(call)


class RehearsedAws:
    """A world behind the shared server. What is done to it is done on the server's thread."""

    def __init__(
        self,
        folder: Path,
        weather: Weather | None = None,
        *,
        fail_share: float = 0,
        seed: int = 0,
    ) -> None:
        server = _server()
        self._server, self._stack = server, ExitStack()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "given.parquet").write_bytes(_market_file())
        making = Making(market_s_per_s=0, weather=weather or calm())
        self.world, _ = self._stack.enter_context(
            opened(folder / "state", making, folder / "given.parquet")
        )
        self.ec2 = Interposed(Ec2(self.world, Faults(share=fail_share, seed=seed)))
        self.sqs = Sqs(Messaging(), now_ns=self.world.now_ns)
        self.sqs.base_url = server.url
        self.queues = Interposed(self.sqs)
        self._queues = server.do(self._surround)
        self.settings = self._settings()

    @property
    def api(self) -> BotoApi:
        """Clients of boto3, which all worlds of this process share."""
        return self._server.api(self.settings)

    def now_ns(self) -> int:
        """The clock of the cloud and of those who use it."""
        return self.world.now_ns()

    def do(self, work: Callable[[], Any]) -> Any:
        """Do something to the world, and let everything happen that is due."""

        def settled() -> Any:
            done = work()
            self.world.settle()
            return done

        return self._server.do(settled)

    def pass_s(self, seconds: float) -> None:
        """Let market time pass."""
        self.do(lambda: self.world.clock.advance(round(seconds * NS_PER_S)))

    def weather(self, **changes: Any) -> None:
        """Change how rough it is from now on."""
        self.world.weather = replace(self.world.weather, **changes)

    def send(self, account: str, body: str) -> None:
        """Put a message into the queue of an account."""
        self.do(lambda: self.sqs.deliver(self._queues[account], body, "events.amazonaws.com"))

    def assumed(self) -> int:
        """How often a role was assumed, by anybody in this process."""
        assert self._server.sts is not None
        return self._server.sts.calls.count("AssumeRole")

    def throttle(self) -> None:
        """Have the next call of any kind refused as one too many."""
        error = refused("RequestLimitExceeded", status=503)
        pending = [self.ec2, self.queues]

        def struck() -> None:
            for service in pending:
                service.forget(error)

        for service in pending:
            service.will("", error, then=struck)

    def tag(self, instance_id: str, key: str) -> None:
        """Give an instance a tag, as its user does."""
        tags, ids = {key: "a person"}, [instance_id]
        now_ns = self.world.now_ns()
        self.do(
            lambda: self.world.record("tagged", now_ns, instance_ids=ids, tags=tags, removed=[])
        )

    def close(self) -> None:
        self._stack.close()

    # ------------------------------------------------------------------------------------------

    def _surround(self) -> dict[str, Any]:
        bridge, queues = EventBridge(self.sqs), {}

        def told(event: Event) -> None:
            bridge.emit(
                envelope(
                    event.account_id,
                    event.region,
                    event.detail_type,
                    event.detail,
                    resources=event.resources,
                    at_ns=event.at_ns,
                )
            )

        self.world.on_event(told)
        for account in self.world.accounts:
            stand_up_queue(self.sqs, bridge, account.account_id, REGION)
            arn = f"arn:aws:sqs:{REGION}:{account.account_id}:{QUEUE}"
            queues[account.name] = self.sqs.by_arn(arn)
        quotas, self.trail = ServiceQuotas(self.world.quotas), Interposed(CloudTrail(self.world))
        for service in (self.ec2, self.queues, bridge, quotas, self.trail):
            self._server.services.add(service)
        self._server.meet(self.world)
        return queues

    def _settings(self) -> AwsSettings:
        by_name = {account.name: account for account in self.world.accounts}
        base = by_name["default"]
        return AwsSettings(
            accounts=tuple(
                AwsAccount(
                    name=name,
                    account_id=account.account_id,
                    role_arn="" if account is base else account.roles[0].arn,
                    external_id="" if account is base else account.roles[0].external_id,
                    queues={REGION: self.sqs.url(self._queues[name])},
                )
                for name, account in by_name.items()
            ),
            offerings=tuple(
                AwsOffering(
                    account=next(
                        one.name
                        for one in self.world.accounts
                        if one.account_id == place.account_id
                    ),
                    region=place.region,
                    zone=place.zone,
                    instance_type=place.instance_type,
                    gpu_model=place.gpu_model,
                    gpus_per_instance=place.gpus,
                    launch_template_id=template_of(place).template_id,
                )
                for place in self.world.places.places.values()
            ),
            endpoint_url=self._server.url,
            queue_wait_s=1,
            read_timeout_s=10.0,
        )


class SharedApi:
    """An api that others use, too: whoever closes it closes nothing."""

    def __init__(self, api: BotoApi) -> None:
        self._api = api

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def close(self) -> None:
        pass


class _Server:
    """Serves on a thread of its own, whichever world stands behind it."""

    def __init__(self) -> None:
        self.services = Registry()
        self._keys: RehearsedKeys | None = None
        self._api: BotoApi | None = None
        self.sts: Interposed | None = None
        self._begun = threading.Event()
        self._over: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.url = ""
        self._thread = threading.Thread(target=self._run, name="rehearsal", daemon=True)
        self._thread.start()
        self._begun.wait()

    def do(self, work: Callable[[], Any]) -> Any:
        """Do something on the server's thread."""

        async def done() -> Any:
            return work()

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(done(), self._loop).result()

    def meet(self, world: RehearsedWorld) -> None:
        """Know the keys and roles of a world; those of the same seed are the same."""
        if self._keys is not None:
            return
        self._keys = RehearsedKeys(
            [
                Credentials(
                    access_key=account.access_key_id,
                    secret_key=account.secret_access_key,
                    account_id=account.account_id,
                    arn=f"arn:aws:iam::{account.account_id}:user/{account.name}",
                    user_id=f"AIDA{account.access_key_id[4:]}",
                )
                for account in world.accounts
            ],
            secret=b"test",
        )
        roles = [
            RehearsedRole(arn=role.arn, external_id=role.external_id)
            for account in world.accounts
            for role in account.roles
        ]
        self.sts = Interposed(Sts(self._keys, roles))
        self.services.add(self.sts)
        base = next(one for one in world.accounts if one.name == "default")
        os.environ["AWS_ACCESS_KEY_ID"] = base.access_key_id
        os.environ["AWS_SECRET_ACCESS_KEY"] = base.secret_access_key
        os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

    def find(self, access_key: str, session_token: str) -> Credentials | None:
        """Implements `KeyRing`."""
        return None if self._keys is None else self._keys.find(access_key, session_token)

    def api(self, settings: AwsSettings) -> BotoApi:
        """The clients of this process."""
        if self._api is None:
            self._api = BotoApi(settings)
        return self._api

    def close(self) -> None:
        if self._api is not None:
            self._api.close()
        if self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    def _run(self) -> None:
        async def serving() -> None:
            self._over = asyncio.Event()
            async with serve(services=self.services, keys=self) as url:
                self.url, self._loop = url, asyncio.get_running_loop()
                self._begun.set()
                await self._over.wait()

        asyncio.run(serving())


@functools.cache
def _server() -> _Server:
    server = _Server()
    atexit.register(server.close)
    return server


def lost() -> Exception:
    """The connection breaks off and nothing is answered."""
    return ConnectionLost()


def refused(code: str, *, status: int = 400, retry_after_s: int = 0) -> Exception:
    """AWS says no."""
    headers = {"Retry-After": str(retry_after_s)} if retry_after_s else {}
    return AwsError(code, f"{code}, says the test", status=status, headers=headers)


def warning(instance_id: str, at_ns: int) -> str:
    """The body of a message that warns of an interruption."""
    return json.dumps(
        envelope(
            "000000000001",
            REGION,
            INTERRUPTION,
            {"instance-id": instance_id, "instance-action": "terminate"},
            resources=(f"arn:aws:ec2:use1-az1:instance/{instance_id}",),
            at_ns=at_ns,
        )
    )
