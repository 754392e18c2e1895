"""Cgroups that keep instances to their share of the CPU, where this process may make any."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from spotline.contracts.errors import ConfigError

_PERIOD_US = 100_000
# A quota below a millisecond is refused by the kernel.
_LEAST_US = 1_000
PROCESSES = "cgroup.procs"


class Cgroups:
    """One cgroup for each instance, all in a folder of this store.

    Raises
    ------
    OSError
        None can be made here.
    """

    def __init__(self, name: str) -> None:
        self._unified, home = _home()
        self._folder = home / f"spotline-{name}"
        if self._unified:
            _allow_cpu(home)
        self._folder.mkdir(exist_ok=True)
        try:
            if self._unified:
                _allow_cpu(self._folder)
            # Not all that can be made can be set.
            self.make("probe", 0.5)
            self.remove("probe")
        except OSError:
            with suppress(OSError):
                self.remove("probe")
                self._folder.rmdir()
            raise

    def make(self, name: str, cores: float) -> Path:
        """Make the cgroup of an instance; a process joins it by writing its pid into the result."""
        group = self._folder / name
        group.mkdir(exist_ok=True)
        quota_us = max(_LEAST_US, round(cores * _PERIOD_US))
        if self._unified:
            (group / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        return group / PROCESSES

    def pids(self, name: str) -> list[int]:
        """What is in the cgroup of an instance."""
        try:
            return [int(pid) for pid in (self._folder / name / PROCESSES).read_text().split()]
        except (FileNotFoundError, OSError):
            return []

    def remove(self, name: str) -> None:
        """Remove the cgroup of an instance that has ended; one that is not empty yet stays."""
        with suppress(OSError):
            (self._folder / name).rmdir()

    def close(self) -> None:
        """Remove the folder if no instance is left."""
        with suppress(OSError):
            self._folder.rmdir()


def cgroups_for(name: str, *, required: bool) -> Cgroups | None:
    """Cgroups if any can be made here.

    Raises
    ------
    ConfigError
        They are required and none can be made.
    """
    try:
        return Cgroups(name)
    except OSError as error:
        if required:
            raise ConfigError(
                f"cpu_share_by is cgroup, and no cgroup with a CPU quota can be made: {error}; "
                "set it to auto or turns"
            ) from error
        return None


def _home() -> tuple[bool, Path]:
    """Where cgroups with a CPU controller are made: unified or not, and the folder."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mounted, kind, options, *_ = line.split()
        if kind == "cgroup" and "cpu" in options.split(","):
            own = _own_path(lambda controllers: "cpu" in controllers.split(","))
            return False, Path(mounted) / own
        if kind == "cgroup2":
            controllers = Path(mounted) / "cgroup.controllers"
            if "cpu" in controllers.read_text().split():
                # Beside our own: what has processes cannot have cgroups with controllers.
                beside = Path(_own_path(lambda controllers: not controllers)).parent
                return True, Path(mounted) / beside
    raise OSError("no cgroup with the cpu controller is mounted")


def _own_path(is_it: Callable[[str], bool]) -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if is_it(controllers):
            return path.lstrip("/")
    return ""


def _allow_cpu(folder: Path) -> None:
    control = folder / "cgroup.subtree_control"
    if "cpu" not in control.read_text().split():
        # One write that the kernel answers by itself.
        descriptor = os.open(control, os.O_WRONLY)
        try:
            os.write(descriptor, b"+cpu")
        finally:
            os.close(descriptor)
