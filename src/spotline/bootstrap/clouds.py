"""Clouds by name: to add one, write its folder and one line here."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog

from spotline.adapters.agents.identity_documents import DocumentRules
from spotline.adapters.clouds.aws.calls import ADVISED, BILLING, OBSERVING
from spotline.adapters.clouds.aws.driver import CloudTimeDriver
from spotline.adapters.clouds.aws.feeds.advice import PlacementAdvice
from spotline.adapters.clouds.aws.feeds.feed import AwsMarketFeed
from spotline.adapters.clouds.aws.feeds.offerings import market_offering
from spotline.adapters.clouds.aws.feeds.placement_scores import PlacementScores
from spotline.adapters.clouds.aws.feeds.wall import SystemWall
from spotline.adapters.clouds.aws.looking import certified, examined, reconciled
from spotline.adapters.clouds.aws.opening import biller_of, open_aws
from spotline.adapters.clouds.aws.reader import ApiReader
from spotline.adapters.clouds.aws.readings import readings_of
from spotline.adapters.clouds.aws.section import read_section as read_aws_section
from spotline.adapters.clouds.aws.settings import AwsSettings
from spotline.adapters.clouds.local import cloud as local
from spotline.adapters.clouds.local.driver import LocalCloudDriver
from spotline.adapters.clouds.local.market import machine_market
from spotline.adapters.clouds.local.settings import LocalCloudSettings
from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.adapters.clouds.simulated.driver import SimulatedCloudDriver
from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.adapters.clouds.simulated.paper import PaperCloud
from spotline.adapters.files.mistake import Mistake
from spotline.adapters.files.spotline_yaml.reading import SpotlineConfig
from spotline.application.cloud_actuator.ports import (
    CloudClock,
    CloudProvider,
    Enrolment,
    InstanceBiller,
)
from spotline.application.cloud_checks import (
    Certification,
    CertifyPlan,
    CloudCheck,
    Examination,
    ReconciledLine,
)
from spotline.application.installation import Installation
from spotline.application.market_ingest.ports import MarketFeed
from spotline.bootstrap.cloud_settings import (
    check_known,
    placed_settings,
    read_cloud_settings,
    read_section,
    without_secrets,
)
from spotline.contracts.errors import ConfigError
from spotline.domain.market.believed import PaperSettings
from spotline.domain.market.market import Market
from spotline.domain.market.market_clock import WALL_TIME, MarketClock
from spotline.domain.market.offering import Offering
from spotline.domain.modes import Mode, StatedModes, mode_named
from spotline.runtime.metrics import Reader
from spotline.runtime.service import CallPort

_log = structlog.get_logger(__name__)

SettingsT = TypeVar("SettingsT")

SIMULATED, LOCAL, AWS = "simulated", "local", "aws"
PAPER = "paper"
"""What stands in place of any cloud on paper; its settings are `SPOTLINE_CLOUD_PAPER_*`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCloud:
    """A cloud in use.

    `drive` wraps what performs the actuator's calls, for a cloud whose time is played; it has no
    `clock`: the present is the moment of the call in hand. `close` lets go of files and connections;
    instances go on running. `biller` says what instances cost in the end; None: bills stay
    estimates. `readings` are metrics that it alone can tell, by name.
    """

    provider: CloudProvider
    drive: Callable[[CallPort], CallPort]
    close: Callable[[], None]
    clock: CloudClock | None = None
    biller: InstanceBiller | None = None
    readings: Mapping[str, Reader] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudContext:
    """What a cloud is opened on.

    Parameters
    ----------
    store
        Folder for what it must keep.
    enrolment
        Makes what its instances need to join; None where nothing is run on them.
    market_s_per_s
        Market seconds in a second of wall time, for a cloud that lives in wall time.
    installation
        Whose instances it starts; None where nothing is started.
    """

    store: Path
    enrolment: Enrolment | None = None
    market_s_per_s: float = 1.0
    installation: Installation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSource:
    """What a cloud says of its own market: what is traded, who quotes it, and how its time runs."""

    offerings: tuple[Offering, ...]
    feeds: tuple[MarketFeed, ...]
    clock: MarketClock = WALL_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudPlugin(Generic[SettingsT]):
    """How a cloud is opened: with its settings, on a folder for what it must keep.

    Parameters
    ----------
    settings
        A frozen dataclass: each field is a variable `SPOTLINE_CLOUD_<NAME>_<FIELD>`, with its type,
        default and checks. A field with `repr=False` is a secret, and no log's manifest shows it.
    notice_lead_s
        Seconds of notice that it guarantees before it takes spot back: markets are told before it
        is opened. None are unless it says so.
    former_prefix
        What its variables were called by before, read for one release more.
    in_wall_time
        Whether it lives in wall time: slots must open by time alone.
    market
        Makes the market of a cloud that needs no market file, in a store: slots of that many
        seconds, 0 for its own.
    real
        Whether it sends bills: then a run is on paper unless somebody says otherwise, and nothing is
        bought in an account of it before that is promoted.
    section
        Reads its part of `spotline.yaml`, `clouds.<name>`, plain values as YAML has them; raises
        `ValueError` that names the field. None: it has none, and is set by variables alone.
    live
        Its own market where that is followed while it goes on: the folder is for what must be kept.
        None: its market is a file, or made by `market`.
    examine
        Looks at it before money is spent there (`spotline cloud doctor`).
    certify
        Opens a certification of it, on a folder for what that must keep.
    reconcile
        Holds the report of a certification against the provider's export of its bill.
    account_modes
        What its settings say that accounts ("provider/account") begin in; live only where nothing
        is paid for.
    documents
        By which documents its instances prove that they are ours; None: by none.
    """

    settings: type[SettingsT]
    open: Callable[[SettingsT, CloudContext], OpenCloud]
    notice_lead_s: Callable[[SettingsT], int] = lambda _: 0
    former_prefix: str = ""
    in_wall_time: bool = False
    market: Callable[[SettingsT, Path, int], Market] | None = None
    real: bool = False
    section: Callable[[Mapping[str, Any]], SettingsT] | None = None
    live: Callable[[SettingsT, Path], LiveSource] | None = None
    account_modes: Callable[[SettingsT], Mapping[str, Mode]] = lambda _: {}
    examine: Callable[[SettingsT, Examination], Awaitable[Sequence[CloudCheck]]] | None = None
    certify: (
        Callable[[SettingsT, CertifyPlan, Path], AbstractAsyncContextManager[Certification]] | None
    ) = None
    reconcile: Callable[[Path, Path], Sequence[ReconciledLine]] | None = None
    documents: Callable[[SettingsT], DocumentRules | None] = lambda _: None


def _open_simulated(settings: SimulatedCloudSettings, context: CloudContext) -> OpenCloud:
    cloud = SimulatedCloud(context.store / "simulated_cloud.sqlite", settings)
    return OpenCloud(
        provider=cloud,
        drive=lambda perform: SimulatedCloudDriver(cloud, perform),
        close=cloud.close,
    )


def _open_paper(settings: PaperSettings, notice_lead_s: int, context: CloudContext) -> OpenCloud:
    path = context.store / "paper_cloud.sqlite"
    cloud = PaperCloud(path, settings, notice_lead_s=notice_lead_s)
    return OpenCloud(
        provider=cloud,
        drive=lambda perform: SimulatedCloudDriver(cloud, perform),
        close=cloud.close,
    )


def _open_local(settings: LocalCloudSettings, context: CloudContext) -> OpenCloud:
    cloud = local.LocalCloud(
        local_folder(context.store),
        settings,
        enrolment=context.enrolment,
        market_s_per_s=context.market_s_per_s,
    )
    return OpenCloud(
        provider=cloud,
        drive=lambda perform: LocalCloudDriver(cloud, perform),
        close=cloud.close,
        clock=cloud.clock,
    )


def _open_aws(settings: AwsSettings, context: CloudContext) -> OpenCloud:
    cloud, reader = open_aws(context.store / "aws", settings), ApiReader(settings, BILLING)

    def close() -> None:
        reader.close()
        cloud.close()

    return OpenCloud(
        provider=cloud,
        drive=lambda perform: CloudTimeDriver(perform, settings.clock.market_s_per_s),
        close=close,
        clock=cloud.clock,
        biller=biller_of(cloud, reader, settings),
        readings=readings_of(cloud),
    )


def _aws_documents(settings: AwsSettings) -> DocumentRules | None:
    if not settings.identity_certificates:
        return None
    return DocumentRules(
        certificates=Path(settings.identity_certificates),
        accounts=tuple(account.account_id for account in settings.accounts),
        regions=settings.regions,
    )


def _local_market(settings: LocalCloudSettings, store: Path, slot_s: int) -> Market:
    stated = replace(settings, slot_s=slot_s) if slot_s else settings
    return machine_market(stated, store, socket.gethostname())


def aws_source(settings: AwsSettings, store: Path) -> LiveSource:
    """AWS's own market, by the prices that it publishes.

    Raises
    ------
    ConfigError
        There are no offerings to follow.
    """
    if not settings.offerings:
        raise ConfigError("clouds.aws.offerings: expected at least one offering, found none")
    asked = settings.placement_scores_for
    reader = ApiReader(settings, ADVISED if asked else OBSERVING)
    scores = PlacementScores(reader, store / "placement-scores.json")
    advice = PlacementAdvice(scores, asked) if asked else None
    feed = AwsMarketFeed(settings, reader, SystemWall(), advice=advice, close=reader.close)
    offerings = sorted(map(market_offering, settings.offerings), key=lambda each: each.offering_id)
    return LiveSource(offerings=tuple(offerings), feeds=(feed,), clock=settings.clock)


def local_folder(store: Path) -> Path:
    """Where the local cloud of a store keeps its instances."""
    return store / "local_cloud"


def take_back(store: Path, instance_ids: Sequence[str], *, lead_s: int = 0) -> None:
    """Take instances of a store's local cloud back, within a second, from any process.

    `lead_s` are market seconds of notice; 0: they are killed without one.
    """
    local.take_back(local_folder(store), instance_ids, lead_s=lead_s)


CLOUDS: dict[str, CloudPlugin[Any]] = {
    SIMULATED: CloudPlugin(
        settings=SimulatedCloudSettings,
        open=_open_simulated,
        notice_lead_s=lambda settings: settings.notice_lead_s,
        former_prefix="SPOTLINE_SIMULATED_",
    ),
    LOCAL: CloudPlugin(
        settings=LocalCloudSettings,
        open=_open_local,
        notice_lead_s=lambda settings: settings.guaranteed_notice_s,
        in_wall_time=True,
        market=_local_market,
    ),
    AWS: CloudPlugin(
        settings=AwsSettings,
        open=_open_aws,
        in_wall_time=True,
        live=aws_source,
        real=True,
        section=read_aws_section,
        account_modes=AwsSettings.account_modes,
        examine=examined,
        certify=certified,
        reconcile=reconciled,
        documents=_aws_documents,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCloud:
    """A cloud by its name, with the settings it is to be opened with.

    `renamed` are variables that were stated by a former name, with their names of today. With `paper`
    it is never opened: that stands in its place, on its market and with its notice.
    """

    name: str
    settings: Any
    renamed: Mapping[str, str] = field(default_factory=dict)
    paper: PaperSettings | None = None

    @property
    def notice_lead_s(self) -> int:
        """Seconds of notice that it guarantees before it takes spot back, 0 for none."""
        return CLOUDS[self.name].notice_lead_s(self.settings)

    @property
    def in_wall_time(self) -> bool:
        """Whether it lives in wall time: slots must open by time alone. Paper does not."""
        return self.paper is None and CLOUDS[self.name].in_wall_time

    @property
    def documents(self) -> DocumentRules | None:
        """By which documents its instances prove that they are ours; None: by none."""
        return CLOUDS[self.name].documents(self.settings)

    def modes(self, run: Mode) -> StatedModes:
        """The modes of a run of this mode, and of the accounts in it."""
        stated = modes_of(self.name, run.value)
        return replace(stated, named=CLOUDS[self.name].account_modes(self.settings))

    def market(self, store: Path, slot_s: int = 0) -> Market | None:
        """Its own market, which needs no file; None where there is none."""
        make = CLOUDS[self.name].market
        return None if make is None else make(self.settings, store, slot_s)

    def open(self, context: CloudContext) -> OpenCloud:
        """Open it; raises what its client raises."""
        for former, now in self.renamed.items():
            _log.warning("setting_renamed", former=former, now=now)
        if self.paper is not None:
            return _open_paper(self.paper, self.notice_lead_s, context)
        return CLOUDS[self.name].open(self.settings, context)

    def described(self) -> dict[str, Any]:
        """Say which cloud it is and how it is set, without what is secret."""
        described = {"cloud": self.name, **without_secrets(self.settings)}
        if self.paper is not None:
            described[PAPER] = asdict(self.paper)
        return described


def known_settings() -> dict[str, type[Any]]:
    """The settings of every cloud by its name, and of paper."""
    return {**{name: CLOUDS[name].settings for name in CLOUDS}, PAPER: PaperSettings}


def run_mode(name: str, stated: str = "") -> Mode:
    """The mode of a run: as it is stated, else on paper where the cloud sends bills.

    Raises
    ------
    ConfigError
        No such cloud is installed, or there is no such mode.
    """
    real = _plugin(name).real
    try:
        return mode_named(stated) if stated else Mode.OBSERVE if real else Mode.LIVE
    except ValueError as error:
        raise ConfigError(str(error)) from error


def modes_of(name: str, stated: str = "") -> StatedModes:
    """The modes of a run on a cloud; errors as `run_mode`."""
    run = run_mode(name, stated)
    return StatedModes(run=run, accounts=Mode.OBSERVE if _plugin(name).real else Mode.LIVE)


def chosen_cloud(name: str = SIMULATED, **settings: Any) -> ChosenCloud:
    """Choose a cloud, with settings by the names of their fields.

    Raises
    ------
    ConfigError
        No such cloud is installed.
    """
    return ChosenCloud(name=name, settings=_plugin(name).settings(**settings))


def cloud_of(
    environ: Mapping[str, str], name: str, mode: Mode, config: SpotlineConfig | None = None
) -> ChosenCloud:
    """Choose a cloud, with the settings of its variables; on paper with those of paper, too.

    What no variable says is as its section of a file says it, where there is one.

    Raises
    ------
    ConfigError
        No such cloud is installed, or it is acted on and nobody said where.
    WrongCloudSettings
        Variables of a cloud are unknown, missing or wrong.
    BadFile
        So is what the file says of a cloud, of this one or of another.
    """
    _plugin(name)
    check_known(environ, known_settings())
    if config is not None:
        config.check_clouds(list(known_settings()))
    read = {
        each: _settings_of(environ, each, config)
        for each in (*CLOUDS, PAPER)
        if each == name
        or (each == PAPER and mode.on_paper)
        or (config is not None and each in config.clouds)
    }
    settings, renamed = read[name]
    if CLOUDS[name].section is not None and not mode.on_paper:
        _check_stated(name, config)
    paper = read[PAPER][0] if mode.on_paper else None
    return ChosenCloud(name=name, settings=settings, renamed=renamed, paper=paper)


def _check_stated(name: str, config: SpotlineConfig | None) -> None:
    """Refuse to act on a cloud of which nobody said where."""
    if config is None:
        raise ConfigError(
            f"clouds.{name}: expected its accounts and offerings in a spotline.yaml "
            "(--config FILE, docs/configuration.md), found none"
        )
    if name not in config.clouds:
        expected = "accounts and offerings of it, as it is to be acted on"
        raise config.wrong([Mistake(field=f"clouds.{name}", expected=expected, found="nothing")])


def _settings_of(
    environ: Mapping[str, str], name: str, config: SpotlineConfig | None
) -> tuple[Any, Mapping[str, str]]:
    """The settings of a cloud, or of paper, and variables that are named by former names."""
    plugin = CLOUDS.get(name)
    kind, former = known_settings()[name], "" if plugin is None else plugin.former_prefix
    if config is None or name not in config.clouds:
        return read_cloud_settings(name, kind, environ, former_prefix=former)
    with config.reading(name):
        section = config.clouds[name]
        if plugin is None or plugin.section is None:
            stated = read_section(kind, section)
        else:
            settings = plugin.section(section)
            stated = placed_settings(settings, config.path.absolute().parent)
        return read_cloud_settings(name, kind, environ, former_prefix=former, stated=stated)


def follows_market(name: str) -> bool:
    """Whether a cloud's own market is followed while it goes on; `ConfigError` where there is none."""
    return _plugin(name).live is not None


def examined_cloud(name: str) -> CloudPlugin[Any]:
    """A cloud that can be examined and certified.

    Raises
    ------
    ConfigError
        It cannot, or is not installed.
    """
    plugin = _plugin(name)
    if plugin.examine is None or plugin.certify is None or plugin.reconcile is None:
        able = ", ".join(sorted(each for each in CLOUDS if CLOUDS[each].examine is not None))
        raise ConfigError(f"CLOUD: expected one that costs money ({able}), found {name!r}")
    return plugin


def _plugin(name: str) -> CloudPlugin[Any]:
    plugin = CLOUDS.get(name)
    if plugin is None:
        raise ConfigError(f"cloud must be one of {', '.join(sorted(CLOUDS))}, was {name!r}")
    return plugin
