"""`spotline agent`: what runs a job's program on an instance."""

# Many agents start on a small machine: nothing is imported that they do not need.

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from spotline.agent.settings import AgentSettings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(agent)


def agent(
    log_level: Annotated[
        str, typer.Option(help="debug, info, warning or error.", envvar="SPOTLINE_LOG_LEVEL")
    ] = "info",
) -> None:
    """Run a job's program on this instance; its environment says which (docs/agent.md)."""
    import os
    import subprocess
    import sys

    from spotline.agent.settings import read_settings, read_shutdown_command
    from spotline.agent.warden import dismiss_warden, start_warden
    from spotline.cli.failures import explained
    from spotline.runtime.log import configure_logging

    shutdown_command = read_shutdown_command(os.environ)

    def shut_down() -> None:
        if shutdown_command:
            subprocess.run(["sh", "-c", shutdown_command], check=False)  # noqa: S603, S607

    try:
        with explained():
            configure_logging(log_level)
            settings = read_settings(os.environ)
            settings.base_dir.mkdir(parents=True, exist_ok=True)
    except typer.Exit:
        # An instance that no agent can serve must not bill on.
        shut_down()
        raise
    warden = start_warden(settings.instance_id, shutdown_command)
    exit_code = _serve(settings)
    dismiss_warden(warden)
    shut_down()
    sys.stdout.flush()
    sys.stderr.flush()
    # A thread may still wait for a store that does not answer: an instance that is not needed
    # must not bill on for it.
    os._exit(exit_code)


def _serve(settings: AgentSettings) -> int:
    import asyncio
    import random
    import secrets
    import signal

    import structlog

    from spotline.adapters.grpc.agent.client import AgentClient
    from spotline.agent.agent import Agent
    from spotline.agent.timing import MachineClock

    structlog.contextvars.bind_contextvars(job_id=settings.job_id, instance_id=settings.instance_id)
    running = Agent(
        settings,
        clock=MachineClock(),
        uniform=random.random,
        nonce=secrets.token_urlsafe(32),
    )

    async def main() -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, running.end)
        async with AgentClient(settings.control, settings.control_ca, running.contacted) as client:
            return await running.run(client)

    return asyncio.new_event_loop().run_until_complete(main())
