"""`spotline promote`: which accounts are acted on, and why."""

# Imports of what the commands use are inside them: gRPC costs more than `--help` should.

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import (
    DEFAULT_ADDRESS,
    EXIT_BAD_INPUT,
    Address,
    AsJson,
    answered,
    fail,
)
from spotline.cli.jobs_view import plain, print_json
from spotline.cli.modes_view import mode_of
from spotline.cli.tables import Column, Kind, print_line, print_table

if TYPE_CHECKING:
    from spotline.application.operations.messages import AccountModes, ModeSet
    from spotline.domain.modes import Mode


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(promote)


def promote(
    account: Annotated[
        str, typer.Argument(metavar="PROVIDER/ACCOUNT", help="Which, as --list names it.")
    ] = "",
    to: Annotated[
        str, typer.Option("--to", metavar="observe|shadow|live", help="The mode to be in.")
    ] = "",
    reason: Annotated[
        str, typer.Option("--reason", metavar="WHY", help="Why; stands in the event log.")
    ] = "",
    listed: Annotated[
        bool, typer.Option("--list", help="Show the mode of every account, who set it, and why.")
    ] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Have an account of a live run acted on (--to live), or no longer (--to observe).

    Nothing is bought in an account that is not live; what is held there can still be released.
    """
    if listed:
        if account or to or reason:
            fail(EXIT_BAD_INPUT, "promote: expected --list alone", as_json=as_json)
        _list(address, as_json=as_json)
        return
    for what, given in (("PROVIDER/ACCOUNT", account), ("--to", to), ("--reason", reason)):
        if not given:
            fail(EXIT_BAD_INPUT, f"promote: expected {what}, or --list", as_json=as_json)
    wanted = _mode(to, as_json=as_json)

    async def run() -> ModeSet:
        from spotline.adapters.grpc.operations.client import OperationsClient
        from spotline.application.operations.messages import ModeWanted

        async with OperationsClient(address) as client:
            return await client.set_account_mode(
                ModeWanted(request_id=uuid.uuid4().hex, account=account, mode=wanted, reason=reason)
            )

    done = answered(run(), as_json=as_json).set
    if as_json:
        print_json(plain(done))
        return
    effect = "it is bought in" if done.mode.value == "live" else "nothing is bought in it"
    print_line(f"{done.account} is in mode {done.mode.value} from now on: {effect}")


def _mode(name: str, *, as_json: bool) -> Mode:
    from spotline.domain.modes import mode_named

    try:
        return mode_named(name)
    except ValueError as error:
        fail(EXIT_BAD_INPUT, f"--to: {error}", as_json=as_json)


def _list(address: str, *, as_json: bool) -> None:
    async def run() -> AccountModes:
        from spotline.adapters.grpc.operations.client import OperationsClient

        async with OperationsClient(address) as client:
            return await client.account_modes()

    modes = answered(run(), as_json=as_json)
    if as_json:
        print_json(
            {
                "mode": mode_of(modes.clock).value,
                "accounts": [plain(each) for each in modes.accounts],
            }
        )
        return
    print_line(f"this run is in mode {mode_of(modes.clock).value}")
    print_table(
        (
            Column("account", Kind.ID),
            Column("mode", rank=1),
            Column("set by", rank=3),
            Column("slot", Kind.NUMBER, rank=4),
            Column("why", Kind.SENTENCE, rank=2),
        ),
        [
            (
                each.account,
                each.mode.value,
                each.by,
                str(each.slot) if each.slot >= 0 else "",
                each.reason,
            )
            for each in modes.accounts
        ],
    )
