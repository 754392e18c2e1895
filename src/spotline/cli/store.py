"""`spotline store`: check, copy, put back and repair what a system keeps."""

# What the commands use is imported inside: it costs more than `--help` should.

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from spotline.cli.failures import explained
from spotline.cli.jobs_view import print_json
from spotline.cli.stores import StoreOption, store_folder
from spotline.cli.tables import print_line

store_app = typer.Typer(
    name="store", help="Check, copy and repair what a system keeps.", no_args_is_help=True
)

_STYLES = {"well": "green", "found": "yellow", "unreadable": "red"}

NatsUrl = Annotated[
    str,
    typer.Option(envvar="SPOTLINE_NATS_URL", help="An external NATS; the store's own by default."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(store_app, name="store")


@store_app.callback()
def root() -> None:
    """Check, copy and repair what a system keeps."""


@store_app.command()
def check(store: StoreOption = None, nats_url: NatsUrl = "", as_json: AsJson = False) -> None:
    """Look at all that a store holds, and whether it belongs together; nothing is changed.

    Exits with 0 if all is well, 1 if something was found, 2 if something cannot be read.
    """
    import asyncio

    with explained(as_json=as_json):
        from spotline.bootstrap.store_check import check_store, exit_code_of

        _quiet()
        folder = store_folder(store, quiet=True)
        findings = asyncio.run(check_store(folder, nats_url=nats_url))
    code = exit_code_of(findings)
    if as_json:
        print_json(
            {
                "store": str(folder),
                "exit_code": code,
                "findings": [finding.as_json() for finding in findings],
            }
        )
    else:
        for finding in findings:
            state = finding.state.value
            print_line(f"{finding.part}: {state}: {finding.detail}", style=_STYLES[state])
            if finding.continue_with:
                print_line(f"  continue with: {finding.continue_with}")
    raise typer.Exit(code)


@store_app.command()
def backup(
    to: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the copy.")],
    store: StoreOption = None,
    nats_url: NatsUrl = "",
    as_json: AsJson = False,
) -> None:
    """Copy a store that runs or stands still, and read back what was written.

    The copy holds the keys of the agents of its instances: keep it as you keep the store.
    """
    import asyncio

    with explained(as_json=as_json):
        from spotline.bootstrap.store_copies import back_up

        _quiet()
        folder = store_folder(store, quiet=True)
        made = asyncio.run(back_up(folder, to, nats_url=nats_url))
    if as_json:
        print_json(
            {
                "backup": str(to),
                "made": made.made,
                "installation_id": made.installation_id,
                "files": dict(made.files),
                "streams": dict(made.streams),
            }
        )
        return
    entries = ", ".join(f"{name} up to entry {seq:,}" for name, seq in made.streams.items())
    print_line(f"{to}: {len(made.files)} files, each as it was written; {entries or 'no log'}")


@store_app.command()
def restore(
    copy: Annotated[Path, typer.Argument(metavar="DIR", help="What `store backup` made.")],
    store: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where to; a folder that is absent or empty.")
    ],
    as_json: AsJson = False,
) -> None:
    """Put a copy back as a store; its log goes on as another incarnation.

    What happened after the copy is not in it: the next start compares it with the cloud.
    """
    import asyncio

    with explained(as_json=as_json):
        from spotline.bootstrap.auditing import note_command
        from spotline.bootstrap.store_copies import restore as put_back

        _quiet()
        said = asyncio.run(put_back(copy, store))
        note_command(store, "store restore", target=f"made={said['made']}")
    if as_json:
        print_json({"store": str(store), "made": said["made"], "from": str(copy)})
        return
    print_line(f"{store}: restored from the copy that was made {said['made']}")
    print_line(f"start it with: spotline up --store {store}")


@store_app.command()
def repair(
    store: StoreOption = None,
    nats_url: NatsUrl = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do it, and not only say it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what is to be done for a store to go on after a loss; with --yes, do it.

    Each step may be repeated, and is noted in repairs.jsonl of the store.
    """
    import asyncio

    with explained(as_json=as_json):
        from spotline.bootstrap.auditing import record_command
        from spotline.bootstrap.store_opened import refuse_absent
        from spotline.bootstrap.store_repair import repair_store

        _quiet()
        folder = store_folder(store, quiet=True)
        refuse_absent(folder)
        with record_command(folder, "store repair") if yes else nullcontext():
            steps = asyncio.run(repair_store(folder, nats_url=nats_url, perform=yes))
    if as_json:
        said = [{"step": each.step, "detail": each.detail} for each in steps]
        print_json({"store": str(folder), "done": yes, "steps": said})
        return
    if not steps:
        print_line(f"{folder}: nothing is to be done", style="green")
        return
    for each in steps:
        print_line(f"{each.step}: {each.detail}")
    if not yes:
        print_line("nothing was changed; do it with: spotline store repair --yes")


def _quiet() -> None:
    """Leave the words of the services that are used here to those who ask for them."""
    from spotline.runtime.log import configure_logging

    configure_logging("critical")
