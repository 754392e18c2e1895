"""Options that say how much is taken from callers at a time."""

from __future__ import annotations

from typing import Annotated

import typer

from spotline.contracts.limits import CallerLimits

MostCalls = Annotated[
    int, typer.Option(min=1, envvar="SPOTLINE_MOST_CALLS", help="Calls in flight, of all.")
]
MostCallsATenant = Annotated[
    int,
    typer.Option(
        min=1, envvar="SPOTLINE_MOST_CALLS_A_TENANT", help="Calls in flight, of one tenant."
    ),
]
MostStreams = Annotated[
    int,
    typer.Option(
        min=1, envvar="SPOTLINE_MOST_STREAMS", help="Streams such as watches that are open, of all."
    ),
]
MostStreamsATenant = Annotated[
    int,
    typer.Option(
        min=1, envvar="SPOTLINE_MOST_STREAMS_A_TENANT", help="Streams that are open, of one tenant."
    ),
]
MostAllocations = Annotated[
    int,
    typer.Option(
        min=1, envvar="SPOTLINE_MOST_ALLOCATIONS", help="Calls of Allocate that are in flight."
    ),
]
MostOpenJobs = Annotated[
    int,
    typer.Option(
        "--most-open-jobs-a-tenant",
        min=1,
        envvar="SPOTLINE_MOST_OPEN_JOBS_A_TENANT",
        help="Jobs of one tenant that are not over.",
    ),
]

DEFAULTS = CallerLimits()


def callers_of(
    calls: tuple[int, int], streams: tuple[int, int], others: tuple[int, int]
) -> CallerLimits:
    """The limits that options say.

    Parameters
    ----------
    calls, streams
        Of all and of one tenant.
    others
        Calls of Allocate in flight, and open jobs of a tenant.
    """
    return CallerLimits(
        most_calls=calls[0],
        most_calls_a_tenant=calls[1],
        most_streams=streams[0],
        most_streams_a_tenant=streams[1],
        most_allocations=others[0],
        most_open_jobs_a_tenant=others[1],
    )
