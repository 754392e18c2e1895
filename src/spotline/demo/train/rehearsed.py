"""Jobs trained for real on a rehearsed AWS: its instances are processes that run the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spotline.adapters.market.parquet import write_market
from spotline.application.allocator.gang_facts import AgentTimes
from spotline.application.selector.options import SelectorOptions
from spotline.demo.rehearsed.agents import agents_ahead
from spotline.demo.rehearsed.process import credentials_of, rehearsed_aws
from spotline.demo.rehearsed.run import Rehearsing, options_of
from spotline.demo.train.run import TrainProgress, TrainRun, run_training
from spotline.domain.jobs.job import Job
from spotline.domain.market.market import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedTraining:
    """How jobs are trained on a rehearsal; `speed` are market seconds in a second of wall time."""

    folder: Path
    market: Market
    jobs: Sequence[Job]
    speed: float
    seed: int
    selector: SelectorOptions
    agent_times: AgentTimes


async def train_rehearsed(
    training: RehearsedTraining, told: Callable[[TrainProgress], None] | None = None
) -> TrainRun:
    """Run the jobs until all are over, and the rehearsal with them.

    Instances join by their identity documents, and hear of interruptions from their metadata
    service and by the queue. Nothing is sent but over HTTP and gRPC.

    Raises
    ------
    ConfigError
        The rehearsal does not begin, boto3 is missing, or something cannot be used.
    RpcFailed
        A job was refused.
    """
    folder, market = training.folder, training.market
    store, state = folder / "store", folder / "rehearsal"
    rehearsing = Rehearsing(
        market=market,
        jobs=training.jobs,
        folder=folder,
        run_id=folder.name,
        seed=training.seed,
        fail=0.0,
        slot_wall_s=market.slot_s / training.speed,
        selector=training.selector,
    )
    market_file = folder / "market.parquet"
    await asyncio.to_thread(write_market, market, market_file)
    ahead = await asyncio.to_thread(agents_ahead, store, state)
    async with rehearsed_aws(
        market_file,
        state,
        fail=rehearsing.fail,
        seed=training.seed,
        speed=training.speed,
        instances=ahead.program,
    ) as cloud:
        with credentials_of(cloud):
            options = await asyncio.to_thread(options_of, rehearsing, cloud)
            run = await run_training(
                replace(options, agents_address=ahead.address, agent_times=training.agent_times),
                training.jobs,
                folder / "log",
                run_id=rehearsing.run_id,
                seeds={"window": training.seed, "reclaims": training.seed},
                told=told,
                slots=market.slots,
            )
            lines = (await cloud.bill())["lines"]
    took = frozenset(line["instance_id"] for line in lines if line["taken"])
    return replace(run, took=took)
