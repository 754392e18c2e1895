"""Local clouds for tests: real processes, all of them ended with the test."""

import asyncio
import shlex
import signal
from dataclasses import replace
from pathlib import Path

from spotline.adapters.clouds.local import processes
from spotline.adapters.clouds.local.cloud import LocalCloud
from spotline.adapters.clouds.local.machine import INSTANCE_ID
from spotline.adapters.clouds.local.settings import LocalCloudSettings
from spotline.application.cloud_actuator.ports import InstanceState, Owner
from tests.eventually import eventually
from tests.fakes.actuator import OWNER, launch, moment, quote

US = Owner(name=OWNER, epoch=1)
SLEEP = "sleep 300"


def shell(script):
    """A command of the settings."""
    return shlex.join(["sh", "-c", script])


class Clouds:
    """Opens clouds in a folder; `end` kills whatever they started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ids: set[str] = set()
        self._opened: list[LocalCloud] = []
        self._slot = -1

    def open(self, *, speed=100.0, enrolment=None, environ=None, **settings) -> LocalCloud:
        """A cloud that sells eight spot instances, or goes on selling what it did."""
        stated = {"command": SLEEP, "most_instances": 64, "stop_grace_s": 5, **settings}
        cloud = LocalCloud(
            self.folder / "local",
            LocalCloudSettings(**stated),
            enrolment=enrolment,
            market_s_per_s=speed,
            environ=environ,
        )
        self._opened.append(cloud)
        if self._slot < 0:
            self.sell(cloud, 8)
        return cloud

    def sell(self, cloud, spot, on_demand=None):
        """Open the next slot with this much stock."""
        self._slot += 1
        cloud.open_slot(moment(self._slot), [quote(spot=spot, on_demand=on_demand)])

    async def launch(self, cloud, instances=1, token="t", **changes):
        """Launch, and wait until the first processes have begun to be that."""
        request = launch(token, instances, at=moment(self._slot))
        grant = await cloud.launch(replace(request, **changes))
        assert grant.refusal is None
        self.ids.update(instance.instance_id for instance in grant.instances)
        return [instance.instance_id for instance in grant.instances]

    def close(self, cloud):
        self._opened.remove(cloud)
        cloud.close()

    def end(self):
        """End all processes, also where a cloud is broken."""
        try:
            for cloud in self._opened:
                alive = [instance.instance_id for instance in cloud.alive()]
                self.ids.update(alive)
                cloud.take_back(alive)
                cloud.close()
        finally:
            for instance_id in self.ids:
                for process in below(instance_id):
                    processes.send(process, signal.SIGKILL)


def below(instance_id):
    """All processes of an instance, its first one too."""
    return processes.carriers(INSTANCE_ID, instance_id)


async def started(instance_id, count):
    """Wait until an instance has that many processes, its first one counted."""
    return await eventually(lambda: len(below(instance_id)) >= count and below(instance_id))


async def ended(cloud, instance_id, token="ended"):
    """Wait until the cloud tells that an instance has ended; all that it tells."""
    told = []
    async with asyncio.timeout(60):
        while not any(
            event.state is InstanceState.ENDED and event.instance.instance_id == instance_id
            for event in told
        ):
            await cloud.pushed()
            told += await cloud.events(f"{token}-{len(told)}", moment())
    return told
