"""`spotline audit`: who changed what, and whether the record of it is as it was written."""

# What the commands use is imported inside: it costs more than `--help` should.

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import AsJson
from spotline.cli.failures import explained
from spotline.cli.jobs_view import print_json
from spotline.cli.stores import StoreOption, store_folder
from spotline.cli.tables import Column, Kind, print_line, print_table

if TYPE_CHECKING:
    from spotline.application.identity.audit import AuditedAct, ChainHead, ChainReport

audit_app = typer.Typer(name="audit", help="Who changed what, from where, and what came of it.")

_BROKEN = 1


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(audit_app, name="audit")


@audit_app.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    store: StoreOption = None,
    since: Annotated[
        str, typer.Option(metavar="WHEN", help="A duration such as 2h, or a time with its zone.")
    ] = "",
    subject: Annotated[str, typer.Option(metavar="NAME", help="Who, exactly.")] = "",
    action: Annotated[str, typer.Option(metavar="TEXT", help="Part of the action's name.")] = "",
    as_json: AsJson = False,
) -> None:
    """List what was changed or tried, oldest first.

    Whoever reads the store may read it: nobody is asked who he is.
    """
    if context.invoked_subcommand is not None:
        return
    with explained(as_json=as_json):
        from spotline.bootstrap.auditing import audited_acts

        from_ns = _moment_ns(since)
        acts = [
            each
            for each in audited_acts(store_folder(store, quiet=as_json))
            if max(each.act.ts_ns, each.act.until_ns) >= from_ns
            and (not subject or each.act.subject == subject)
            and action.lower() in each.act.action.lower()
        ]
    if as_json:
        print_json([_as_json(each) for each in acts])
        return
    print_table(
        (
            Column("when", rank=1),
            Column("who", rank=1),
            Column("role", rank=3),
            Column("tenant", rank=4),
            Column("did", rank=1),
            Column("to", Kind.SENTENCE, rank=2),
            Column("outcome", rank=1),
            Column("from", rank=5),
            Column("record", Kind.ID, rank=6),
        ),
        [_row(each) for each in acts],
    )


@audit_app.command()
def verify(
    store: StoreOption = None,
    expect: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What an earlier `audit verify --json` printed: each chain must still go on from it.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read every chain, and say whether all of it is as it was written.

    Exits with 1 where a chain is broken, and names its first record that is not as it was. Keep the
    heads that it prints elsewhere: without them a tail that was cut off does not show.
    """
    with explained(as_json=as_json):
        from spotline.bootstrap.auditing import kept_heads, verified_chains

        kept = {} if expect is None else kept_heads(expect)
        reports = verified_chains(store_folder(store, quiet=as_json), kept)
    broken = [report for report in reports if report.broken is not None]
    if as_json:
        print_json(
            {
                "exit_code": _BROKEN if broken else 0,
                "chains": [_report_as_json(report) for report in reports],
            }
        )
    else:
        for report in reports:
            if report.broken is not None:
                print_line(f"{report.chain}: broken: {report.broken}", style="red")
                continue
            print_line(f"{report.chain}: {_head(report.head)}", style="green")
        if not reports:
            print_line("there is no record yet")
    raise typer.Exit(_BROKEN if broken else 0)


def _moment_ns(text: str) -> int:
    from pydantic_core import PydanticCustomError

    from spotline.adapters.files.fields import time_ns
    from spotline.adapters.files.units import seconds_of
    from spotline.contracts.errors import ConfigError
    from spotline.domain.units import NS_PER_S

    if not text:
        return 0
    seconds = seconds_of(text)
    if seconds is not None:
        return int(datetime.now(UTC).timestamp() - seconds) * NS_PER_S
    try:
        return time_ns(text)
    except PydanticCustomError:
        raise ConfigError(
            f"--since: expected a duration such as 2h, or a time with its UTC offset, found {text!r}"
        ) from None


def _row(each: AuditedAct) -> tuple[str, ...]:
    act = each.act
    many = f"{act.count} x " if act.count > 1 else ""
    outcome = f"{act.outcome} {act.reason}".strip()
    # As docs/access.md names it: the package is the same everywhere.
    did = act.action.removeprefix("/spotline.api.v1.")
    return (
        _written(act.ts_ns),
        act.subject,
        act.role,
        act.tenant,
        f"{many}{did}",
        act.target,
        outcome,
        act.peer,
        f"{each.chain}:{each.seq}",
    )


def _as_json(each: AuditedAct) -> dict[str, object]:
    act = each.act
    return {
        "chain": each.chain,
        "seq": each.seq,
        "time": _written(act.ts_ns),
        "until": _written(act.until_ns) if act.until_ns else None,
        "subject": act.subject,
        "role": act.role or None,
        "tenant": act.tenant or None,
        "credential_id": act.credential_id or None,
        "door": act.door.value,
        "action": act.action,
        "target": act.target or None,
        "peer": act.peer or None,
        "outcome": act.outcome,
        "reason": act.reason or None,
        "request_id": act.request_id or None,
        "count": act.count,
    }


def _report_as_json(report: ChainReport) -> dict[str, object]:
    broken = report.broken
    return {
        "chain": report.chain,
        "records": report.head.seq,
        "sha256": report.head.sha256,
        "broken": None
        if broken is None
        else {"record": broken.seq, "kind": broken.kind.name, "detail": broken.detail},
    }


def _head(head: ChainHead) -> str:
    return f"{head.seq:,} records, each as it was written; head {head.sha256}"


def _written(ts_ns: int) -> str:
    from spotline.domain.units import utc_iso

    return utc_iso(ts_ns)
