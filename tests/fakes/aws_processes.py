"""The actuator and its cloud as real processes: the one is killed at any call that the other gets."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
from nats.js import JetStreamContext

from spotline.adapters.clouds.aws.section import read_section
from spotline.adapters.files.spotline_yaml.reading import read_config
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.market.parquet import write_market
from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.stream import NatsEventStream
from spotline.bootstrap.system import LEDGER_OWNER
from spotline.demo.rehearsed.process import RehearsedAws, rehearsed_aws
from spotline.domain.events.capacity import CapacityLost
from spotline.domain.events.parking import EntryParked
from spotline.domain.market.market import Market
from spotline.domain.market.market_clock import MarketClock
from spotline.runtime.broker import EmbeddedBroker
from tests.fakes.nursery import ROOT, Nursery
from tests.fakes.played_log import PlayedLog

ACTUATOR = "cloud_actuator"
LOG = "actuator.log"
ALIVE = ("pending", "running")
_POLL_S = 0.02
# Far more than anything takes; what hangs is told with what led to it.
_WORKS_S = 90.0


class AwsProcesses:
    """A rehearsal of AWS, an actuator that is started and killed, and a log that a test plays."""

    def __init__(
        self,
        cloud: RehearsedAws,
        nursery: Nursery,
        log: PlayedLog,
        folder: Path,
        jetstream: JetStreamContext,
        settings: Mapping[str, str],
    ) -> None:
        self._jetstream = jetstream
        self._settings = {**settings, "SPOTLINE_STORE": str(folder / "store")}
        self.cloud, self.log, self.kills = cloud, log, 0
        self.store, self._folder, self._nursery = folder / "store", folder, nursery
        self.taken: list[str] = []
        self._pid = 0

    # --- the actuator -------------------------------------------------------------------------

    async def start(self) -> None:
        self._pid = await self._nursery.start(self._settings)

    async def taken_over(self) -> int:
        """Start another one beside it, which is ours from here on; the id of the former."""
        former = self._pid
        await self.start()
        return former

    async def ended(self, pid: int) -> int:
        """How a process ended, waited for."""
        return await asyncio.wait_for(self._nursery.ended(pid), _WORKS_S)

    @property
    def pid(self) -> int:
        """Of the actuator that was started last."""
        return self._pid

    async def kill(self) -> None:
        """SIGKILL, as the kernel or an operator would."""
        os.kill(self._pid, signal.SIGKILL)
        assert await self._nursery.ended(self._pid) == -signal.SIGKILL, self.said()
        self.kills += 1

    def said(self) -> str:
        """What the actuator wrote, for a failure's message."""
        return (self._folder / LOG).read_text(encoding="utf-8")[-4000:]

    async def killed_at(
        self, operation: str, effect: str, skip: int, work: Callable[[], Awaitable[None]]
    ) -> bool:
        """Do `work`, and kill the actuator at a call; False: that call did not come.

        One that is met `before` it takes effect never does, one `after` that has, and one `late`
        does when its successor is at work.
        """
        held_at = "after" if effect == "after" else "before"
        await self.control("hold", operation=operation, effect=held_at, skip=skip)
        working = asyncio.create_task(_awaited(work()), name="work")
        try:
            while not (came := await self._holds()) and not working.done():  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)
            if came:
                await self.kill()
                before = (await self.came()).total()
                if effect != "late":
                    await self.control("release", dropped=effect == "before")
                await self.start()
                while (await self.came()).total() == before:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
            await self.control("release")
            await asyncio.wait_for(working, _WORKS_S)
            return came
        except TimeoutError as error:
            raise AssertionError(f"stuck: {self.log.said[-8:]}\n{self.said()}") from error
        finally:
            working.cancel()

    async def held(self) -> None:
        """Wait until a call stands still."""
        while not await self._holds():  # noqa: ASYNC110 - another process
            await asyncio.sleep(_POLL_S)

    async def _holds(self) -> bool:
        return bool((await self.cloud.state())["held"])

    # --- the cloud ----------------------------------------------------------------------------

    async def control(self, name: str, **said: Any) -> Mapping[str, Any]:
        """Do something to the rehearsed cloud."""
        return await asyncio.to_thread(_asked, self.cloud, "POST", name, said)

    async def instances(self) -> list[Mapping[str, Any]]:
        """All that ever was in it."""
        return (await self.cloud.state())["instances"]

    async def alive(self) -> set[str]:
        """What costs money now."""
        return {one["instance_id"] for one in await self.instances() if one["state"] in ALIVE}

    async def pending(self) -> bool:
        """Whether anything does not run yet."""
        return any(one["state"] == "pending" for one in await self.instances())

    async def came(self) -> Counter[str]:
        """How many calls of each operation have come in so far."""
        return Counter((await self.cloud.state())["came"])

    # --- the log ------------------------------------------------------------------------------

    async def stored_again(self, tag: str) -> int:
        """Store all of the log a second time, as a bridge may; says how many entries that were."""
        entries = [one async for one in self.log.entries()]
        for entry in entries:
            headers = {**entry.headers, "Nats-Msg-Id": f"{tag}-{entry.seq}"}
            await self._jetstream.publish(entry.subject, entry.payload, headers=headers)
        return len(entries)

    # --- the story ----------------------------------------------------------------------------

    async def cycle(self) -> None:
        """Buy two spot, lose one with notice, go on with another on demand, release all."""
        await self.log.decided(2, 0)
        await self.lost(min(await self.alive()))
        await self.log.decided(1, 1)
        # Of what is ended while it is pending, and whose end was not answered, nobody says that it
        # never ran: its minimum is settled, and not billed (ADR 0058).
        await self.all_run()
        await self.log.decided(0, 0)

    async def told_of(self, body: str, times: int) -> None:
        """Put a message into the queue that is told of interruptions, so many times."""
        await asyncio.to_thread(_sent, self.cloud, body, times)

    async def lost(self, instance_id: str) -> None:
        """Have an instance taken back with notice, and wait until it is told lost."""
        await self.control("interrupt", instance_id=instance_id, lead_s=120)
        self.taken.append(instance_id)
        # Where a slot opens meanwhile, its first revision says what was lost before it.
        await self.log.until(
            CapacityLost, lambda event: instance_id in event.instance_ids, holding=self.log.holding
        )

    async def all_run(self) -> None:
        """Wait until nothing is pending."""
        while await self.pending():  # noqa: ASYNC110 - another process
            await asyncio.sleep(_POLL_S)

    async def settled(self) -> tuple[dict[str, int], dict[str, int]]:
        """Wait until all has ended and is settled; what the ledger and the cloud say, by instance."""
        while True:
            bill = (await self.cloud.bill())["lines"]
            settled = await asyncio.to_thread(settled_in, self.store)
            ids = {line["instance_id"] for line in bill}
            if not any(line["open"] for line in bill) and ids <= settled.keys():
                return settled, {line["instance_id"]: line["micro_usd"] for line in bill}
            await self.log.open_due()
            await asyncio.sleep(0.1)

    async def check(self, *, most_over_micro_usd: int = 0) -> None:
        """Nothing was launched twice, nothing is left, losses were told once, and bills agree.

        What never ran may have been settled at so much in all; it is not billed.
        """
        try:
            settled, billed = await asyncio.wait_for(self.settled(), _WORKS_S)
        except TimeoutError as error:
            raise AssertionError(f"not settled: {await self.instances()}\n{self.said()}") from error
        asked_for = await asyncio.to_thread(asked_in, self.store, self.log.commanded)
        launched = Counter(one["tags"]["spotline-token"] for one in await self.instances())
        twice = {token: n for token, n in launched.items() if n > asked_for[token]}
        assert not twice, f"launched more than asked for: {twice}"
        assert await self.alive() == set()
        assert {name: settled[name] for name in billed} == billed
        never_ran = sum(settled.values()) - sum(billed.values())
        assert 0 <= never_ran <= most_over_micro_usd
        told = [name for event in self.log.of(CapacityLost) for name in event.instance_ids]
        assert sorted(told) == sorted(self.taken)
        assert not self.log.of(EntryParked)


async def _awaited(work: Awaitable[None]) -> None:
    await work


def settled_in(store: Path) -> dict[str, int]:
    """What was settled of each instance."""
    ledger = SqlLedger.looked_at(ledger_url(store / "ledger.sqlite"), LEDGER_OWNER)
    try:
        return {bill.instance_id: bill.settled.micro_usd for bill in ledger.bills() if bill.settled}
    finally:
        ledger.close()


def asked_in(store: Path, ids: Sequence[str]) -> dict[str, int]:
    """How many instances each token of these commands may launch, by the intents of the ledger."""
    ledger = SqlLedger.looked_at(ledger_url(store / "ledger.sqlite"), LEDGER_OWNER)
    try:
        return {
            launch.token: launch.permitted
            for known in ledger.intents(ids).values()
            for launch in known.intent.launches
        }
    finally:
        ledger.close()


def _sent(cloud: RehearsedAws, body: str, times: int) -> None:
    lines = cloud.credentials.read_text().splitlines()
    keys = dict(line.split(" = ") for line in lines[1:3])
    settings = read_section(read_config(cloud.config, {}).clouds["aws"])
    ((region, url),) = settings.accounts[0].queues.items()
    client = boto3.Session().client(
        "sqs", region_name=region, endpoint_url=cloud.endpoint_url, **keys
    )
    try:
        for _ in range(times):
            client.send_message(QueueUrl=url, MessageBody=body)
    finally:
        client.close()


def _asked(cloud: RehearsedAws, method: str, name: str, said: Mapping[str, Any]) -> dict[str, Any]:
    where = urlsplit(cloud.endpoint_url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port or 80, timeout=30)
    try:
        connection.request(method, f"/_rehearsal/{name}", body=json.dumps(said))
        answer = connection.getresponse()
        found: dict[str, Any] = json.loads(answer.read())
        assert answer.status == http.HTTPStatus.OK, found
        return found
    finally:
        connection.close()


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPOTLINE_", "AWS_"))}
    return {**kept, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


def _settings(nats_url: str, cloud: RehearsedAws, speed: float) -> dict[str, str]:
    """Of an actuator on a rehearsal, live, which ends whatever belongs to no job."""
    return {
        "SPOTLINE_NATS_URL": nats_url,
        "SPOTLINE_LOG_LEVEL": "warning",
        "SPOTLINE_CONFIG": str(cloud.config),
        "SPOTLINE_CLOUD": "aws",
        "SPOTLINE_MODE": "live",
        "SPOTLINE_MARKET_S_PER_S": str(speed),
        "SPOTLINE_REAP": "reap",
        "SPOTLINE_REAP_ACCOUNTS": "*",
        "SPOTLINE_REAP_GRACE_S": "300",
        "SPOTLINE_COMPARE_EVERY_SLOTS": "1",
        "AWS_SHARED_CREDENTIALS_FILE": str(cloud.credentials),
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@asynccontextmanager
async def aws_processes(
    folder: Path,
    market: Market,
    offering_id: str,
    *,
    speed: float,
    fail: float = 0.0,
    seed: int = 0,
) -> AsyncIterator[AwsProcesses]:
    """A broker, a rehearsal of AWS on a market, and the services' processes; none has begun."""
    file = folder / "rehearsed.parquet"
    await asyncio.to_thread(write_market, market, file)
    async with (
        # First: it reads its modules while the others begin.
        Nursery(ACTUATOR, _environment(), folder / LOG) as nursery,
        EmbeddedBroker(folder / "broker") as broker,
        rehearsed_aws(file, folder / "rehearsal", fail=fail, seed=seed, speed=speed) as cloud,
        NatsConnection(broker.url, name="test") as connection,
    ):
        told = await asyncio.to_thread(_asked, cloud, "GET", "clock", {})
        clock = MarketClock(
            wall_ns=told["wall_ns"],
            market_ns=told["market_ns"],
            market_s_per_s=told["market_s_per_s"],
        )
        stream = await NatsEventStream.open(connection)
        link = await connection.link(timeout_s=30)
        log = PlayedLog(stream, market, offering_id, lambda: clock.market_at(time.time_ns()))
        settings = _settings(broker.url, cloud, speed)
        yield AwsProcesses(cloud, nursery, log, folder, link.jetstream(), settings)
