"""`spotline agent`: what runs a job's program on an instance."""

# Many agents start on a small machine: nothing is imported that they do not need.

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from spotline.agent.settings import AgentSettings


# The metadata service is there before the network of a booting instance is.
_METADATA_S = 120.0
_METADATA_EVERY_S = 1.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(agent)


def agent(
    log_level: Annotated[
        str, typer.Option(help="debug, info, warning or error.", envvar="SPOTLINE_LOG_LEVEL")
    ] = "info",
    aws: Annotated[
        bool,
        typer.Option(
            "--aws",
            help="On an instance of EC2: it says itself where to dial (user data, tags), and joins "
            "by its identity document.",
        ),
    ] = False,
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
            settings = _of_instance() if aws else read_settings(os.environ)
            shutdown_command = read_shutdown_command(settings.environ)
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


def _of_instance() -> AgentSettings:
    """What the metadata service of this instance says; asked again for minutes, as it boots."""
    import os
    import time

    from spotline.agent.aws_instance import read_instance
    from spotline.agent.aws_metadata import DEFAULT_ENDPOINT, Metadata
    from spotline.agent.settings import read_settings
    from spotline.contracts.errors import ConfigError, ProviderUnavailable

    endpoint = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "").strip() or DEFAULT_ENDPOINT
    try:
        metadata = Metadata(endpoint)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    until_s = time.monotonic() + _METADATA_S
    while True:
        try:
            instance = read_instance(metadata)
            break
        except ProviderUnavailable:
            if time.monotonic() >= until_s:
                raise
            time.sleep(_METADATA_EVERY_S)
    return read_settings(
        instance.environment(os.environ),
        document=instance.document,
        signature=instance.signature,
    )


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
