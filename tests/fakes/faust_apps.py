"""Small Faust apps for tests, and waiting for them."""

import faust

from tests.eventually import eventually


def small_app(url, name="app", *, options="?lease_s=2", partitions=2, **settings):
    """An app without a web server that commits often."""
    return faust.App(
        name,
        broker=url + options,
        topic_partitions=partitions,
        web_enabled=False,
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
