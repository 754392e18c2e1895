"""All jobs of a running system, with the market and what is held."""

# What knows gRPC is imported by the callers.

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from spotline.cli.status_view import JobBoard

if TYPE_CHECKING:
    from spotline.adapters.grpc.allocator.client import JobClient

_LARGEST_PAGE = 1000


async def listed_jobs(client: JobClient, tenant: str = "") -> JobBoard:
    """Every job of a tenant, or of all (empty), by job id, with the market."""
    from spotline.application.allocator.messages import JobQuery

    query = JobQuery(tenant=tenant, page_size=_LARGEST_PAGE)
    page = await client.list(query)
    fleet, statuses = page.fleet, [*page.statuses]
    while page.next_page_token:
        page = await client.list(replace(query, page_token=page.next_page_token))
        statuses.extend(page.statuses)
    return JobBoard(statuses=tuple(statuses), market=await client.market(), fleet=fleet)
