"""Small Faust apps for tests, and waiting for them."""

import faust

from spotline.adapters.faust.hosting import data_folder
from tests.eventually import eventually

# No pause of the machine is as long: a lease that is lost unasked brings events a second time.
LASTING = "?lease_s=60"


def small_app(url, name="app", *, options=LASTING, partitions=2, **settings):
    """An app without a web server that commits often, and leaves no folder where tests run."""
    return faust.App(
        name,
        broker=url + options,
        topic_partitions=partitions,
        web_enabled=False,
        datadir=data_folder(name),
        **{"broker_commit_interval": 0.1, **settings},
    )


async def ready(app):
    """Wait until `app` has its partitions and its tables."""
    await eventually(lambda: app.tables.actives_ready and not app.rebalancing)


def collecting(app, topic, *, to_item=lambda event: (event.key, event.value)):
    """Let an agent collect what comes on `topic`, and return the list."""
    items = []

    @app.agent(topic)
    async def collect(stream):
        async for event in stream.events():
            items.append(to_item(event))  # noqa: PERF401 - an endless stream

    return items
