"""Clouds by name: to add one, write its folder and one line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.application.cloud_actuator.ports import ActuatorMode, CloudProvider
from spotline.contracts.errors import ConfigError


class Cloud(CloudProvider, Protocol):
    """A provider that was opened and must be closed."""

    def close(self) -> None:
        """Let go of files and connections; instances go on running."""
        ...


CloudFactory = Callable[[Path, SimulatedCloudSettings], Cloud]


def _simulated(store_dir: Path, settings: SimulatedCloudSettings) -> Cloud:
    return SimulatedCloud(store_dir / "simulated_cloud.sqlite", settings)


CLOUDS: dict[str, CloudFactory] = {"simulated": _simulated}


def open_cloud(
    name: str, mode: ActuatorMode, store_dir: Path, simulated: SimulatedCloudSettings
) -> Cloud:
    """Open the cloud `name`; in shadow mode always the simulated one.

    Raises
    ------
    ConfigError
        No such cloud is installed.
    """
    chosen = "simulated" if mode is ActuatorMode.SHADOW else name
    factory = CLOUDS.get(chosen)
    if factory is None:
        raise ConfigError(f"cloud must be one of {', '.join(sorted(CLOUDS))}, was {name!r}")
    return factory(store_dir, simulated)
