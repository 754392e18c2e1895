"""`up` whose log is deleted under it: all services start again, and go on with what there is."""

import asyncio
from pathlib import Path

import pytest

from spotline.adapters.nats.connection import NatsConnection
from spotline.bootstrap.parts import BusAddress, open_stream
from spotline.bootstrap.up import run_up
from spotline.domain.events.agreement import IncarnationBegun
from tests.eventually import PATIENCE_S
from tests.fakes.jetstream import jetstream_of
from tests.fakes.log_losses import delete_log
from tests.fakes.whole_system import events_in, options

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


async def test_services_start_again_on_a_log_that_was_deleted_under_them(tmp_path: Path) -> None:
    ready: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    running = asyncio.create_task(
        run_up(options(tmp_path), health_port=0, told=lambda said: ready.put_nowait(dict(said)))
    )
    try:
        said = await asyncio.wait_for(ready.get(), PATIENCE_S)
        async with NatsConnection(said["NATS"], name="test") as connection:
            await delete_log(await jetstream_of(connection))

        again = await asyncio.wait_for(ready.get(), PATIENCE_S)

        async with open_stream(BusAddress(nats_url=again["NATS"]), name="test") as (_, stream):
            last_seq = await stream.last_seq()
            log = [entry async for entry in stream.read([], last_seq=last_seq)]
        begun = [event for event in events_in(log) if isinstance(event, IncarnationBegun)]
        assert [event.incarnation for event in begun][:1] == [2]
        assert (tmp_path / "log" / "incarnation-1" / "manifest.json").exists()
    finally:
        running.cancel()
        await asyncio.wait((running,))
