"""`spotline rehearse`: a cloud that sends no bill, as strict as the one it stands for."""

# What the command uses is imported inside: it costs more than `--help` should.

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spotline.cli.failures import explained

rehearse_app = typer.Typer(
    name="rehearse",
    help="Run a cloud on this machine that behaves as the real one, and sends no bill.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(rehearse_app, name="rehearse")


@rehearse_app.callback()
def root() -> None:
    """Run a cloud on this machine that behaves as the real one, and sends no bill."""


@rehearse_app.command()
def aws(
    market: Annotated[
        Path | None,
        typer.Option(help="Market file whose prices and counts it has; not needed to go on."),
    ] = None,
    fail: Annotated[
        float, typer.Option(min=0, max=1, help="Share of calls that fail, drawn by --seed.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 0,
    speed: Annotated[
        float,
        typer.Option(min=0, help="Market seconds per second; 0: time stands until it is advanced."),
    ] = 1.0,
    port: Annotated[int, typer.Option(min=0, max=65535, help="On loopback; 0: a free one.")] = 0,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder of its state; one that is there goes on. Default: a new one."),
    ] = None,
    config_out: Annotated[
        Path | None, typer.Option(help="Where spotline.yaml is written; default: in --state.")
    ] = None,
    duration: Annotated[
        float, typer.Option(min=0, help="Seconds until it ends by itself; 0: it does not.")
    ] = 0.0,
    calm: Annotated[
        bool, typer.Option("--calm", help="Draw no delays, no odd notices and no throttling.")
    ] = False,
    user_data: Annotated[
        Path | None, typer.Option(help="What launch templates give instances.")
    ] = None,
    instance_command: Annotated[
        str, typer.Option(help="What each instance runs, as a process of this machine.")
    ] = "",
) -> None:
    """Rehearse AWS: EC2, SQS, EventBridge, STS, prices, quotas and instance metadata over HTTP.

    Says where it is in one line of JSON, and serves until it is ended. It is a process of its own
    that shares nothing with Spotline but the market file.
    """
    with explained():
        import os
        import sys
        import tempfile

        from spotline.contracts.errors import ConfigError

        _check_installed()
        if market is None and state is None:
            raise ConfigError("--market must be given, or --state of a rehearsal that goes on")
        folder = state or Path(tempfile.mkdtemp(prefix="spotline-rehearsal-"))
        stated = {
            "--market": market,
            "--state": folder,
            "--fail": fail,
            "--seed": seed,
            "--speed": speed,
            "--port": port,
            "--config-out": config_out,
            "--duration": duration,
            "--user-data": user_data,
            "--instance-command": instance_command or None,
        }
        arguments = [f"{name}={value}" for name, value in stated.items() if value is not None]
        if calm:
            arguments.append("--calm")
        program = [sys.executable, "-m", "spotline.rehearsal.aws", "serve", *arguments]
        os.execv(program[0], program)  # noqa: S606 - our own interpreter, and no shell


def _check_installed() -> None:
    from importlib.util import find_spec

    from spotline.contracts.errors import ConfigError

    if find_spec("botocore") is None:
        raise ConfigError("AWS needs boto3, which is not installed: pip install 'spotline[aws]'")
