"""The five services as real processes on the local cloud, and processes of its instances to kill."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from spotline.adapters.clouds.local import processes
from spotline.adapters.clouds.local.processes import Process
from spotline.adapters.clouds.local.store import LocalStore
from spotline.domain.market.market import Market
from spotline.domain.units import NS_PER_S
from tests.fakes.ports import free_port
from tests.fakes.processes import ServiceProcesses

INSTANCE_ID = "SPOTLINE_INSTANCE_ID"


class TrainingServices(ServiceProcesses):
    """Services that run programs on the local cloud, at a speed."""

    def __init__(self, nats_url: str, folder: Path, market: Market, *, speed: float) -> None:
        super().__init__(
            nats_url,
            folder,
            market,
            SPOTLINE_FORECAST_TIMEOUT_S="90",
            SPOTLINE_ALLOCATE_TIMEOUT_S="90",
            SPOTLINE_REHEARSALS="0",
        )
        agents = {
            "SPOTLINE_AGENTS_ADDRESS": f"127.0.0.1:{free_port()}",
            "SPOTLINE_AGENTS_FOLDER": str(self.store / "agents"),
            "SPOTLINE_MARKET_S_PER_S": str(speed),
        }
        self._own["allocator"] |= agents
        self._own["cloud_actuator"] |= {
            **agents,
            "SPOTLINE_CLOUD": "local",
            "SPOTLINE_CLOUD_LOCAL_MOST_INSTANCES": "4",
            "SPOTLINE_CLOUD_LOCAL_NOTICE_LEAD_S": "2400",
            "SPOTLINE_CLOUD_LOCAL_STOP_GRACE_S": "10",
        }
        self._own["market_ingest"] |= {"SPOTLINE_SLOTS_PER_S": str(speed / market.slot_s)}


class LocalInstances:
    """The instances of a local cloud, as its store and the machine show them."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "local_cloud.sqlite"

    def running(self) -> list[str]:
        """Ids of those that run, in launch order."""
        return [
            row["instance_id"]
            for row in self._rows("SELECT * FROM instances WHERE state = 'running' AND taken = 0")
        ]

    def held_s(self) -> dict[str, float]:
        """Market seconds of every instance from its launch to its end; none while any runs."""
        found = self._rows(
            "SELECT instances.instance_id, ready_ns, max(at_ns) AS ended_ns FROM instances "
            "JOIN events USING (instance_id) WHERE events.state = 'ended' GROUP BY instance_id"
        )
        every = {row["instance_id"] for row in self._rows("SELECT instance_id FROM instances")}
        if {row["instance_id"] for row in found} != every:
            return {}
        return {row["instance_id"]: (row["ended_ns"] - row["ready_ns"]) / NS_PER_S for row in found}

    def kill(self, instance_id: str, word: str) -> bool:
        """SIGKILL the process of an instance whose command line holds `word`; whether there was one."""
        for process in processes.carriers(INSTANCE_ID, instance_id):
            if word in _command(process):
                return processes.send(process, signal.SIGKILL)
        return False

    def kill_newest(self, word: str) -> bool:
        """`kill` in the instance that was launched last; False also where none runs just now."""
        running = self.running()
        return bool(running) and self.kill(running[-1], word)

    def kill_whole(self, instance_id: str) -> None:
        """SIGKILL all processes of an instance, its first one too."""
        for process in processes.carriers(INSTANCE_ID, instance_id):
            processes.send(process, signal.SIGKILL)

    def _rows(self, query: str) -> list:
        if not self._path.exists():
            return []
        store = LocalStore(self._path)
        try:
            return store.rows(query)
        finally:
            store.close()


def _command(process: Process) -> str:
    try:
        return Path(f"/proc/{process[0]}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def kill(pid: int) -> None:
    """SIGKILL."""
    os.kill(pid, signal.SIGKILL)
