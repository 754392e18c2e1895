"""Settings of the actuator, read once at start."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from spotline.adapters.ledger.opening import ledger_url
from spotline.application.cloud_actuator.agreeing import AgreementRules
from spotline.bootstrap.agents import AgentsAt
from spotline.bootstrap.cloud_settings import SettingProblem, WrongCloudSettings, variables_of
from spotline.bootstrap.clouds import ChosenCloud, cloud_of, known_settings, run_mode
from spotline.bootstrap.stated_config import stated_config
from spotline.contracts.errors import ConfigError
from spotline.domain.ledger.caps import Caps
from spotline.domain.ledger.orphans import ReapMode, ReapRules, accounts_of
from spotline.domain.limits.spending import DEFAULT_SPENDING, spending_of
from spotline.domain.modes import Mode
from spotline.domain.units import micro_usd_from_usd
from spotline.runtime.settings import PREFIX, ServiceSettings


class CloudActuatorSettings(ServiceSettings):
    """`SPOTLINE_*` of the actuator.

    `cloud` is a name of `bootstrap/clouds.py`; that cloud's own settings are
    `SPOTLINE_CLOUD_<NAME>_*`. `mode` is observe, shadow or live, the same as market_ingest's (empty:
    live, and observe where the cloud sends bills). `ledger_url` empty means a SQLite file in `store`. Caps left out do
    not bind; `spending` are limits as the selector has them, the text of `Spending.to_json`. Instances dial the allocator's port of agents as `agents_advertise`, or else
    `agents_address`; with neither they are started without user data.
    Log, ledger and cloud are compared at the start and every `compare_every_slots`. Instances that
    belong to no job are told (`reap` is `report`) or ended (`reap`): in `reap_accounts`
    ("provider/account", separated by commas, * for all), after `reap_grace_s` of market time, at
    most `reap_at_most` in a comparison.
    `market_s_per_s` are market seconds in a second of wall time, for clouds that live in it.
    """

    cloud: str = "simulated"
    mode: str = ""
    store: Path = Path("spotline-store")
    ledger_url: str = Field(default="", repr=False)  # it may hold a password
    owner: str = Field(default="default", min_length=1, max_length=200)
    cap_usd_per_job: Decimal | None = Field(default=None, ge=0)
    cap_usd_per_hour: Decimal | None = Field(default=None, ge=0)
    cap_launches_per_minute: int | None = Field(default=None, ge=0)
    spending: str = DEFAULT_SPENDING.to_json()
    agents_address: str = ""
    agents_advertise: str = ""
    agents_folder: Path = Path("spotline-store/agents")
    compare_every_slots: int = Field(default=6, ge=1)
    reap: ReapMode = ReapMode.REPORT
    reap_accounts: str = ""
    reap_grace_s: int = Field(default=1800, ge=0)
    reap_at_most: int = Field(default=2, ge=1)
    market_s_per_s: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    _chosen: ChosenCloud = PrivateAttr()
    _run_mode: Mode = PrivateAttr()

    @field_validator("spending")
    @classmethod
    def _check_spending(cls, stated: str) -> str:
        spending_of(stated)
        return stated

    @model_validator(mode="after")
    def _choose(self) -> CloudActuatorSettings:
        """Read the settings of the chosen cloud: what is wrong is told with all else."""
        try:
            self._run_mode = run_mode(self.cloud, self.mode)
            config = stated_config(os.environ)
            self._chosen = cloud_of(os.environ, self.cloud, self._run_mode, config)
        except WrongCloudSettings as error:
            raise _wrong(error.problems) from error
        except ConfigError as error:
            problem = SettingProblem(variable=f"{PREFIX}CLOUD", problem=str(error))
            raise _wrong((problem,)) from error
        return self

    @property
    def run_mode(self) -> Mode:
        """The mode of the run."""
        return self._run_mode

    @property
    def chosen_cloud(self) -> ChosenCloud:
        """The cloud to act on."""
        return self._chosen

    @classmethod
    def variables(cls) -> set[str]:
        """The names of all variables that are read, those of the clouds among them."""
        names = super().variables()
        for name, settings in known_settings().items():
            names.update(variables_of(name, settings).values())
        return names

    def agents(self) -> AgentsAt | None:
        """Where agents dial in, None for nowhere; `ConfigError` where that cannot be."""
        address = self.agents_address or self.agents_advertise
        if not address:
            return None
        return AgentsAt(address=address, folder=self.agents_folder, advertise=self.agents_advertise)

    def ledger(self) -> str:
        """The URL of the ledger."""
        return self.ledger_url or ledger_url(self.store / "ledger.sqlite")

    def lease_s(self) -> int | None:
        """Seconds of market time that an instance goes on without us, None without end."""
        agents = self.agents()
        if agents is None or not self._chosen.in_wall_time:
            return None
        return int(agents.times.lease_s * self.market_s_per_s)

    def agreement(self) -> AgreementRules:
        """How log, ledger and cloud are compared, and what is done about orphans."""
        return AgreementRules(
            every_slots=self.compare_every_slots,
            reap=ReapRules(
                mode=self.reap,
                accounts=accounts_of(self.reap_accounts),
                grace_s=self.reap_grace_s,
                at_most=self.reap_at_most,
            ),
        )

    def caps(self) -> Caps:
        """The caps in micro-USD."""
        return Caps(
            micro_usd_per_job=_micro_usd(self.cap_usd_per_job),
            micro_usd_per_hour=_micro_usd(self.cap_usd_per_hour),
            launches_per_minute=self.cap_launches_per_minute,
            spending=spending_of(self.spending),
        )


def _wrong(problems: tuple[SettingProblem, ...]) -> ValidationError:
    return ValidationError.from_exception_data(
        CloudActuatorSettings.__name__,
        [
            InitErrorDetails(
                # Braces would be read as places for values.
                type=PydanticCustomError("cloud_setting", "{problem}", {"problem": wrong.problem}),
                loc=(wrong.variable.removeprefix(PREFIX).lower(),),
                input="",
            )
            for wrong in problems
        ],
    )


def _micro_usd(usd: Decimal | None) -> int | None:
    return None if usd is None else micro_usd_from_usd(usd)
