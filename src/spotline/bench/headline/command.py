"""`spotline bench headline`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from spotline.bench.command_options import (
    RECORDED_DATA,
    DataOption,
    JsonOption,
    command_line,
    open_console,
    teller,
    write_figures,
)


def headline(
    data: DataOption = RECORDED_DATA,
    out: JsonOption = None,
    log: Annotated[
        list[Path] | None,
        typer.Option(help="Recorded log whose bill is read, as of a rehearsal; repeat it."),
    ] = None,
    market: Annotated[str, typer.Option(help="Market of `bench fleet`.")] = "h100",
    jobs: Annotated[int, typer.Option(min=1, help="Jobs of a crowd.")] = 60,
    load: Annotated[float, typer.Option(min=0.01, help="Demanded over offered spot.")] = 0.8,
    seeds: Annotated[int, typer.Option(min=1, help="Crowds, of seeds 1, 2, ...")] = 5,
    processes: Annotated[int, typer.Option(min=1, help="Crowds that run at a time.")] = 2,
) -> None:
    """The front page's three numbers: what a finished job costs beside plain spot, deadlines kept of those promised, dollars that no decision explains.

    Crowds run on the second half of a record, cold; no count is told, and on-demand can run out.
    Plain spot launches the whole count again, in the cheapest zone that has it, whenever it was lost;
    it knows no deadline and buys nothing on demand.
    """
    from spotline.bench.headline.bills import read_bill_of
    from spotline.bench.headline.counting import numbers
    from spotline.bench.headline.run import HeadlineOptions, run_headline

    console = open_console()
    bills = {str(place): read_bill_of(place) for place in log or ()}
    options = HeadlineOptions(
        data=data,
        market=market,
        jobs=jobs,
        load=load,
        seeds=tuple(range(1, seeds + 1)),
        processes=processes,
    )
    ran = run_headline(options, teller(console))
    figures = {
        "meta": {
            "command": command_line(),
            "date": datetime.now(UTC).date().isoformat(),
            "recorded": ran.recorded,
            "seeds": list(options.seeds),
            "market": market,
            "load": load,
        },
        **numbers(ran.jobs, bills),
    }
    write_figures(figures, out)
    for line in told(figures):
        console.print(line, markup=False)


def told(figures: dict[str, Any]) -> list[str]:
    """The three numbers, a line or two each."""
    money, kept = figures["money"], figures["promises"]
    lines = [
        f"A job on time cost {_usd(money['usd_per_job_on_time'])} ({money['on_time']} of "
        f"{money['jobs']}), under plain spot {_usd(money['plain_usd_per_job_on_time'])} "
        f"({money['plain_on_time']}): saved {_interval(money['saved_usd_per_job_on_time'])}",
        f"A finished job, late ones among them, cost {_usd(money['usd_per_finished_job'])} "
        f"({money['finished']}), under plain spot {_usd(money['plain_usd_per_finished_job'])} "
        f"({money['plain_finished']}): saved {_interval(money['saved_usd_per_finished_job'])}",
        f"{kept['kept']} of {kept['promised']} deadlines that were promised were kept, of hard ones "
        f"{kept['kept_hard']} of {kept['promised_hard']}"
        + ("" if kept["most_missed"] is None else f"; at most {kept['most_missed']:.1%} are missed")
        + f" (95 %); {kept['refused_at_submit']} hard ones refused at submit, "
        f"{kept['refused_and_kept']} of which would have been kept; {kept['without_promise']} soft "
        f"ones taken without a promise, {kept['without_promise_and_kept']} kept; "
        f"{kept['not_told']} arrived before anything was known",
    ]
    for place, bill in figures["explained"].items():
        lines.append(
            f"{_usd(bill['unexplained_usd'])} of {_usd(bill['billed_usd'])} on the bill of {place} "
            f"that no decision explains ({bill['label']}, {bill['charges']:,} charges)"
        )
    return lines


def _usd(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f} USD"


def _interval(said: list[float] | None) -> str:
    if said is None:
        return "-"
    low, mean, high = said
    return f"{mean:,.2f} USD [{low:,.2f}, {high:,.2f}]"
