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
