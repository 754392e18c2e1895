"""What goes on costing once nothing of ours runs any more, and how it is ended."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.ledger.threaded import ThreadedLedger, opened_ledger
from spotline.application.cloud_actuator.releasing import ReleasedInstances, release_all
from spotline.bootstrap.clouds import ChosenCloud, CloudContext
from spotline.bootstrap.system import LEDGER_OWNER
from spotline.contracts.errors import ConfigError
from spotline.domain.ledger.intents import HeldInstance
from spotline.domain.modes import Mode, mode_named

CLOUD_FILE = "cloud.json"

_LOOK_EVERY_S = 0.2


def note_cloud(store: Path, name: str, mode: Mode = Mode.LIVE) -> None:
    """Note in a store the cloud that its instances are on, or would be.

    Raises
    ------
    ConfigError
        They are on another one, or were in another mode.
    """
    known = noted_cloud(store)
    began = noted_mode(store)
    if known and began is not mode:
        raise ConfigError(
            f"mode must be {began.value}, in which {store} began, was {mode.value}: what is filled "
            "on paper stays apart from what is paid; use another store"
        )
    if known not in ("", name):
        raise ConfigError(
            f"cloud must be {known}, as the instances of {store} are on it, was {name}; use another "
            "store for another cloud"
        )
    aside = store / f".{CLOUD_FILE}"
    said = {"cloud": name} if mode is Mode.LIVE else {"cloud": name, "mode": mode.value}
    aside.write_text(json.dumps(said))
    aside.replace(store / CLOUD_FILE)


def noted_cloud(store: Path) -> str:
    """The cloud that a store's instances are on, empty where nothing is noted.

    Raises
    ------
    ConfigError
        What is noted cannot be read.
    """
    said = _noted(store)
    return "" if said is None else str(said["cloud"])


def noted_mode(store: Path) -> Mode:
    """The mode that a store began in; of before 0.3.0 it is live.

    Raises
    ------
    ConfigError
        What is noted cannot be read.
    """
    said = _noted(store)
    try:
        return mode_named(said["mode"]) if said is not None else Mode.LIVE
    except ValueError as error:
        raise ConfigError(f"{store / CLOUD_FILE}: {error}") from error


def _noted(store: Path) -> dict[str, str] | None:
    file = store / CLOUD_FILE
    try:
        said = json.loads(file.read_text())
        return {"cloud": str(said["cloud"]), "mode": str(said.get("mode", Mode.LIVE.value))}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file}: expected the name of a cloud, found {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingCost:
    """Instances of one offering that a job holds."""

    job_id: str
    offering_id: str
    capacity_type: str
    instances: int


async def standing_costs(store: Path) -> tuple[StandingCost, ...]:
    """What the ledger of a store holds, by job and offering. Whose ledger it is, keeps it.

    Raises
    ------
    ConfigError
        There is no ledger, or it cannot be read.
    LedgerDamaged, ProviderUnavailable
        As reading it does.
    """
    held = await asyncio.to_thread(_held, _ledger_of(store))
    counts = Counter(
        (instance.job_id, instance.offering_id, instance.capacity_type.value) for instance in held
    )
    return tuple(
        StandingCost(
            job_id=job_id, offering_id=offering_id, capacity_type=capacity_type, instances=count
        )
        for (job_id, offering_id, capacity_type), count in sorted(counts.items())
    )


def _held(url: str) -> Sequence[HeldInstance]:
    ledger = SqlLedger.looked_at(url, LEDGER_OWNER)
    try:
        return ledger.held()
    finally:
        ledger.close()


async def release_store(store: Path, cloud: ChosenCloud, *, patience_s: float) -> ReleasedInstances:
    """End all that a store's ledger holds on a cloud; errors as `release_all` and opening both.

    `patience_s` bounds how long the ends are waited for.
    """
    loop = asyncio.get_running_loop()
    async with opened_ledger(_ledger_of(store), LEDGER_OWNER) as ledger:
        opened = cloud.open(CloudContext(store=store))
        give_up_s = loop.time() + patience_s

        async def wait() -> bool:
            await asyncio.sleep(_LOOK_EVERY_S)
            return loop.time() < give_up_s

        try:
            return await release_all(opened.provider, ThreadedLedger(ledger), wait)
        finally:
            opened.close()


def _ledger_of(store: Path) -> str:
    file = store / "ledger.sqlite"
    if not file.exists():
        raise ConfigError(f"{store}: expected the store of a system, found no ledger in it")
    return ledger_url(file)
