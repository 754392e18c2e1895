"""How on-demand stock may come and go, and what each kind of machine is likely to follow.

No cloud publishes how many machines it has left on demand. An offering follows one of several laws,
nobody knows which: it is in stock or out of it, for times of exponential length. What a family of
machines is believed to follow before a launch has shown anything is in `stock_priors.json`, with a
card that says which figures were measured and which are assumed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from spotline.domain.units import PPM

FORMAT_VERSION = 1

_FILE = "stock_priors.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StockLaw:
    """One way in which stock comes and goes.

    Attributes
    ----------
    name
        Which one, for people.
    out_ppm
        The share of all time in which a launch is refused, 0 < it < 10^6.
    outage_s
        The mean length of an outage, seconds, > 0.

    Raises
    ------
    ValueError
        A figure is out of its range.
    """

    name: str
    out_ppm: int
    outage_s: int

    def __post_init__(self) -> None:
        if not 0 < self.out_ppm < PPM:
            raise ValueError(f"out_ppm must lie between 0 and {PPM}, was {self.out_ppm}")
        if self.outage_s < 1:
            raise ValueError(f"outage_s must be >= 1, was {self.outage_s}")

    @property
    def out_share(self) -> float:
        """The share of all time in which a launch is refused."""
        return self.out_ppm / PPM

    def stays(self, slot_s: int) -> tuple[float, float]:
        """Chances that stock that is there, and stock that is out, is so a slot of `slot_s` s later."""
        out = self.out_share
        # Both rates follow from the mean outage and the share of time that it takes.
        left = math.exp(-slot_s / (self.outage_s * (1.0 - out)))
        return 1.0 - out * (1.0 - left), out + (1.0 - out) * left

    def stays_out(self, slot_s: int) -> float:
        """The chance that an outage lasts through another slot of `slot_s` seconds."""
        return math.exp(-slot_s / self.outage_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class StockFamily:
    """Machines whose stock is believed alike before any is seen.

    `gpu_models` are what their GPU models begin with, in lower case; none: all that no other family
    names. `chances_ppm` are what each law counts for, in the order of the laws; they sum to 10^6.
    """

    name: str
    gpu_models: tuple[str, ...]
    chances_ppm: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StockPriors:
    """Laws of stock, and the families of machines; `sha256` names the text they were read from.

    Raises
    ------
    ValueError
        A family's chances do not fit the laws, or no family is for what others do not name.
    """

    laws: tuple[StockLaw, ...]
    families: tuple[StockFamily, ...]
    sha256: str = ""

    def __post_init__(self) -> None:
        for family in self.families:
            chances = family.chances_ppm
            if len(chances) != len(self.laws) or min(chances) < 0 or sum(chances) != PPM:
                raise ValueError(
                    f"chances_ppm of {family.name} must be {len(self.laws)} figures >= 0 that sum to "
                    f"{PPM}, were {chances}"
                )
        if [family.gpu_models for family in self.families].count(()) != 1:
            raise ValueError("exactly one family must be for what no other names")

    def family_of(self, gpu_model: str) -> StockFamily:
        """The family of a GPU model: whose beginning of it is the longest."""
        model = gpu_model.lower()
        found = [
            (len(start), family)
            for family in self.families
            for start in family.gpu_models or ("",)
            if model.startswith(start)
        ]
        return max(found, key=lambda each: each[0])[1]


# --- as text ----------------------------------------------------------------------------------


def stock_priors_to_json(priors: StockPriors, card: Mapping[str, Any]) -> str:
    """Write priors of stock with the card that says where their figures come from."""
    fields = {
        "format_version": FORMAT_VERSION,
        "card": card,
        "laws": [
            {"name": law.name, "out_ppm": law.out_ppm, "outage_s": law.outage_s}
            for law in priors.laws
        ],
        "families": [
            {
                "name": family.name,
                "gpu_models": list(family.gpu_models),
                "chances_ppm": list(family.chances_ppm),
            }
            for family in priors.families
        ],
    }
    return json.dumps(fields, indent=1, sort_keys=True) + "\n"


def parse_stock_priors(text: str) -> StockPriors:
    """Read what `stock_priors_to_json` wrote.

    Raises
    ------
    ValueError
        It is not that; the message says what was expected.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"priors of stock must be JSON: {error}") from error
    if not isinstance(found, dict) or found.get("format_version") != FORMAT_VERSION:
        raise ValueError(f"priors of stock must be an object with format_version {FORMAT_VERSION}")
    try:
        return StockPriors(
            laws=tuple(
                StockLaw(
                    name=str(law["name"]),
                    out_ppm=int(law["out_ppm"]),
                    outage_s=int(law["outage_s"]),
                )
                for law in found["laws"]
            ),
            families=tuple(
                StockFamily(
                    name=str(family["name"]),
                    gpu_models=tuple(str(model) for model in family["gpu_models"]),
                    chances_ppm=tuple(int(chance) for chance in family["chances_ppm"]),
                )
                for family in found["families"]
            ),
            sha256=hashlib.sha256(text.encode()).hexdigest(),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"priors of stock: {error!r} is missing or of another type") from error


@lru_cache(maxsize=1)
def shipped_stock() -> StockPriors:
    """The priors of stock in the wheel; `stock_card` says where their figures come from."""
    return parse_stock_priors(_shipped_text())


def named_stock(sha256: str) -> StockPriors | None:
    """The priors of stock that a log's manifest names; an empty name is none.

    Raises
    ------
    ValueError
        No priors of this release have that name.
    """
    if not sha256:
        return None
    shipped = shipped_stock()
    if sha256 != shipped.sha256:
        raise ValueError(f"stock_beliefs must be {shipped.sha256}, this release's, was {sha256}")
    return shipped


def stock_card() -> Mapping[str, Any]:
    """Where the figures of the priors in the wheel come from, and which are assumed."""
    card: Mapping[str, Any] = json.loads(_shipped_text())["card"]
    return card


def _shipped_text() -> str:
    return files("spotline.domain.beliefs").joinpath(_FILE).read_text("utf-8")
