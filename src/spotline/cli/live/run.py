"""The live view on a running allocator."""

# What knows gRPC and textual is imported inside: it costs more than `--help` should.

from __future__ import annotations


async def watch_live(address: str, prefix: str | None, tenant: str) -> None:
    """Show the live view until it is left, with the job selected that begins so."""
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.cli.calls import whole_job_id
    from spotline.cli.listing import listed_jobs
    from spotline.cli.live.app import LiveView
    from spotline.cli.live.feed import RpcFeed

    async with JobClient(address) as client:
        selected = "" if prefix is None else await whole_job_id(client, prefix)
        if prefix is not None:
            # One that is not there is said before anything is drawn.
            await client.get(selected)
        board = await listed_jobs(client, tenant)
        await LiveView(RpcFeed(client, tenant), board, selected=selected).run_async()
