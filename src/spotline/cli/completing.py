"""Completion of ids in a shell: quick, and silent where nothing answers."""

# What knows gRPC is imported inside: it costs more than `--help` should.

from __future__ import annotations

import typer

# A person waits for it at a prompt.
_PATIENCE_S = 0.7


def known_jobs(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The ids of jobs that begin so, each with its name and phase; none where nothing answers."""
    import asyncio

    from spotline.adapters.grpc.allocator.client import DEFAULT_ADDRESS, JobClient
    from spotline.adapters.grpc.kit.errors import RpcFailed
    from spotline.application.allocator.messages import JobQuery
    from spotline.cli.status_view import status_phase
    from spotline.cli.tables import escaped

    async def ask() -> list[tuple[str, str]]:
        address = context.params.get("address") or DEFAULT_ADDRESS
        async with asyncio.timeout(_PATIENCE_S), JobClient(address) as client:
            page = await client.list(JobQuery(page_size=100))
        return [
            (status.job.job_id, escaped(f"{status.job.name} ({status_phase(status)})"))
            for status in page.statuses
            if status.job.job_id.startswith(incomplete)
        ]

    try:
        return asyncio.run(ask())
    except (RpcFailed, TimeoutError, ValueError):
        # A prompt is no place for errors: without an answer nothing is suggested.
        return []
