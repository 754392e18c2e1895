"""How this machine behaves as a cloud."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from spotline.domain.market.offering import ASSUMED_NOTICE_LEAD_S

AUTO, CGROUP, TURNS = "auto", "cgroup", "turns"
_BY = (AUTO, CGROUP, TURNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCloudSettings:
    """How this machine behaves as a cloud.

    Parameters
    ----------
    command
        What an instance runs, as words of a shell; empty: `spotline agent`.
    run_as
        Whose processes instances are: empty is this user; a user's name; or `TENANT=USER` pairs,
        separated by commas. A user runs one tenant's jobs; another user takes root.
    most_instances
        How many instances there may be; 0: two for each core.
    cpu_share
        Cores that an instance has, such as 0.25; 0: no share is kept.
    cpu_share_by
        What keeps the share: `cgroup`, `turns` (stopping and continuing what runs), or `auto`: a
        cgroup where one can be made.
    gpus_per_instance
        GPUs that an instance has for itself.
    gpu_devices
        What there are, separated by commas, as in `CUDA_VISIBLE_DEVICES`; empty: those found.
    notice_lead_s
        Market seconds from a notice to the end; 0: none is given, and the end comes at once.
    sudden_share
        The share of instances taken back that get no notice, 0 to 1.
    reclaim_spread
        What is taken back is noticed at a random moment of this first part of the slot, 0 to 1; 0:
        at its opening.
    interruption_per_instance_hour
        Probability for each market hour held that spot is taken back though the market has enough;
        within a slot at most 1. Each slot draws for what runs when it opens, at a random moment.
    sold_out_s
        Market seconds for which an offering sells no spot after some of it was taken back.
    stop_grace_s
        Wall seconds from being asked to end to being killed.
    seed
        Of all chance here.
    price_usd_per_instance_hour
        What an instance costs on the market of this machine.
    slot_s
        How long a slot of the market of this machine is.
    """

    command: str = ""
    run_as: str = ""
    most_instances: int = 0
    cpu_share: float = 0.0
    cpu_share_by: str = AUTO
    gpus_per_instance: int = 0
    gpu_devices: str = ""
    notice_lead_s: int = ASSUMED_NOTICE_LEAD_S
    sudden_share: float = 0.0
    reclaim_spread: float = 0.0
    interruption_per_instance_hour: float = 0.0
    sold_out_s: int = 0
    stop_grace_s: float = 30.0
    seed: int = 0
    price_usd_per_instance_hour: float = 1.0
    slot_s: int = 300

    def __post_init__(self) -> None:
        for name in ("most_instances", "gpus_per_instance", "notice_lead_s", "sold_out_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0, was {getattr(self, name)}")
        for name in ("cpu_share", "stop_grace_s", "interruption_per_instance_hour"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and >= 0, was {value}")
        for name in ("sudden_share", "reclaim_spread"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in 0..1, was {getattr(self, name)}")
        price = self.price_usd_per_instance_hour
        if not (math.isfinite(price) and price >= 1e-6):
            raise ValueError(
                f"price_usd_per_instance_hour must be finite and >= 0.000001, was {price}"
            )
        if self.slot_s < 1:
            raise ValueError(f"slot_s must be >= 1, was {self.slot_s}")
        if self.cpu_share_by not in _BY:
            raise ValueError(
                f"cpu_share_by must be one of {', '.join(_BY)}, was {self.cpu_share_by!r}"
            )
        try:
            shlex.split(self.command)
        except ValueError as error:
            raise ValueError(
                f"command must be words of a shell ({error}), was {self.command!r}"
            ) from error
        _ = self.users

    @property
    def guaranteed_notice_s(self) -> int:
        """Seconds of notice that every instance gets: none where some get none."""
        return 0 if self.sudden_share else self.notice_lead_s

    @property
    def most(self) -> int:
        """How many instances there may be."""
        return self.most_instances or 2 * (os.cpu_count() or 1)

    @property
    def users(self) -> Mapping[str, str]:
        """Users by tenant; of the empty one are all tenants that are not named."""
        if "=" not in self.run_as:
            return {"": self.run_as.strip()}
        pairs = [pair.partition("=") for pair in self.run_as.split(",")]
        users = {tenant.strip(): user.strip() for tenant, _, user in pairs}
        whole = all(users) and all(users.values()) and len(users) == len(pairs)
        if not whole or len(set(users.values())) < len(users):
            raise ValueError(
                "run_as must be a user or TENANT=USER pairs, separated by commas, each tenant "
                f"with a user of its own; was {self.run_as!r}"
            )
        return users
