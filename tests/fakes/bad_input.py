"""What wrong inputs are tried on: files as bad as they come, and a whole system to ask."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import threading
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pyarrow
from google.protobuf import json_format
from google.protobuf.message import Message
from google.rpc import error_details_pb2 as details
from google.rpc.status_pb2 import Status
from pyarrow import parquet

from spotline.adapters.files.job_file import parse_job_file
from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.grpc.kit.errors import STATUS_KEY
from spotline.adapters.market.parquet import METADATA_KEY, write_market
from spotline.api.v1 import (
    agent_service_pb2,
    allocator_service_pb2,
    analytics_service_pb2,
    configuration_service_pb2,
    job_service_pb2,
    placement_service_pb2,
)
from spotline.bootstrap.parts import open_stream
from spotline.bootstrap.system import FREE_ADDRESS, SystemOptions, running_system
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.contracts.subjects import subjects_with
from spotline.demo.submission import submit_until_taken
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.runtime.timers import Timer
from tests.eventually import eventually

START_NS = 1_772_323_200 * 10**9  # 2026-03-01T00:00:00Z
SLOTS_OPENED = 2

# A job that the system knows before anything else is asked of it.
KNOWN_JOB = """
tenant: research
request_id: known
work: {amount: 8, unit: instance_hours}
deadline: {hard: 2026-03-02T00:00:00Z}
value_usd: 400
instances: {min: 1, max: 4}
throughput: {"*": {alpha_per_hour: 1}}
"""

_SERVICES = {
    name: descriptor
    for module in (
        agent_service_pb2,
        allocator_service_pb2,
        analytics_service_pb2,
        configuration_service_pb2,
        job_service_pb2,
        placement_service_pb2,
    )
    for name, descriptor in module.DESCRIPTOR.services_by_name.items()
}
_ADDRESSES = {
    "AgentService": "agents",
    "AllocatorService": "allocator",
    "JobService": "allocator",
    "AnalyticsService": "analytics",
    "ConfigurationService": "configurator",
    "PlacementService": "placer",
}

AnswerT = TypeVar("AnswerT")


def small_market() -> Market:
    """Three offerings over a day and a half, in slots of half an hour."""
    return generate("mixed", seed=11, slots=72, slot_s=1800, start_ns=START_NS)


# --- files ------------------------------------------------------------------------------------


def write_files(folder: Path, files: Mapping[str, Any]) -> None:
    """Make the files of a case in a folder.

    A mapping says what is no text: `bytes` (one for a character), `text` in an `encoding`, `repeat`
    (a text and how often), `zeros` (how many bytes), `folder`, `fifo` or `link` (to where), or a
    `market` as `small_market` but for what `write_changed_market` is told.
    """
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        match content:
            case str():
                path.write_text(content, encoding="utf-8", newline="")
            case {"bytes": text}:
                path.write_bytes(text.encode("latin-1"))
            case {"text": text, "encoding": encoding}:
                path.write_bytes(text.encode(encoding))
            case {"repeat": [text, times], **around}:
                whole = around.get("before", "") + text * times + around.get("after", "")
                path.write_text(whole, encoding="utf-8", newline="")
            case {"zeros": count}:
                with path.open("wb") as stream:
                    stream.truncate(count)
            case {"folder": _}:
                path.mkdir()
            case {"market": changes}:
                write_changed_market(path, changes)
            case {"fifo": _}:
                os.mkfifo(path)
            case {"link": target}:
                path.symlink_to(target)
            case _:
                raise ValueError(f"{name}: unknown kind of file {content}")


def write_changed_market(path: Path, changes: Mapping[str, Any]) -> None:
    """Write the small market, changed.

    `cells` maps a column to values by row (from 1), `types` a column to another type of Arrow's,
    `drop` lists columns to leave out, `rows` says how many to keep, `header` has keys of the
    metadata with other values, `offering` those of the first offering; `cut_bytes` are taken off
    the end, and `no_metadata` leaves the header out.
    """
    write_market(small_market(), path)
    table = parquet.ParquetFile(path).read()
    header = json.loads(table.schema.metadata[METADATA_KEY.encode()])
    header["offerings"][0].update(changes.get("offering", {}))
    header.update(changes.get("header", {}))
    columns = {name: table.column(name) for name in table.column_names}
    for name, cells in changes.get("cells", {}).items():
        values = columns[name].to_pylist()
        for row, value in cells.items():
            values[int(row) - 1] = value
        columns[name] = pyarrow.array(values, columns[name].type)
    for name, kind in changes.get("types", {}).items():
        columns[name] = columns[name].cast(kind)
    for name in changes.get("drop", ()):
        del columns[name]
    changed = pyarrow.table(columns).slice(0, changes.get("rows", table.num_rows))
    if not changes.get("no_metadata"):
        changed = changed.replace_schema_metadata({METADATA_KEY: json.dumps(header)})
    parquet.write_table(changed, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - changes.get("cut_bytes", 0)])


def everything_in(folder: Path) -> list[str]:
    """The paths below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# --- the system -------------------------------------------------------------------------------


class AskedSystem:
    """Every service over one broker, in a thread; its market stands still after two slots."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="asked system", daemon=True)

    def __enter__(self) -> AskedSystem:
        self._thread.start()
        self._ready.wait()
        if self._failed is not None:
            raise self._failed
        return self

    def __exit__(self, *exit_info: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # noqa: BLE001 -- raised again where it is waited for
            self._failed = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        submitted = asyncio.Event()

        async def gate(timer: Timer) -> None:
            slot = int(timer.timer_id.removeprefix("slot:"))
            if slot >= SLOTS_OPENED:
                await asyncio.Event().wait()
            elif slot:
                await submitted.wait()

        options = SystemOptions(market=small_market(), store=self._folder)
        async with (
            running_system(options, gate=gate) as self.system,
            open_stream(self.system.bus, name="asked") as (_, self.stream),
        ):
            async with JobClient(self.system.allocator_address) as client:
                await submit_until_taken(client, parse_job_file(KNOWN_JOB))
                submitted.set()
            await self._reported()
            await self._at_rest()
            self._ready.set()
            await self._stop.wait()

    async def _reported(self) -> None:
        """Wait until the actuator has reported on each slot: what it says last of one."""
        subjects, told = subjects_with([CapacityReported]), 0
        subscription = await self.stream.subscribe("asked", subjects)
        while told < SLOTS_OPENED:
            for entry in await subscription.fetch(limit=50, timeout_s=1.0):
                await subscription.ack(entry)
                events = [event_of(said) for said in unpacked(entry)]
                told += sum(isinstance(event, CapacityReported) for event in events)
        await subscription.close()

    async def _at_rest(self) -> None:
        """Wait until every service has applied all that is stored."""
        last = -1
        while last != (last := await self.stream.last_seq()):
            await eventually(self._healthy)

    def _healthy(self) -> bool:
        return all(host.health().healthy for host in self.system.probes.hosts.values())

    def stored(self) -> int:
        """How many entries the log has, once nothing is under way."""
        return self._do(self._settled())

    async def _settled(self) -> int:
        await self._at_rest()
        return await self.stream.last_seq()

    def _do(self, work: Awaitable[AnswerT]) -> AnswerT:
        async def awaited() -> AnswerT:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(60)

    def address(self, name: str) -> str:
        """Where a service listens: `allocator`, `agents`, `configurator`, `placer`, `analytics`."""
        return str(getattr(self.system, f"{name}_address"))

    def environment(self, command: str) -> dict[str, str]:
        """What leads commands to this system; one of their own listens anywhere."""
        addresses = {
            f"SPOTLINE_{name.upper()}_ADDRESS": FREE_ADDRESS if command == "up" else address
            for name in ("allocator", "agents", "configurator", "placer", "analytics")
            for address in (self.address(name),)
        }
        return addresses | {"SPOTLINE_HTTP_ADDRESS": FREE_ADDRESS}

    def ask(
        self, method: str, request: Message | bytes, metadata: Sequence[tuple[str, str]] = ()
    ) -> Message:
        """Call `Service.Method`; raises `grpc.RpcError`."""
        service, _, name = method.partition(".")
        found = _SERVICES[service].methods_by_name[name]
        answer_type = message_type(found.output_type)
        with self._channel(service) as channel:
            path = f"/{_SERVICES[service].full_name}/{name}"
            kind = "stream" if found.client_streaming else "unary"
            kind += "_stream" if found.server_streaming else "_unary"
            call = getattr(channel, kind)(
                path,
                request_serializer=lambda said: (
                    said if isinstance(said, bytes) else said.SerializeToString()
                ),
                response_deserializer=answer_type.FromString,
            )
            sent: Any = iter([request]) if found.client_streaming else request
            answer = call(sent, timeout=30, metadata=tuple(metadata))
            return next(iter(answer)) if found.server_streaming else answer

    def _channel(self, service: str) -> grpc.Channel:
        address = self.address(_ADDRESSES[service])
        if service != "AgentService":
            return grpc.insecure_channel(address)
        ca = (self._folder / "agents" / "ca.pem").read_bytes()
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(ca))


def message_type(descriptor: Any) -> type[Any]:
    """The class of a message."""
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(descriptor)


def request_of(method: str, said: Mapping[str, Any]) -> Message:
    """The request of `Service.Method` from its JSON."""
    service, _, name = method.partition(".")
    message = message_type(_SERVICES[service].methods_by_name[name].input_type)()
    return json_format.ParseDict(dict(said), message)


def changed(base: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A request with other values at some paths (`job.offerings.0`); null takes them away.

    `{repeat: [x, 5000]}` is a text of so many.
    """
    whole: Any = copy.deepcopy(base)
    for path, value in changes.items():
        if isinstance(value, dict) and "repeat" in value:
            text, times = value["repeat"]
            value = text * times
        *before, last = path.split(".")
        inner = whole
        for step in before:
            inner = inner[int(step)] if isinstance(inner, list) else inner.setdefault(step, {})
        if isinstance(inner, list):
            inner[int(last)] = value
        elif value is None:
            inner.pop(last, None)
        else:
            inner[last] = value
    return whole


def refusal_of(error: Any) -> tuple[str, str, str, list[str]]:
    """Status, message, reason and `field: description` of every field at fault."""
    trailing = dict(error.trailing_metadata() or ())
    status = Status.FromString(trailing.get(STATUS_KEY, b""))
    reason, fields = "", []
    for packed in status.details:
        info, bad = details.ErrorInfo(), details.BadRequest()
        if packed.Unpack(info):
            reason = info.reason
        elif packed.Unpack(bad):
            fields = [f"{said.field}: {said.description}" for said in bad.field_violations]
    return error.code().name, error.details(), reason, fields
