"""Settings of market_ingest, read once at start."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from pydantic import Field, ValidationInfo, field_validator, model_validator

from spotline.adapters.files.reservations_file import add_reservations
from spotline.adapters.market.parquet import read_market
from spotline.application.market_ingest.handler import NO_WAITING_BY_TIME, IngestOptions
from spotline.bootstrap.clouds import ChosenCloud, cloud_of, modes_of, run_mode
from spotline.bootstrap.live import FollowedMarket, followed_market
from spotline.bootstrap.pace import MarketPace
from spotline.bootstrap.stated_config import stated_config
from spotline.contracts.errors import ConfigError
from spotline.domain.market.grid import AnyMarket
from spotline.domain.market.market import Market
from spotline.domain.market.market_clock import MarketClock
from spotline.domain.market.notice import sold_by
from spotline.domain.market.offering import ASSUMED_NOTICE_LEAD_S
from spotline.domain.market.overrides import NO_OVERRIDES
from spotline.domain.modes import StatedModes
from spotline.domain.units import micro_usd_from_usd
from spotline.runtime.settings import ServiceSettings


class MarketIngestSettings(ServiceSettings):
    """`SPOTLINE_*` of market_ingest.

    `market` is a market file (docs/market-format.md); without one the live market of `cloud` is
    followed, which keeps what it needs in `store`. Slots have `slot_s` seconds, 0: the market's own.
    `slots_per_s` 0 replays as fast as slots are decided; `wall_clock` opens a slot every slot
    length, and shifts the market to begin now, or where the log's began.
    With `wait_for_work` market time stands still while no job and no pipeline is under way, so
    nobody finds a market that is over; not together with `wall_clock`.
    `reservations` is a file of capacity that is paid for already (docs/market-format.md; empty:
    none). `geography` is a file of regions and links (docs/geography-format.md; empty: none).
    `notice_lead_s` is the notice, in seconds, that the actuator's cloud gives of taking spot back;
    no offering of the market is said to give more.
    `cloud` and `mode` are those of the actuator: how far decisions reach is said as the market opens.
    `price_sanity`, `list_prices` (JSON: USD per instance-hour by offering id) and `stale_after_s`
    (seconds of market time; 0: by the pace of the quotes, -1: never) say which quotes no new spot
    is bought by (docs/operating.md).
    """

    market: Path | None = None
    slot_s: int = Field(default=0, ge=0)
    store: Path = Path("spotline-store")
    slots_per_s: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    wall_clock: bool = False
    wait_for_work: bool = False
    reservations: str = ""
    geography: str = ""
    notice_lead_s: int = Field(default=ASSUMED_NOTICE_LEAD_S, ge=0)
    cloud: str = "simulated"
    mode: str = ""
    price_sanity: bool = True
    list_prices: dict[str, float] = Field(default_factory=dict)
    stale_after_s: int = Field(default=0, ge=-1)

    @field_validator("wait_for_work")
    @classmethod
    def _not_by_wall_clock(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("wall_clock"):
            raise ValueError(NO_WAITING_BY_TIME)
        return value

    @model_validator(mode="after")
    def _known_mode(self) -> MarketIngestSettings:
        try:
            self.modes()
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self

    def chosen_cloud(self) -> ChosenCloud:
        """The cloud whose accounts are spoken of; errors as `cloud_of`."""
        run = run_mode(self.cloud, self.mode)
        return cloud_of(os.environ, self.cloud, run, stated_config(os.environ))

    def modes(self) -> StatedModes:
        """The mode of the run, and what accounts begin in."""
        config = stated_config(os.environ)
        if config is None or self.cloud not in config.clouds:
            return modes_of(self.cloud, self.mode)
        return self.chosen_cloud().modes(run_mode(self.cloud, self.mode))

    def recorded(self) -> Market | None:
        """The market of the file, None where none is stated; `ContractError` where it is bad."""
        if self.market is None:
            return None
        market = read_market(self.market)
        if self.slot_s:
            market = market.resampled(self.slot_s)
        return sold_by(market, self.notice_lead_s)

    def followed(self) -> FollowedMarket:
        """The live market of the cloud, at the prices that this buyer pays.

        Raises
        ------
        ConfigError
            The cloud has none.
        """
        config = stated_config(os.environ)
        overrides = NO_OVERRIDES if config is None else config.price_overrides()
        followed = followed_market(
            self.chosen_cloud(), self.store, slot_s=self.slot_s, overrides=overrides
        )
        if followed is None:
            raise ConfigError(
                f"SPOTLINE_MARKET: expected a market file, as cloud {self.cloud} follows no market "
                "of its own, found none"
            )
        return followed

    def with_reservations(self, market: AnyMarket) -> AnyMarket:
        """The market with what is paid for already, by a file of its own or by SPOTLINE_CONFIG.

        Raises
        ------
        BadFile
            The file is unreadable, or says of the market what is not so.
        """
        config = stated_config(os.environ)
        if self.reservations_file is None and config is not None:
            return config.reserved(market)
        return add_reservations(market, self.reservations_file)

    @property
    def reservations_file(self) -> Path | None:
        """The file of reservations, None for none."""
        return Path(self.reservations) if self.reservations else None

    @property
    def geography_file(self) -> Path | None:
        """The file of regions and links, None for none."""
        return Path(self.geography) if self.geography else None

    def _pace(self, clock: MarketClock | None) -> MarketPace:
        if clock is not None:
            return MarketPace(by_time=True, market_s_per_s=clock.market_s_per_s, wall_clock=True)
        return MarketPace(
            by_time=self.wall_clock, slots_per_s=self.slots_per_s, wall_clock=self.wall_clock
        )

    def ingest(self, slot_s: int, clock: MarketClock | None = None) -> IngestOptions:
        """How the market's clock runs: a live market's by the clock of its feeds."""
        paced = self._pace(clock).ingest(slot_s, wait_for_work=self.wait_for_work)
        return replace(
            paced,
            price_sanity=self.price_sanity,
            list_prices_micro_usd={
                offering_id: micro_usd_from_usd(usd)
                for offering_id, usd in self.list_prices.items()
            },
            stale_after_s=None if self.stale_after_s < 0 else self.stale_after_s,
        )
