"""Market laws from elsewhere, for the hours in which an installation has seen nothing of its own.

Offerings differ in size, so a prior law counts spot in thousandths of an offering's capacity, the
most that it ever shows. `lent_by` brings such laws to the levels that another market tells apart.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from spotline.domain.market.law import (
    AGE_STARTS,
    PPB,
    FloatArray,
    IntArray,
    Lends,
    MarketLaw,
    StateSpace,
    learn_law,
    quantised_rows,
)
from spotline.domain.market.law_ages import grown_older
from spotline.domain.units import PPM

FORMAT_VERSION = 1

WHOLE = 1000
"""The capacity of an offering, in the counts of a prior law."""

# None, up to a quarter, half, three quarters, nearly all, all.
SHARES = StateSpace(
    level_starts=(0, 1, 251, 501, 751, WHOLE),
    age_starts=AGE_STARTS,
    price_centres_ppm=(PPM // 3,),
)

SLOT_S = 1800
"""The slots of prior laws, seconds."""

_FILE = "prior_laws.json"
_SETTLED = 512  # steps after which a chain has forgotten where it began


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorLaw:
    """The law of one offering seen elsewhere, on `SHARES`.

    `kind` says what sort of offering it was (all prior kinds count alike, however many laws
    each has), `name` and `region` which one.
    """

    name: str
    kind: str
    region: str
    law: MarketLaw

    def __post_init__(self) -> None:
        """Refuse a law on other levels, by `ValueError`."""
        if self.law.space != SHARES:
            raise ValueError(f"law of prior {self.name} must be on the levels {SHARES}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorLaws:
    """A set of prior laws; `sha256` names the text it was read from, empty for none."""

    laws: tuple[PriorLaw, ...] = ()
    sha256: str = ""

    def __bool__(self) -> bool:
        return bool(self.laws)

    def without(self, *, kinds: Iterable[str] = (), regions: Iterable[str] = ()) -> PriorLaws:
        """The same without some kinds or regions: for judging priors on what they never saw."""
        left_kinds, left_regions = set(kinds), set(regions)
        kept = tuple(
            prior
            for prior in self.laws
            if prior.kind not in left_kinds and prior.region not in left_regions
        )
        return PriorLaws(laws=kept, sha256=self.sha256)

    def lends(self, slot_s: int) -> Lends:
        """What is lent to offerings of a market with slots of `slot_s` seconds."""
        chances = self.chances()

        def lend(space: StateSpace, capacity: int) -> tuple[tuple[MarketLaw, float], ...]:
            return tuple(
                (lent_by(prior.law, space, capacity, slot_s), float(chance))
                for prior, chance in zip(self.laws, chances, strict=True)
            )

        return lend

    def chances(self) -> FloatArray:
        """What each law counts for before anything is seen: kinds alike; shape (laws,)."""
        of_kind: dict[str, int] = {}
        for prior in self.laws:
            of_kind[prior.kind] = of_kind.get(prior.kind, 0) + 1
        shares = [1.0 / (len(of_kind) * of_kind[prior.kind]) for prior in self.laws]
        return np.array(shares, dtype=np.float64)


NO_PRIORS = PriorLaws()


def learn_prior(name: str, kind: str, region: str, counts: Sequence[int] | IntArray) -> PriorLaw:
    """Learn a prior law from the spot counts of an offering, slot by slot.

    Raises
    ------
    ValueError
        No slot has any spot: nothing says what its capacity is.
    """
    seen = np.asarray(counts, dtype=np.int64)
    capacity = int(seen.max(initial=0))
    if capacity < 1:
        raise ValueError(f"counts of {name} must be > 0 in some slot")
    shares = seen * WHOLE // capacity
    shares[(seen > 0) & (shares < 1)] = 1
    law = learn_law(shares, np.full(len(seen), PPM // 3, dtype=np.int64), SHARES)
    return PriorLaw(name=name, kind=kind, region=region, law=law)


@lru_cache(maxsize=512)
def lent_by(law: MarketLaw, space: StateSpace, capacity: int, slot_s: int = SLOT_S) -> MarketLaw:
    """A prior law on the levels of another market, for an offering of `capacity` instances.

    Prior laws are of half-hour slots. In shorter ones a level is left as much more rarely; in
    longer ones as many half hours pass at once.

    Where several shares fall into one level, their chances are averaged by how often each
    is met in the long run; a level that no share falls into behaves as the nearest share does.
    The price stays where it is.
    """
    ages = len(law.space.age_starts)
    if space.ages != ages:
        raise ValueError(f"a prior law has {ages} ages, the space {space.ages}")
    source = _paced(law.run_matrix(), slot_s)
    levels, shares = len(space.level_starts), len(law.space.level_starts)
    counts = [round(share * max(1, capacity) / WHOLE) for share in law.level_counts]
    at = np.array([space.level_of(count) for count in counts])
    met = _long_run(source).reshape(shares, ages) + 1e-9
    onward = source.reshape(shares, ages, shares, ages).sum(axis=3)
    moves = np.zeros((levels, ages, levels))
    lends = np.zeros((levels, shares))
    for level in range(levels):
        own = at == level
        if not own.any():
            start = space.level_starts[level]
            own = np.arange(shares) == int(np.abs(np.array(counts) - start).argmin())
        lends[level, own] = 1.0
    for level in range(levels):
        weight = met * lends[level][:, None]
        weight /= weight.sum(axis=0, keepdims=True)
        # From a level that borrows another's share, staying there is staying here.
        borrowed = not (at == level).any()
        for share in range(shares):
            to = level if borrowed and lends[level, share] else int(at[share])
            moves[level, :, to] += (weight * onward[:, :, share]).sum(axis=0)
    price = np.eye(space.price_states)
    return MarketLaw(
        space=space,
        level_counts=(0, *space.level_starts[1:]),
        run_ppb=quantised_rows(grown_older(moves, space.age_starts)),
        price_ppb=quantised_rows(price),
    )


def _paced(matrix: FloatArray, slot_s: int) -> FloatArray:
    if slot_s >= SLOT_S:
        longer: FloatArray = np.linalg.matrix_power(matrix, round(slot_s / SLOT_S))
        return longer
    still = np.eye(len(matrix))
    return still + (matrix - still) * (slot_s / SLOT_S)


def _long_run(matrix: FloatArray) -> FloatArray:
    """How often a chain is in each state, shape (states,)."""
    power = matrix
    for _ in range(_SETTLED.bit_length()):
        power = power @ power
    met: FloatArray = power.mean(axis=0)
    return met


# --- as text ----------------------------------------------------------------------------------


def priors_to_json(laws: Iterable[PriorLaw], card: Mapping[str, Any]) -> str:
    """Write prior laws with the card that says what they were learned from."""
    fields = {
        "format_version": FORMAT_VERSION,
        "card": card,
        "laws": [
            {
                "name": prior.name,
                "kind": prior.kind,
                "region": prior.region,
                "level_counts": list(prior.law.level_counts),
                "run_ppb": list(prior.law.run_ppb),
            }
            for prior in laws
        ],
    }
    return json.dumps(fields, separators=(",", ":"), sort_keys=True) + "\n"


def parse_priors(text: str) -> PriorLaws:
    """Read what `priors_to_json` wrote.

    Raises
    ------
    ValueError
        It is not that; the message says what was expected.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"prior laws must be JSON: {error}") from error
    if not isinstance(found, dict) or found.get("format_version") != FORMAT_VERSION:
        raise ValueError(f"prior laws must be an object with format_version {FORMAT_VERSION}")
    listed = found.get("laws")
    if not isinstance(listed, list):
        raise ValueError(f"prior laws: laws must be a list, was {listed!r}")  # noqa: TRY004 - a file's content is a value
    return PriorLaws(
        laws=tuple(_prior(index, fields) for index, fields in enumerate(listed)),
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )


def _prior(index: int, fields: Any) -> PriorLaw:
    try:
        return PriorLaw(
            name=str(fields["name"]),
            kind=str(fields["kind"]),
            region=str(fields["region"]),
            law=MarketLaw(
                space=SHARES,
                level_counts=tuple(int(count) for count in fields["level_counts"]),
                run_ppb=tuple(int(chance) for chance in fields["run_ppb"]),
                price_ppb=(PPB,),
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"prior laws: laws[{index}]: {error}") from error


@lru_cache(maxsize=1)
def shipped_priors() -> PriorLaws:
    """The prior laws in the wheel; `shipped_card` says what they were learned from."""
    return parse_priors(_shipped_text())


def named_priors(sha256: str) -> PriorLaws:
    """The priors that a log's manifest names; an empty name is none.

    Raises
    ------
    ValueError
        No priors of this release have that name.
    """
    if not sha256:
        return NO_PRIORS
    shipped = shipped_priors()
    if sha256 != shipped.sha256:
        raise ValueError(f"priors_sha256 must be {shipped.sha256}, this release's, was {sha256}")
    return shipped


def shipped_card() -> Mapping[str, Any]:
    """What the prior laws in the wheel were learned from, and how they do on what they did not see."""
    card: Mapping[str, Any] = json.loads(_shipped_text())["card"]
    return card


def _shipped_text() -> str:
    return files("spotline.domain.market").joinpath(_FILE).read_text("utf-8")
