"""Settings of the allocator, read once at start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from spotline.adapters.agents.identity_documents import DocumentRules
from spotline.application.allocation.on_demand_quote import DEFAULT_QUOTE_MARGIN
from spotline.application.allocator.gang_facts import AgentTimes
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.agents import AgentsAt
from spotline.bootstrap.clouds import SIMULATED
from spotline.bootstrap.explaining import SELECTOR_VARIABLES, SERVED, CloudName, served_options
from spotline.contracts.limits import CallerLimits
from spotline.runtime.settings import OptionVariables, ServiceSettings


class AllocatorSettings(ServiceSettings):
    """`SPOTLINE_*` of the allocator; `allocator_address` is where its gRPC server listens.

    Drafts are completed by the configurator at `configurator_address`; empty: they are refused.
    With `await_admission` a submission is acknowledged once the ledger holds it too: off only where
    no actuator runs, which is what says so. Agents of running programs dial `agents_address` (empty:
    nowhere), as `agents_advertise`; the keys in `agents_folder` are the actuator's, too. Instances of EC2 in
    `agents_aws_accounts` and `agents_aws_regions` join by documents that `agents_aws_certificates`
    (a folder with REGION.pem) prove. A job that
    states no value is worth, and may cost, (1 + `quote_margin`) x its on-demand quote.
    `market_s_per_s` are market seconds in a second of wall time, as the market is replayed.
    `cloud` is the actuator's, as the selector has it, and
    `selector` are the options of the selector that decides, by the names that it has for them: what
    is expected of jobs follows them, and decisions are explained with them. With `outlooks` that is
    worked out for every job. `callers` is how much it takes from them at a time, each by its own name.
    """

    cloud: CloudName = SIMULATED
    allocator_address: str = "127.0.0.1:7070"
    configurator_address: str = ""
    await_admission: bool = True
    agents_address: str = ""
    agents_advertise: str = ""
    agents_folder: Path = Path("spotline-store/agents")
    agents_aws_certificates: Path | None = None
    agents_aws_accounts: tuple[str, ...] = ()
    agents_aws_regions: tuple[str, ...] = ()
    quote_margin: float = Field(default=DEFAULT_QUOTE_MARGIN, ge=0, le=100, allow_inf_nan=False)
    market_s_per_s: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    outlooks: bool = True
    callers: Annotated[CallerLimits, OptionVariables()] = CallerLimits()
    selector: Annotated[SelectorOptions, SELECTOR_VARIABLES, BeforeValidator(served_options)] = (
        Field(default=SERVED, validate_default=True)
    )

    def agents(self) -> AgentsAt | None:
        """Where agents dial in, None for nowhere; `ConfigError` where that cannot be."""
        if not self.agents_address:
            return None
        return AgentsAt(
            address=self.agents_address,
            folder=self.agents_folder,
            advertise=self.agents_advertise,
            times=AgentTimes(market_s_per_s=self.market_s_per_s),
            documents=self._documents(),
        )

    def _documents(self) -> DocumentRules | None:
        if self.agents_aws_certificates is None:
            return None
        return DocumentRules(
            certificates=self.agents_aws_certificates,
            accounts=self.agents_aws_accounts,
            regions=self.agents_aws_regions,
        )
