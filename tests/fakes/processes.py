"""The five services as real processes, to be killed and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from spotline.adapters.market.parquet import write_market
from spotline.domain.market.market import Market
from tests.fakes.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("allocator", "cloud_actuator", "forecaster", "selector", "market_ingest")


class ServiceProcesses:
    """Starts `python -m services.<name>` against one broker, one store and one market file."""

    def __init__(self, nats_url: str, folder: Path, market: Market, **settings: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.store = folder / "store"
        self._log = folder / "services.log"
        market_file = folder / "market.parquet"
        write_market(market, market_file)
        self._env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("SPOTLINE_")},
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "SPOTLINE_NATS_URL": nats_url,
            "SPOTLINE_LOG_LEVEL": "warning",
            **settings,
        }
        self._own = {
            "allocator": {"SPOTLINE_ALLOCATOR_ADDRESS": self.address},
            "selector": {"SPOTLINE_ALLOCATOR_ADDRESS": self.address},
            "cloud_actuator": {"SPOTLINE_STORE": str(self.store)},
            "market_ingest": {"SPOTLINE_MARKET": str(market_file)},
        }
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def __aenter__(self) -> ServiceProcesses:
        return self

    async def __aexit__(self, *exit_info: object) -> None:
        for process in self._running.values():
            if process.returncode is None:
                process.kill()
        for process in self._running.values():
            await process.wait()

    async def start(self, service: str, **settings: str) -> None:
        """Start one service, `settings` being of this start alone."""
        with self._log.open("ab") as log:
            self._running[service] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                f"services.{service}",
                env={**self._env, **self._own.get(service, {}), **settings},
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    async def kill(self, service: str) -> None:
        """SIGKILL, as the kernel or an operator would."""
        process = self._running[service]
        process.send_signal(signal.SIGKILL)
        await process.wait()

    def said(self) -> str:
        """What the services wrote, for a failure's message."""
        return self._log.read_text(encoding="utf-8")[-4000:] if self._log.exists() else ""

    def dead(self) -> list[str]:
        """Services that ended by themselves."""
        return [name for name, one in self._running.items() if one.returncode is not None]
