"""A Faust worker in a process of its own: counts and sums numbers by key.

    python -m tests.fakes.faust_worker URL NAME [naive] [die_uncommitted]

`naive` keeps no last applied offset; `die_uncommitted` dies once, by SIGKILL, after a table's
changes were stored and before the offsets behind them are committed.
"""

import asyncio
import os
import signal
import sys

import faust

from spotline.adapters.faust.hosting import data_folder, running

APP = "summing"
TOPIC = "numbers"
PARTITIONS = 4


def summing_app(url, name=None, *, naive=False, **settings):
    """The app, its topic and its table of (count, sum, last applied offset)."""
    app = faust.App(
        APP,
        broker=url,
        topic_partitions=PARTITIONS,
        web_enabled=False,
        datadir=data_folder(APP),
        broker_commit_interval=0.1,
        consumer_group_instance_id=name,
        **settings,
    )
    numbers = app.topic(TOPIC, key_type=str, value_type=int)
    sums = app.Table("sums", default=lambda: (0, 0, 0))

    @app.agent(numbers)
    async def add(stream):
        async for event in stream.events():
            count, total, last = sums[event.key]
            if naive or event.message.offset > last:
                sums[event.key] = (count + 1, total + event.value, event.message.offset)

    return app, numbers, sums


def die_uncommitted(app):
    """Let `app` die at its first commit that has something to commit."""
    consumer = app.consumer

    async def _commit(offsets):
        os.kill(os.getpid(), signal.SIGKILL)

    consumer._commit = _commit


async def main(url, name, *options):
    app, *_ = summing_app(url, name or None, naive="naive" in options)
    app.finalize()
    if "die_uncommitted" in options:
        die_uncommitted(app)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with running(app):
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
