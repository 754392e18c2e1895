"""Which folder a system runs on where the command line names none."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# Where releases before 0.3.0 put it: beside whatever was worked on.
_IN_WORKING_DIRECTORY = Path("spotline-store")

StoreOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder of broker, ledger and log; continued if it exists. Default: spotline-store in "
        "the working directory where that exists, else one of your own state.",
    ),
]


def store_folder(stated: Path | None, *, quiet: bool = False) -> Path:
    """The folder that was stated, or the one there is; says which where it is an old one."""
    if stated is not None:
        return stated
    if _IN_WORKING_DIRECTORY.is_dir():
        if not quiet:
            typer.echo(
                f"going on with {_IN_WORKING_DIRECTORY}/ of this directory; without it the store "
                f"would be {_own_store()}",
                err=True,
            )
        return _IN_WORKING_DIRECTORY
    return _own_store()


def _own_store() -> Path:
    from platformdirs import user_state_path

    return user_state_path("spotline") / "store"
