"""Worker processes to be killed, and a view of what they have left on the broker."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import nats.js.errors

from spotline.adapters.faust.names import bucket_name, key_in, offset_key, stream_name
from tests.eventually import PATIENCE_S
from tests.fakes.faust_worker import APP, PARTITIONS, TOPIC

ROOT = Path(__file__).resolve().parents[2]


class Workers:
    """Starts and ends `tests.fakes.faust_worker`."""

    def __init__(self, url, folder):
        self.url = url
        self.log = folder / "workers.log"
        self.running = {}

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for process in self.running.values():
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def start(self, name, *options, label=""):
        with self.log.open("ab") as log:
            self.running[label or name] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.fakes.faust_worker", self.url, name, *options),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
                stdout=log,
                stderr=log,
            )

    async def end(self, name, how=signal.SIGKILL):
        """Send a signal and wait for the end; return the exit code."""
        process = self.running.pop(name)
        if process.returncode is None:
            process.send_signal(how)
        return await asyncio.wait_for(process.wait(), PATIENCE_S)

    def signal(self, name, which):
        self.running[name].send_signal(which)

    def has_ended(self, name):
        return self.running[name].returncode is not None

    def said(self):
        return self.log.read_text()[-6000:] if self.log.exists() else ""


class Broker:
    """What is stored for the app."""

    def __init__(self, js):
        self.js = js

    async def _get(self, stream, subject):
        try:
            return await self.js.get_msg(stream, subject=subject)
        except nats.js.errors.NotFoundError:
            return None

    async def committed(self):
        """The committed offset by partition, 0 where there is none."""
        offsets = {}
        bucket = bucket_name(APP)
        for partition in range(PARTITIONS):
            found = await self._get(f"KV_{bucket}", f"$KV.{bucket}.{offset_key(TOPIC, partition)}")
            offsets[partition] = json.loads(found.data)["offset"] or 0 if found else 0
        return offsets

    async def group(self):
        bucket = bucket_name(APP)
        found = await self._get(f"KV_{bucket}", f"$KV.{bucket}.group")
        return json.loads(found.data) if found else {"workers": {}, "leases": {}}

    async def owners(self):
        """How many partitions each worker has."""
        counts = {}
        for lease in (await self.group())["leases"].values():
            counts[lease["owner"]] = counts.get(lease["owner"], 0) + 1
        return counts

    async def is_worked_off(self):
        """Whether everything sent is committed."""
        committed = await self.committed()
        for partition in range(PARTITIONS):
            last = await self._get(stream_name(TOPIC), f"faust.{TOPIC}.{partition}.*")
            if last is not None and committed[partition] <= last.seq:
                return False
        return True

    async def table(self):
        """What the changelog says: (count, sum) by key."""
        stream = stream_name(f"{APP}-sums-changelog")
        info = await self.js.stream_info(stream, subjects_filter="faust.>")
        values = {}
        for subject in info.state.subjects or {}:
            found = await self._get(stream, subject)
            count, total, _ = json.loads(found.data)
            values[json.loads(key_in(subject.encode()))] = (count, total)
        return values


async def until(condition, workers, timeout_s=100.0):
    """Wait until `await condition()`; fail with what the workers said."""
    try:
        async with asyncio.timeout(timeout_s):
            while not (result := await condition()):  # noqa: ASYNC110 - the broker does not say
                await asyncio.sleep(0.05)
            return result
    except TimeoutError:
        raise AssertionError(f"not within {timeout_s} s\n{workers.said()}") from None
