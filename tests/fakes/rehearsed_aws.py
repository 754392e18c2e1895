"""A rehearsal of AWS in this process: served by a thread of its own, asked by plain boto3."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

import boto3
import numpy as np
from botocore.config import Config

from spotline.adapters.market.parquet import write_market
from spotline.domain.market.market import Market
from spotline.domain.market.offering import Offering
from spotline.rehearsal.aws.ec2.service import Ec2
from spotline.rehearsal.aws.faults import Faults
from spotline.rehearsal.aws.opening import Making, opened
from spotline.rehearsal.aws.surroundings import ServingOptions, served
from spotline.rehearsal.aws.weather import calm

REGION, ZONE = "us-east-1", "use1-az1"
_S = 10**9
# One attempt: what is lost is seen to be lost.
CONFIG = Config(retries={"total_max_attempts": 1}, connect_timeout=10, read_timeout=60)


def small_market(slots: int = 12) -> Market:
    """Eight of p4d.24xlarge in a zone of each of two accounts, and of g5.xlarge in the first."""
    sold = [
        ("default", "p4d.24xlarge", 8),
        ("default", "g5.xlarge", 1),
        ("other", "p4d.24xlarge", 8),
    ]
    offerings = tuple(
        Offering(
            offering_id=f"aws:{account}:{ZONE}:{kind}", provider="aws", account=account,
            region=REGION, zone=ZONE, instance_type=kind, gpu_model="a100-40gb" if gpus == 8 else "a10g",
            gpus_per_instance=gpus, quota_pool="p",
        )
        for account, kind, gpus in sold
    )  # fmt: skip
    shape = (slots, len(sold))
    start_ns = 1_700_000_000 * _S // (600 * _S) * (600 * _S)
    return Market(
        offerings=offerings,
        slot_s=600,
        start_ns=start_ns,
        spot_price_micro_usd=np.full(shape, 9_000_000),
        on_demand_price_micro_usd=np.full(shape, 32_772_600),
        spot_available=np.full(shape, 8),
        spot_provenance=np.zeros(shape, np.int64),
        on_demand_available=np.full(shape, 8),
        on_demand_provenance=np.zeros(shape, np.int64),
        quoted_ns=np.repeat(start_ns + np.arange(slots)[:, None] * 600 * _S, len(sold), axis=1),
        source="test",
    )


class RehearsedAws:
    """A rehearsal whose time stands; `clients` share one session, as making them is slow."""

    def __init__(self, folder: Path, **options) -> None:
        self.folder = folder
        self._options = options
        self._session = boto3.Session(region_name=REGION)
        self._clients: dict = {}
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="rehearsal")
        self._began = threading.Event()
        self._failure: BaseException | None = None

    def __enter__(self) -> RehearsedAws:
        self._thread.start()
        assert self._began.wait(60)
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_) -> None:
        for client in self._clients.values():
            client.close()
        self.stop()

    def stop(self) -> None:
        """End the rehearsal; safe to repeat."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        try:
            market = self.folder / "market.parquet"
            write_market(small_market(), market)
            state = self.folder / "state"
            making = Making(market_s_per_s=0, weather=calm())
            with opened(state, making, market) as (self.world, _):
                self.faults = Faults(share=0.0, seed=0)
                ec2 = Ec2(self.world, self.faults)
                options = ServingOptions(state=state, **self._options)
                async with served(self.world, ec2, options) as self.served:
                    self._began.set()
                    await self._over.wait()
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._began.set()

    def do(self, what):
        """Do something in the rehearsal's own thread; gives what it gives."""
        done = asyncio.run_coroutine_threadsafe(_called(what), self._loop)
        return done.result(60)

    def advance(self, seconds: float) -> None:
        """Let market time pass."""

        def pass_time() -> None:
            self.world.clock.advance(round(seconds * _S))
            self.world.settle()

        self.do(pass_time)

    def client(self, service: str, account: str = "default", **changes):
        """A plain boto3 client with the keys of an account."""
        key = (service, account, *sorted(changes.items()))
        if key not in self._clients:
            owner = next(one for one in self.world.accounts if one.name == account)
            self._clients[key] = self._session.client(
                service,
                **{
                    "endpoint_url": self.served.endpoint_url,
                    "aws_access_key_id": owner.access_key_id,
                    "aws_secret_access_key": owner.secret_access_key,
                    "config": CONFIG,
                    **changes,
                },
            )
        return self._clients[key]


async def _called(what):
    return what()


@contextlib.contextmanager
def rehearsed_aws(folder: Path, **options):
    """A rehearsal in a folder, until the block is left."""
    with RehearsedAws(folder, **options) as aws:
        yield aws
