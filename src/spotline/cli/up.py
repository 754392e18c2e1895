"""`spotline up`: every service in one process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from spotline.cli.callers import (
    DEFAULTS,
    MostAllocations,
    MostCalls,
    MostCallsATenant,
    MostOpenJobs,
    MostStreams,
    MostStreamsATenant,
    callers_of,
)
from spotline.cli.configuring import ConfigFile, config_of, in_words_of
from spotline.cli.doubts import ListPrices, PriceSanity, StaleAfter, judged
from spotline.cli.identities import AskIdentity, IdentityHosts, Issuers, Mtls, asked_identity
from spotline.cli.modes_view import paper_line
from spotline.cli.notify import notified
from spotline.cli.ports import check_ports
from spotline.cli.priors import Priors, WarmStart
from spotline.cli.sharing import Fairness, Probes, TenantShares, shared
from spotline.cli.stores import StoreOption, store_folder
from spotline.cli.tables import fact_lines, print_line
from spotline.cli.up_market import AskedPace, market_of, with_reserved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spotline.adapters.files.spotline_yaml.reading import SpotlineConfig
    from spotline.application.cloud_actuator.agreeing import AgreementRules
    from spotline.application.notify.target import NotifyTarget
    from spotline.application.selector.options import SelectorOptions
    from spotline.bootstrap.clouds import ChosenCloud
    from spotline.bootstrap.system import SystemOptions
    from spotline.domain.ledger.caps import Caps
    from spotline.domain.market.grid import AnyMarket
    from spotline.domain.modes import Mode


LOG_FILE = "up.log"
_ADDRESS_OF_JOBS = "gRPC"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(up)


def up(
    context: typer.Context,
    config: ConfigFile = None,
    market: Annotated[
        Path | None,
        typer.Option(
            help="Market file to replay (docs/market-format.md); a cloud may have one of its own."
        ),
    ] = None,
    reservations: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Capacity that is paid for already (docs/market-format.md)."
        ),
    ] = None,
    store: StoreOption = None,
    address: Annotated[
        str,
        typer.Option(
            help="Where the allocator's gRPC listens.", envvar="SPOTLINE_ALLOCATOR_ADDRESS"
        ),
    ] = "127.0.0.1:7070",
    agents_address: Annotated[
        str,
        typer.Option(
            help="Where the agents of running programs dial in, over TLS.",
            envvar="SPOTLINE_AGENTS_ADDRESS",
        ),
    ] = "127.0.0.1:7443",
    advertise: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where instances reach that port; by default the address itself.",
            envvar="SPOTLINE_AGENTS_ADVERTISE",
        ),
    ] = "",
    configurator_address: Annotated[
        str,
        typer.Option(
            help="Where the configurator's gRPC listens.",
            envvar="SPOTLINE_CONFIGURATOR_ADDRESS",
        ),
    ] = "127.0.0.1:7071",
    knowledge: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Measured runs, from `spotline knowledge import`."),
    ] = None,
    knowledge_stack: Annotated[
        str,
        typer.Option(help="Software stack to assume; by default `live`, or that of most runs."),
    ] = "",
    placer_address: Annotated[
        str,
        typer.Option(help="Where the placer's gRPC listens.", envvar="SPOTLINE_PLACER_ADDRESS"),
    ] = "127.0.0.1:7072",
    geography: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Regions and links to place pipelines on (docs/geography-format.md).",
        ),
    ] = None,
    placement_method: Annotated[
        str, typer.Option(help="How pipelines are placed, such as spotline or bace_pipe.")
    ] = "spotline",
    placement_cost: Annotated[
        str, typer.Option(help="What a GPU of a placement costs: energy or rent.")
    ] = "energy",
    analytics_address: Annotated[
        str,
        typer.Option(
            help="Where the analytics' gRPC listens.", envvar="SPOTLINE_ANALYTICS_ADDRESS"
        ),
    ] = "127.0.0.1:7073",
    http_address: Annotated[
        str,
        typer.Option(
            help="Where jobs and market are served as JSON over HTTP (docs/http.md); empty: nowhere.",
            envvar="SPOTLINE_HTTP_ADDRESS",
        ),
    ] = "127.0.0.1:7080",
    http_hosts: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            help="Names by which callers may speak of it beside localhost and 127.0.0.1.",
            envvar="SPOTLINE_HTTP_HOSTS",
        ),
    ] = "",
    cloud: Annotated[
        str,
        typer.Option(
            help="Cloud to act on; its settings are SPOTLINE_CLOUD_<NAME>_*, or in --config.",
            envvar="SPOTLINE_CLOUD",
        ),
    ] = "simulated",
    mode: Annotated[
        str,
        typer.Option(
            metavar="observe|shadow|live",
            help="On paper, or acting on the cloud (docs/modes.md); by default live, and observe "
            "where the cloud sends bills.",
            envvar="SPOTLINE_MODE",
        ),
    ] = "",
    nats_url: Annotated[
        str, typer.Option(envvar="SPOTLINE_NATS_URL", help="An external NATS; embedded by default.")
    ] = "",
    slots_per_s: Annotated[
        float, typer.Option(min=0.0, help="Replay speed; 0 is as fast as slots are decided.")
    ] = 0.0,
    wall_clock: Annotated[
        bool,
        typer.Option(help="Open slots by wall time, the market moved to begin at the first start."),
    ] = False,
    speed: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Market seconds in a second of wall time: slots then open by time alone; 0: not "
            "stated.",
        ),
    ] = 0.0,
    wait_for_work: Annotated[
        bool, typer.Option(help="Stop market time while no job and no pipeline is under way.")
    ] = False,
    slot: Annotated[
        int, typer.Option(min=0, help="Slot length, seconds; 0: the market's own.")
    ] = 0,
    price_sanity: PriceSanity = True,
    list_price: ListPrices = None,
    stale_after: StaleAfter = 0,
    health_port: Annotated[int, typer.Option(min=0, help="Port of /healthz; 0 is any.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the addresses as one line of JSON.")
    ] = False,
    quote_margin: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=100.0,
            envvar="SPOTLINE_QUOTE_MARGIN",
            help="A job that states no value may cost (1 + this) x its on-demand quote.",
        ),
    ] = 0.5,
    reap: Annotated[
        str,
        typer.Option(
            envvar="SPOTLINE_REAP",
            help="What is done about instances that belong to no job: report or reap.",
        ),
    ] = "report",
    reap_accounts: Annotated[
        str,
        typer.Option(
            metavar="PROVIDER/ACCOUNT,...",
            envvar="SPOTLINE_REAP_ACCOUNTS",
            help="Where such instances may be ended; * for everywhere, empty: nowhere.",
        ),
    ] = "",
    compare_every: Annotated[
        int,
        typer.Option(
            metavar="SLOTS",
            min=1,
            envvar="SPOTLINE_COMPARE_EVERY_SLOTS",
            help="Compare log, ledger and cloud so often, and at the start.",
        ),
    ] = 6,
    limits: Annotated[
        bool,
        typer.Option(
            envvar="SPOTLINE_LIMITS",
            help="Judge every job by what it still costs against what it still gains.",
        ),
    ] = True,
    limits_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The most that may be spent in an hour, a day, a month (docs/operating.md).",
        ),
    ] = None,
    most_calls: MostCalls = DEFAULTS.most_calls,
    most_calls_a_tenant: MostCallsATenant = DEFAULTS.most_calls_a_tenant,
    most_streams: MostStreams = DEFAULTS.most_streams,
    most_streams_a_tenant: MostStreamsATenant = DEFAULTS.most_streams_a_tenant,
    most_allocations: MostAllocations = DEFAULTS.most_allocations,
    most_open_jobs: MostOpenJobs = DEFAULTS.most_open_jobs_a_tenant,
    warm_start: WarmStart = None,
    priors: Priors = True,
    fairness: Fairness = 1.0,
    tenant_shares: TenantShares = "",
    probes: Probes = 0,
    identity: AskIdentity = True,
    identity_hosts: IdentityHosts = "",
    issuers: Issuers = None,
    mtls: Mtls = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="What services say, here and not in up.log of the store."
        ),
    ] = False,
) -> None:
    """Run broker and all services until Ctrl-C; a store is continued where it stopped.

    Says in a line when it is ready, when its market ends and when all jobs are over.
    """
    from spotline.adapters.files.weights_file import weights_or_priors
    from spotline.application.placer.options import PlacerOptions
    from spotline.bootstrap.system import SystemOptions
    from spotline.cli.failures import explained
    from spotline.runtime.log import configure_logging

    with explained(), in_words_of(context):
        configure_logging(log_level)
        stated = config_of(context)
        weights = weights_or_priors(warm_start, priors=priors)
        selection, caps = _limited(weights, limits_file, stated, limits=limits)
        store, (run, chosen) = store_folder(store), _chosen(cloud, mode, stated)
        asked = AskedPace(speed=speed, slots_per_s=slots_per_s, wall_clock=wall_clock)
        runs = market_of(market, chosen, store, stated, asked, slot_s=slot)
        paced = runs.pace.ingest(runs.market.slot_s, wait_for_work=wait_for_work)
        options = SystemOptions(
            market=with_reserved(runs.market, reservations, stated),
            store=store,
            cloud=chosen,
            mode=run,
            nats_url=nats_url,
            allocator_address=address,
            agents_address=agents_address,
            advertise=advertise,
            configurator_address=configurator_address,
            knowledge=knowledge,
            knowledge_stack=knowledge_stack,
            placer_address=placer_address,
            geography=geography,
            analytics_address=analytics_address,
            http_address=http_address,
            http_hosts=_listed(http_hosts),
            quote_margin=quote_margin,
            placer=PlacerOptions(method=placement_method, cost=placement_cost),
            selector=_deciding_on(
                runs.market, shared(selection, fairness, tenant_shares), probes=probes
            ),
            priors=priors,
            caps=caps,
            ingest=judged(paced, runs.market, (price_sanity, list_price, stale_after)),
            market_s_per_s=runs.pace.market_s_per_s,
            feeds=runs.feeds,
            agreement=_agreement(reap, reap_accounts, compare_every),
            callers=callers_of(
                (most_calls, most_calls_a_tenant),
                (most_streams, most_streams_a_tenant),
                (most_allocations, most_open_jobs),
            ),
            identity=asked_identity(store, identity_hosts, issuers, asked=identity, mtls=mtls),
        )
        _prepare(options, health_port)
        if not verbose:
            configure_logging(log_level, file=store / LOG_FILE)
    said = _Said(as_json=as_json, verbose=verbose, store=store, mode=run)
    _serve(options, cloud, said, port=health_port, notify=notified(stated))


def _prepare(options: SystemOptions, health_port: int) -> None:
    """Refuse what could not be served, before anything is begun; then make the store."""
    from spotline.bootstrap.up import check_inputs

    check_ports(_ports_of(options, health_port))
    check_inputs(options)
    options.store.mkdir(parents=True, exist_ok=True)


def _limited(
    weights: str,
    limits_file: Path | None,
    config: SpotlineConfig | None,
    *,
    limits: bool,
) -> tuple[SelectorOptions, Caps]:
    """How jobs are selected and what may be spent on them: selector and actuator with one text."""
    from spotline.adapters.files.limits_file import read_limits
    from spotline.application.selector.options import SelectorOptions, for_crowds
    from spotline.domain.ledger.caps import Caps
    from spotline.domain.limits.spending import Spending

    if not limits:
        spending = Spending()
    elif limits_file is None and config is not None and config.spending is not None:
        spending = config.spending
    else:
        spending = read_limits(limits_file)
    selection = SelectorOptions(
        warm_start=weights, limits=limits, spending=spending.to_json(), even_cells=True
    )
    return for_crowds(selection), Caps(spending=spending)


def _deciding_on(
    market: AnyMarket, selection: SelectorOptions, *, probes: int = 0
) -> SelectorOptions:
    """Of a live market nobody publishes what spot there is: it is believed, and no deadline counts on it."""
    from spotline.application.selector.options import where_uncounted
    from spotline.domain.market.live_market import LiveMarket

    if not isinstance(market, LiveMarket):
        return selection
    return replace(where_uncounted(selection), probes=probes)


def _chosen(cloud: str, mode: str, config: SpotlineConfig | None) -> tuple[Mode, ChosenCloud]:
    """The mode of the run, and the cloud of this name as environment and file set it."""
    import os

    from spotline.bootstrap.clouds import cloud_of, run_mode

    run = run_mode(cloud, mode)
    return run, cloud_of(os.environ, cloud, run, config)


def _listed(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _agreement(reap: str, accounts: str, every_slots: int) -> AgreementRules:
    from spotline.application.cloud_actuator.agreeing import AgreementRules
    from spotline.contracts.errors import ConfigError
    from spotline.domain.ledger.orphans import ReapMode, ReapRules, accounts_of

    modes = [mode.value for mode in ReapMode]
    if reap not in modes:
        raise ConfigError(f"--reap must be one of {', '.join(modes)}, was {reap!r}")
    return AgreementRules(
        every_slots=every_slots,
        reap=ReapRules(mode=ReapMode(reap), accounts=accounts_of(accounts)),
    )


def _ports_of(options: SystemOptions, health_port: int) -> dict[str, str]:
    """Where it is to listen, by the option that says so."""
    ports = {
        "--address": options.allocator_address,
        "--agents-address": options.agents_address,
        "--configurator-address": options.configurator_address,
        "--placer-address": options.placer_address,
        "--analytics-address": options.analytics_address,
        "--http-address": options.http_address,
        "--health-port": f"127.0.0.1:{health_port}",
    }
    return {option: address for option, address in ports.items() if address}


@dataclass(slots=True, kw_only=True)
class _Said:
    """What is said once everything answers: `served` tells whether that ever was."""

    as_json: bool
    verbose: bool
    store: Path
    mode: Mode
    served: bool = False

    def told(self, addresses: Mapping[str, str]) -> None:
        """Say where everything is."""
        import json

        self.served = True
        if self.as_json:
            typer.echo(json.dumps({**addresses, "mode": self.mode.value}))
            return
        log = "" if self.verbose else f", services write to {self.store / LOG_FILE}"
        if self.mode.on_paper:
            print_line(paper_line(self.mode), err=True, style="yellow")
        print_line(f"ready: {_ADDRESS_OF_JOBS} {addresses[_ADDRESS_OF_JOBS]}{log}", err=True)
        rest = [(name, place) for name, place in addresses.items() if name != _ADDRESS_OF_JOBS]
        for line in fact_lines(rest, None):
            print_line(f"  {line}", err=True)

    def note(self, line: str) -> None:
        """Say what has happened."""
        print_line(line, err=True)


def _serve(
    options: SystemOptions,
    cloud: str,
    said: _Said,
    *,
    port: int,
    notify: Sequence[NotifyTarget],
) -> NoReturn:
    """Serve until a signal, then say what goes on costing, and end the command."""
    import asyncio

    from spotline.bootstrap.planners import compile_planners, planners_compiled
    from spotline.bootstrap.process import run_to_exit_code
    from spotline.bootstrap.running_process import RunningProcess
    from spotline.bootstrap.standing_costs import note_cloud, standing_costs
    from spotline.bootstrap.up import run_up
    from spotline.cli.down import say_standing
    from spotline.cli.failures import explained
    from spotline.cli.up_notes import UpNotes
    from spotline.runtime.collecting import collect_rarely

    notes = UpNotes(said.note)

    def told(addresses: Mapping[str, str]) -> None:
        said.told(addresses)
        notes.begin()

    if not planners_compiled():
        typer.echo("compiling the planners: once per release, about a minute", err=True)
        compile_planners()
    store, this = options.store, RunningProcess.this()
    with explained():
        note_cloud(store, cloud, options.mode)
        this.claim(store)
    collect_rarely()
    try:
        code = run_to_exit_code(
            run_up(options, health_port=port, told=told, applied=notes.on_applied, notify=notify)
        )
    finally:
        this.erase(store)
    if said.served:
        # Where nothing was served there may be no ledger, or it is another's to speak of.
        with explained():
            say_standing(asyncio.run(standing_costs(store)), store)
    raise typer.Exit(code)
