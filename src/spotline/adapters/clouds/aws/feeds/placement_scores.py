"""Spot placement scores: AWS's own advice on where a request may succeed. Shown, never a count.

A score says "how likely it is that a Spot request will succeed in a Region or Availability Zone",
"serves only as a recommendation", and few new configurations may be asked for within 24 hours
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-placement-score.html). For fewer than three
instance types it "will always be low" (API reference of GetSpotPlacementScores).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotline.adapters.clouds.aws.calling import AwsReader, pages
from spotline.adapters.whole_file import replacing
from spotline.domain.units import NS_PER_S

# The limit is AWS's own and not published as a number: so few that nobody else's asking is in the way.
MOST_A_DAY = 5
KEPT_S = 24 * 3600
# As many as an answer may hold.
_ROWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredConfiguration:
    """What is scored: instances of one type in one account and region."""

    account: str
    region: str
    instance_type: str
    instances: int

    @property
    def key(self) -> str:
        """How it is called in the file of scores."""
        return f"{self.account}/{self.region}/{self.instance_type}/{self.instances}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenScores:
    """Scores from 1 to 10 by zone id, as AWS gave them at `asked_ns`."""

    asked_ns: int
    by_zone: Mapping[str, int]


class PlacementScores:
    """Scores by configuration: each asked for once a day, few of them, kept in a file.

    Parameters
    ----------
    kept
        The file; it is read anew each time, since another command may have asked.
    """

    def __init__(self, reader: AwsReader, kept: Path) -> None:
        self._reader = reader
        self._kept = kept

    async def scores(self, what: ScoredConfiguration, now_ns: int) -> Mapping[str, int] | None:
        """Scores from 1 to 10 by zone id; None, and errors, as of `given`."""
        found = await self.given(what, now_ns)
        return None if found is None else found.by_zone

    async def given(self, what: ScoredConfiguration, now_ns: int) -> GivenScores | None:
        """Scores with the time at which they were given; None where no more may be asked for today.

        Raises
        ------
        CallRefused, Throttled, ProviderUnavailable
            AWS gives none now.
        """
        known = {
            key: entry
            for key, entry in self._read().items()
            if 0 <= now_ns - entry["asked_ns"] < KEPT_S * NS_PER_S
        }
        found = known.get(what.key)
        if found is None:
            if len(known) >= MOST_A_DAY:
                return None
            rows = await pages(
                self._reader,
                (what.account, what.region, "ec2"),
                "GetSpotPlacementScores",
                "SpotPlacementScores",
                InstanceTypes=[what.instance_type],
                TargetCapacity=what.instances,
                SingleAvailabilityZone=True,
                RegionNames=[what.region],
                MaxResults=_ROWS,
            )
            scores = {str(row["AvailabilityZoneId"]): int(row["Score"]) for row in rows}
            found = known[what.key] = {"asked_ns": now_ns, "scores": scores}
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._kept) as path:
                path.write_text(json.dumps(known, indent=1), "utf-8")
        scores = found["scores"]
        return GivenScores(
            asked_ns=found["asked_ns"],
            by_zone={zone: int(scores[zone]) for zone in sorted(scores)},
        )

    def _read(self) -> dict[str, Any]:
        try:
            read = json.loads(self._kept.read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            # It is a cache: one that cannot be read is asked for again.
            return {}
        entries = read.items() if isinstance(read, dict) else ()
        return {key: entry for key, entry in entries if _is_entry(entry)}


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("asked_ns"), int):
        return False
    scores = entry.get("scores")
    return isinstance(scores, dict) and all(isinstance(score, int) for score in scores.values())
