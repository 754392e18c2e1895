"""A rehearsal from start to end: the world is opened, served, and told of where it is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spotline.rehearsal.aws.config_out import write_config, write_credentials
from spotline.rehearsal.aws.control import Control, control_app
from spotline.rehearsal.aws.ec2.service import Ec2
from spotline.rehearsal.aws.faults import Faults, Faulty
from spotline.rehearsal.aws.holding import HeldService, Holds
from spotline.rehearsal.aws.opening import Making, opened
from spotline.rehearsal.aws.surroundings import ServingOptions, served

Ready = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How a rehearsal is served.

    Parameters
    ----------
    state
        Its folder; one that is there goes on.
    market
        Market file of a new one.
    config_out
        Where `spotline.yaml` is written.
    duration_s
        Wall seconds until it ends by itself; 0: it does not.
    instance_command
        What each instance runs as a process of this machine; empty: nothing.
    """

    state: Path
    making: Making
    market: Path | None
    port: int
    config_out: Path
    duration_s: float = 0.0
    instance_command: str = ""

    def __post_init__(self) -> None:
        if self.making.market_s_per_s < 0:
            raise ValueError(f"--speed must be >= 0, was {self.making.market_s_per_s}")
        if self.duration_s < 0:
            raise ValueError(f"--duration must be >= 0, was {self.duration_s}")


async def serve_world(
    serving: Serving, stop: asyncio.Event, ready: Callable[[Ready], None]
) -> None:
    """Serve until `stop` is set or its time is over; `ready` is told once, when it answers.

    Raises
    ------
    ValueError, BrokenLog, OSError
        It cannot be opened, or not be served.
    """
    with opened(serving.state, serving.making, serving.market) as (world, making):
        # A restart draws other failures: the calls of before are not known by number any more.
        faults = Faults(
            share=making.weather.fail_share, seed=making.seed, first=world.state.records
        )
        ec2 = Ec2(world, faults, user_data=making.user_data)
        holds = Holds()
        control = control_app(Control(world, faults, ec2, serving.state, holds))
        options = ServingOptions(
            state=serving.state,
            port=serving.port,
            instance_command=serving.instance_command,
            user_data=making.user_data,
        )
        async with (
            served(
                world,
                HeldService(ec2, holds),
                options,
                control=control,
                wrap=lambda service: HeldService(Faulty(service, faults), holds),
            ) as there,
            asyncio.TaskGroup() as tasks,
        ):
            happening = tasks.create_task(world.run(), name="rehearsal-world")
            write_config(world, serving.config_out, serving.state, there.endpoint_url, there.queues)
            credentials = write_credentials(world, serving.state)
            ready(
                {
                    "endpoint_url": there.endpoint_url,
                    "clock": world.clock.described(),
                    "config": str(serving.config_out.absolute()),
                    "state": str(serving.state.absolute()),
                    "credentials": str(credentials.absolute()),
                    "certificate": str(there.certificate.absolute()),
                }
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(serving.duration_s or None):
                    await stop.wait()
            happening.cancel()
            holds.close()
