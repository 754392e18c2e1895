"""`spotline export`: what was charged, for the tools of others."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import AsJson
from spotline.cli.failures import explained, writable
from spotline.cli.jobs_view import print_json
from spotline.cli.stores import StoreOption, store_folder
from spotline.cli.tables import print_line

if TYPE_CHECKING:
    from spotline.application.focus.rows import FocusTotals

export_app = typer.Typer(
    name="export", help="Write what was charged, for the tools of others.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(export_app, name="export")


@export_app.callback()
def root() -> None:
    """Write what was charged, for the tools of others."""


@export_app.command()
def focus(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="File to write: .csv, .csv.gz or .parquet."
        ),
    ],
    log: Annotated[
        Path | None, typer.Argument(metavar="[LOG]", help="A recorded log; by default the store's.")
    ] = None,
    store: StoreOption = None,
    first: Annotated[
        datetime | None,
        typer.Option(
            "--from",
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"],
            metavar="DATE",
            help="Charges from then on, UTC.",
        ),
    ] = None,
    end: Annotated[
        datetime | None,
        typer.Option(
            "--to",
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"],
            metavar="DATE",
            help="Charges before then, UTC.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write charges as rows of FOCUS 1.2, each with its job, its command and its decision.

    BilledCost adds up to the settled ledger, to the micro-dollar. EffectiveCost adds what reservations
    and savings plans cost anyway. ListCost is what on-demand would have been, there and then. Reads the
    log alone; nothing needs to run.
    """
    with explained(as_json=as_json):
        from spotline.adapters.files.focus_file import check_focus_file, write_focus
        from spotline.application.focus.rows import FocusLedger, Period
        from spotline.contracts.errors import ContractError
        from spotline.replay.focus import focus_rows

        if first is not None and end is not None and first >= end:
            raise ContractError("--to", f"expected a time after --from ({first}), found {end}")
        check_focus_file(output)
        folder = log if log is not None else store_folder(store, quiet=as_json) / "log"
        ledger = FocusLedger(period=Period(from_ns=_utc_ns(first), to_ns=_utc_ns(end)))
        with writable(output):
            write_focus(output, focus_rows(folder, ledger))
    if as_json:
        print_json(_as_json(output, ledger.totals))
    else:
        _print(output, ledger.totals)


def _utc_ns(at: datetime | None) -> int | None:
    from datetime import UTC

    from spotline.domain.units import NS_PER_S

    return None if at is None else int(at.replace(tzinfo=UTC).timestamp()) * NS_PER_S


def _as_json(output: Path, totals: FocusTotals) -> dict[str, object]:
    return {
        "file": str(output),
        "rows": totals.rows,
        "billed_micro_usd": totals.billed_micro_usd,
        "effective_micro_usd": totals.effective_micro_usd,
        "list_micro_usd": totals.listed_micro_usd,
        "unexplained": totals.unexplained,
        "unexplained_micro_usd": totals.unexplained_micro_usd,
        "parked": totals.parked,
    }


def _print(output: Path, totals: FocusTotals) -> None:
    print_line(f"{output}: {totals.rows:,} rows")
    print_line(f"billed     {_usd(totals.billed_micro_usd)}, as the ledger settled it")
    sunk = totals.effective_micro_usd - totals.billed_micro_usd
    paid = f", of it {_usd(sunk)} for reservations and savings plans" if sunk else ""
    print_line(f"effective  {_usd(totals.effective_micro_usd)}{paid}")
    print_line(f"list       {_usd(totals.listed_micro_usd)} on-demand, there and then")
    if totals.unexplained:
        print_line(
            f"{totals.unexplained:,} charges of {_usd(totals.unexplained_micro_usd)} that no "
            "decision stands behind (x_DecisionId is empty)",
            style="yellow",
        )
    if totals.parked:
        print_line(
            f"{totals.parked:,} events that services parked are left out (spotline parked)",
            style="yellow",
        )


def _usd(micro_usd: int) -> str:
    return f"{micro_usd / 1e6:,.6f} USD"
