"""`spotline cloud`: examine a cloud before money is spent there, and certify it."""

# What the commands use is imported inside: it costs more than `--help` should.

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotline.cli.calls import EXIT_BAD_INPUT, AsJson, fail
from spotline.cli.configuring import ConfigFile, config_of
from spotline.cli.failures import explained, writable
from spotline.cli.jobs_view import print_json
from spotline.cli.tables import Column, Kind, print_line, print_table

if TYPE_CHECKING:
    from spotline.application.cloud_checks import (
        Certification,
        CloudCheck,
        Examination,
        ReconciledLine,
    )
    from spotline.bootstrap.clouds import CloudPlugin

cloud_app = typer.Typer(
    name="cloud",
    help="Examine a cloud before money is spent there, and certify it.",
    no_args_is_help=True,
)

_Cloud = Annotated[str, typer.Argument(metavar="CLOUD", help="Its name, such as aws.")]
_Installation = Annotated[
    str,
    typer.Option(
        metavar="ID", help="Whose tag what is launched carries: spotline store check shows it."
    ),
]
_HOST = "127.0.0.1"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(cloud_app, name="cloud")


@cloud_app.callback()
def root() -> None:
    """Examine a cloud before money is spent there, and certify it."""


@cloud_app.command()
def doctor(
    context: typer.Context,
    cloud: _Cloud,
    config: ConfigFile = None,
    wanted: Annotated[
        int, typer.Option(min=1, help="Instances of each type that quotas are to have room for.")
    ] = 1,
    image_gb: Annotated[
        float, typer.Option(min=0.0, help="Gigabytes that each launch pulls.")
    ] = 20.0,
    test_message: Annotated[
        bool, typer.Option("--test-message", help="Send an event through each queue's rule.")
    ] = False,
    scores: Annotated[
        bool, typer.Option("--scores", help="Ask for placement scores; few may be asked a day.")
    ] = False,
    launch: Annotated[
        bool,
        typer.Option("--launch", help="Launch an instance that calls back, and end it: it costs."),
    ] = False,
    call_back: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where instances reach this machine.")
    ] = "",
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where this machine listens for that.")
    ] = f"{_HOST}:0",
    wait_s: Annotated[float, typer.Option(min=1.0, help="How long that is waited for.")] = 300.0,
    installation: _Installation = "",
    as_json: AsJson = False,
) -> None:
    """Look at everything that stands between us and instances; nothing is bought without --launch.

    Exits with 0 if nothing failed, 1 if something did.
    """
    import asyncio
    import secrets

    with explained(as_json=as_json):
        from spotline.application.cloud_checks import CallBack, Examination, checks_exit_code
        from spotline.bootstrap.clouds import examined_cloud

        _quiet()
        plugin = examined_cloud(cloud)
        settings = _settings(context, cloud)
        host, port = _address(listen)
        plan = Examination(
            token=secrets.token_hex(8),
            installation_id=installation,
            wanted=wanted,
            image_gb=image_gb,
            test_message=test_message,
            scores=_scores_file() if scores else None,
            call_back=CallBack(advertised=call_back, host=host, port=port, wait_s=wait_s)
            if launch
            else None,
        )
        checks = asyncio.run(_examined(plugin, settings, plan))
        code = checks_exit_code(checks)
    if as_json:
        print_json(
            {
                "cloud": cloud,
                "exit_code": code,
                "checks": [check.as_json() for check in checks],
            }
        )
    else:
        _print_checks(checks)
    raise typer.Exit(code)


@cloud_app.command()
def certify(
    context: typer.Context,
    cloud: _Cloud,
    config: ConfigFile = None,
    max_usd: Annotated[
        float | None, typer.Option(metavar="USD", min=0.0, help="What it may cost, at most.")
    ] = None,
    offering: Annotated[
        str, typer.Option(metavar="ID", help="Which is tried; the cheapest by default.")
    ] = "",
    instance_type: Annotated[
        str, typer.Option(metavar="TYPE", help="A cheaper type in its place, same template.")
    ] = "",
    lease: Annotated[
        int, typer.Option(metavar="SECONDS", min=60, help="After which everything is ended.")
    ] = 1800,
    interruption_role: Annotated[
        str, typer.Option(metavar="ARN", help="By which FIS interrupts one instance.")
    ] = "",
    installation: _Installation = "",
    report: Annotated[
        Path, typer.Option(metavar="FILE", help="The report, as JSON; as text beside it, .md.")
    ] = Path("certify-report.json"),
    reconcile: Annotated[
        Path | None,
        typer.Option(
            metavar="EXPORT", help="Buy nothing: compare the report with this bill (CUR, FOCUS)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Launch, lose an answer, interrupt and end on a cheap type; everything is ended at the end.

    Exits with 0 if nothing failed, 1 if something did, or a line of the bill is another than counted.
    """
    with explained(as_json=as_json):
        from spotline.bootstrap.clouds import examined_cloud

        _quiet()
        plugin = examined_cloud(cloud)
        if reconcile is not None:
            assert plugin.reconcile is not None  # noqa: S101 - for the type checker
            lines = plugin.reconcile(report, reconcile)
    if reconcile is not None:
        _print_lines(lines, as_json=as_json)
        raise typer.Exit(0 if all(line.agrees for line in lines) else 1)
    if max_usd is None:
        fail(EXIT_BAD_INPUT, "--max-usd: expected what it may cost, found nothing", as_json=as_json)
    with explained(as_json=as_json):
        from spotline.application.cloud_checks import CertifyPlan
        from spotline.domain.units import micro_usd_from_usd

        settings = _settings(context, cloud)
        plan = CertifyPlan(
            token=_token(),
            most_micro_usd=micro_usd_from_usd(max_usd),
            offering_id=offering,
            instance_type=instance_type,
            installation_id=installation,
            lease_s=lease,
            interruption_role=interruption_role,
        )
        was_there = report.exists()
        with writable(report):
            report.touch()
        try:
            checks = _certified(plugin, settings, plan, report, as_json=as_json)
        finally:
            if not was_there and not report.stat().st_size:
                # Nothing was begun: there is nothing to report.
                report.unlink()
    raise typer.Exit(_exit_code(checks))


def _certified(
    plugin: CloudPlugin[Any], settings: Any, plan: Any, report: Path, *, as_json: bool
) -> Sequence[CloudCheck]:
    """Certify, and write what was seen, also where it was cut off."""
    import asyncio
    import json
    from tempfile import TemporaryDirectory

    from spotline.application.cloud_checks import TooDear

    found: list[Certification] = []

    async def run(folder: Path) -> None:
        assert plugin.certify is not None  # noqa: S101 - for the type checker
        async with plugin.certify(settings, plan, folder) as certification:
            found.append(certification)
            await certification.run()

    begun = True
    try:
        with TemporaryDirectory() as folder:
            asyncio.run(run(Path(folder)))
    except TooDear:
        begun = False
        raise
    finally:
        if found and begun:
            record = found[0].record()
            said = json.dumps(record.as_json(), indent=2)
            report.write_text(said + "\n", "utf-8")
            report.with_suffix(".md").write_text(record.as_markdown(), "utf-8")
    if as_json:
        print_json(record.as_json())
    else:
        _print_checks(record.checks)
        print_line(f"report: {report}, {report.with_suffix('.md')}")
    return record.checks


async def _examined(
    plugin: CloudPlugin[Any], settings: Any, plan: Examination
) -> Sequence[CloudCheck]:
    assert plugin.examine is not None  # noqa: S101 - for the type checker
    return await plugin.examine(settings, plan)


def _settings(context: typer.Context, cloud: str) -> Any:
    """The settings of a cloud, as the file and the environment say them."""
    from spotline.bootstrap.clouds import cloud_of
    from spotline.contracts.errors import ConfigError
    from spotline.domain.modes import Mode

    config = config_of(context)
    if config is None or cloud not in config.clouds:
        raise ConfigError(
            f"clouds.{cloud}: expected its accounts and offerings in a spotline.yaml "
            "(--config FILE, docs/configuration.md), found none"
        )
    return cloud_of(os.environ, cloud, Mode.LIVE, config).settings


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        from spotline.contracts.errors import ConfigError

        raise ConfigError(f"--listen: expected HOST:PORT, found {text!r}")
    return host, int(port)


def _token() -> str:
    import secrets

    return secrets.token_hex(4)


def _scores_file() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("spotline") / "aws-placement-scores.json"


def _exit_code(checks: Sequence[CloudCheck]) -> int:
    from spotline.application.cloud_checks import checks_exit_code

    return checks_exit_code(checks)


def _print_checks(checks: Sequence[CloudCheck]) -> None:
    print_table(
        (
            Column("check", Kind.WORD),
            Column("where", Kind.ID, rank=2),
            Column("outcome", Kind.WORD),
            Column("what was found", Kind.SENTENCE, rank=1),
        ),
        [
            (check.name, check.where, check.outcome.value.upper(), check.detail)
            if check.outcome.value in ("failed", "warning")
            else (check.name, check.where, check.outcome.value, check.detail)
            for check in checks
        ],
    )
    steps = [check for check in checks if check.next_step]
    if steps:
        print_line()
        print_line("to do next:")
    for check in steps:
        print_line(f"- {check.name}, {check.where}: {check.next_step}")


def _print_lines(lines: Sequence[ReconciledLine], *, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        print_json([asdict(line) for line in lines])
        return
    print_table(
        (
            Column("instance", Kind.ID),
            Column("bought", Kind.WORD, rank=3),
            Column("ours, USD", Kind.NUMBER),
            Column("billed, USD", Kind.NUMBER),
            Column("beside, USD", Kind.NUMBER, rank=2),
            Column("verdict", Kind.SENTENCE, rank=1),
        ),
        [
            (
                line.instance_id,
                line.capacity_type,
                _usd(line.ours_micro_usd),
                _usd(line.billed_micro_usd),
                _usd(line.beside_micro_usd),
                line.verdict,
            )
            for line in lines
        ],
    )


def _usd(micro_usd: int | None) -> str:
    return "-" if micro_usd is None else f"{micro_usd / 1e6:.6f}"


def _quiet() -> None:
    """Leave the words of what is used here to those who ask for them."""
    from spotline.runtime.log import configure_logging

    configure_logging("critical")
