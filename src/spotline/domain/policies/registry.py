"""All policies by name. To add one: a module, a line here and one in `lives.live`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spotline.domain.policies.ahanp import Ahanp
from spotline.domain.policies.ahap import Ahap
from spotline.domain.policies.interface import Policy
from spotline.domain.policies.msu import MaximalSpotUtilisation
from spotline.domain.policies.on_demand_only import OnDemandOnly
from spotline.domain.policies.sdp import HYBRIDS, SDP
from spotline.domain.policies.uniform_progress import UniformProgress
from spotline.domain.units import PPM

SIGMAS_PPM = tuple(range(3 * PPM // 10, 9 * PPM // 10 + 1, PPM // 10))

AHAP_POOL: tuple[Policy, ...] = tuple(
    Ahap(omega, commitment, sigma)
    for omega in range(1, 6)
    for commitment in range(1, omega + 1)
    for sigma in SIGMAS_PPM
)
# The rules of thumb every other policy is measured against.
BASELINES: tuple[Policy, ...] = (OnDemandOnly(), MaximalSpotUtilisation(), UniformProgress())
AHANP_POOL: tuple[Policy, ...] = tuple(Ahanp(sigma) for sigma in SIGMAS_PPM)

# The paper's pool is the first 112; the baselines and the learned control compete with it.
PAPER_POOL: tuple[Policy, ...] = AHAP_POOL + AHANP_POOL
POOL: tuple[Policy, ...] = (*PAPER_POOL, *BASELINES, SDP, *HYBRIDS)

POLICIES: Mapping[str, Policy] = MappingProxyType({p.policy_id: p for p in POOL})

# Decides when a forecast is missing or not to be trusted, or the allocator does not answer.
FALLBACK_POLICY_ID = "msu"


def policy_named(policy_id: str) -> Policy:
    """Return the policy called `policy_id`.

    Raises
    ------
    KeyError
        There is none; the message names similar ones.
    """
    try:
        return POLICIES[policy_id]
    except KeyError:
        raise KeyError(
            f"unknown policy {policy_id!r}; expected one of on_demand_only, msu, "
            "uniform_progress, sdp, hybrid(W) with W 1, 2 or 5, ahanp(SIGMA), ahap(OMEGA,V,SIGMA) "
            "with SIGMA 0.3..0.9"
        ) from None
