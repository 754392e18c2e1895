"""Build the images, bring the compose stack up, and use it: `make test-images`.

With Docker where an engine answers, else with Podman. A job is submitted from outside and completes
though services are killed; the market waits before it, and again after it, for the next one. Takes
everything down in the end; Podman's storage with the layers of the images stays for the next run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from spotline.adapters.market.parquet import write_market
from spotline.bootstrap.deployed_keys import deploy_keys
from spotline.domain.market.generate import generate
from tools.images.engine import ROOT, MissingPart, engine_here
from tools.images.stack import Stack, TooLate, eventually, folder_readable_by_all
from tools.images.stand_ins import provide_public_images

# 2026-03-01T00:00:00Z, as the example job has it; two weeks of half-hour slots.
_START_NS = 1_772_323_200_000_000_000
_SLOTS = 672
_FIRST_JOB = ROOT / "docs/examples/job.yaml"
_SECOND_JOB = """\
tenant: research
request_id: second
work: {amount: 24, unit: instance_hours}
deadline: {hard: 2026-03-06T00:00:00Z}
value_usd: 1500
instances: {min: 1, max: 4}
throughput: {"*": {alpha_per_hour: 1.0}}
"""
_HEALTHY_S = 300
_COMPLETED_S = 420
_RECOVERED_S = 180
_LEARNED_S = 600
_GOING_ON = ("pending", "running")
# The market opens a slot a second: where none comes for so long it waits for work.
_RESTED_S = 5.0


class Failed(Exception):
    """The stack did not do what it should."""


def main() -> None:
    """Run the test; exit 0 where all went well, 1 where not, 2 where a part is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument(
        "--storage",
        type=Path,
        default=cache / "spotline" / "podman",
        help="where Podman keeps its images (8 GB)",
    )
    arguments = parser.parse_args()
    # What ends the program takes the stack down first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run(arguments.storage.resolve())
    except MissingPart as missing:
        sys.exit(_said(f"cannot test the images here:\n{missing}", code=2))
    except (Failed, TooLate) as error:
        sys.exit(_said(f"FAILED: {error}", code=1))
    _said("all well")


def run(storage: Path) -> None:
    """Build, try and take down.

    Raises
    ------
    MissingPart
        No engine is ready.
    Failed, TooLate
        The stack did not do what it should.
    """
    engine = engine_here(storage)
    _said(f"engine: {engine.name}")
    provided = provide_public_images(engine)
    for line in provided.said:
        _said(line)
    base = ("--build-arg", f"PYTHON_IMAGE={provided.base}")
    engine = replace(engine, build_arguments=(*engine.build_arguments, *base))
    with tempfile.TemporaryDirectory() as folder:
        market = generate("mixed", seed=7, slots=_SLOTS, slot_s=1800, start_ns=_START_NS)
        write_market(market, Path(folder) / "market.parquet")
        identity = Path(folder) / "identity"
        deploy_keys(Path(folder))
        stack = Stack(
            engine,
            f"spotline-test-{os.getpid()}",
            {
                "SPOTLINE_MARKET_DIR": str(folder_readable_by_all(Path(folder))),
                "SPOTLINE_KNOWLEDGE_DIR": folder,
                "SPOTLINE_NOTIFY_DIR": folder,
                "SPOTLINE_IDENTITY_DIR": str(identity),
                "SPOTLINE_SLOTS_PER_S": "1",
                "SPOTLINE_NATS_IMAGE": provided.broker,
            },
            shown={
                "SPOTLINE_CA": str(identity / "ca.pem"),
                "SPOTLINE_TOKEN_FILE": str(identity / "tokens" / "owner.key"),
            },
        )
        try:
            bring_up(stack)
            use(stack)
        except (Failed, TooLate):
            for service in stack.services():
                if stack.containers(service):
                    print(f"--- {service}\n{stack.logs(service)}", file=sys.stderr)
            raise
        finally:
            left = stack.take_down()
            _said(f"taken down; left: {', '.join(left) or 'nothing'}")
        if left:
            raise Failed("something is left behind")


def bring_up(stack: Stack) -> None:
    """Build every image and wait until every service is healthy."""
    # One after the other: they share all layers but the last.
    for service in stack.services():
        if service != "nats":
            stack.build(service)
            _said(f"built {service}")
    stack.compose("up", "--detach")
    for service in stack.services():
        healthy(stack, service, within_s=_HEALTHY_S)
    _said(f"{len(stack.services())} containers are healthy")


def use(stack: Stack) -> None:
    """Submit jobs, kill services meanwhile, and look whether anything is lost."""
    eventually("the first slot", stack.slots_opened, within_s=_RECOVERED_S)
    _check(stack.slots_opened() == 1, "the market waits for its first job, at its first slot")

    first = submitted(stack, _FIRST_JOB)
    advanced(stack, first)
    for service in ("selector", "cloud_actuator"):
        recovered(stack, service)
    completed(stack, first)
    done = at_rest(stack, first)
    _said(f"the job completed, {_usd(done)} spent, {stack.slots_opened()} slots opened")

    for service in ("allocator", "nats"):
        recovered(stack, service)
        again = eventually(
            f"status after {service}", lambda: stack.status(first), within_s=_RECOVERED_S
        )
        changed = _changed(done, again)
        _check(
            not changed,
            f"the job's state is the same after {service} was killed{changed and f', not {changed}'}",
        )

    _check(stack.slots_opened() < _SLOTS, "the market is not over")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(_SECOND_JOB)
        file.flush()
        done = completed(stack, submitted(stack, Path(file.name)))
    _said(f"a second job found the market as the first one left it, and completed, {_usd(done)}")
    # When its deadline has passed the selector learns from a job, and first compiles for that.
    for service in stack.services():
        healthy(stack, service, within_s=_LEARNED_S)


def _changed(before: dict[str, Any], after: dict[str, Any], within: str = "") -> str:
    """What of a status is another."""
    found = []
    for key in sorted(before.keys() | after.keys()):
        was, now = before.get(key), after.get(key)
        if was == now:
            continue
        if isinstance(was, dict) and isinstance(now, dict):
            found.append(_changed(was, now, f"{within}{key}."))
        else:
            found.append(f"{within}{key} from {was} to {now}")
    return ", ".join(filter(None, found))


def submitted(stack: Stack, file: Path) -> str:
    """Hand a job over through the published port, and return its id."""
    done = stack.cli("submit", str(file))
    if done.returncode:
        raise Failed(f"submit: {done.stdout}{done.stderr}")
    return str(json.loads(done.stdout)["job_id"])


def advanced(stack: Stack, job_id: str) -> None:
    """Wait until a job runs and has got somewhere."""

    def progress() -> bool:
        status = stack.status(job_id)
        return status is not None and status["state"] == "running" and status["progress_ppm"] > 0

    eventually("progress of the job", progress, within_s=_RECOVERED_S)
    _said("the job runs")


def completed(stack: Stack, job_id: str) -> dict[str, Any]:
    """Wait until a job is over, and return how it ended."""

    def over() -> dict[str, Any] | None:
        status = stack.status(job_id)
        return status if status is not None and status["state"] not in _GOING_ON else None

    status = eventually("the job's end", over, within_s=_COMPLETED_S)
    if status["state"] != "completed":
        raise Failed(f"the job ended {status['state']}: {status}")
    return status


def at_rest(stack: Stack, job_id: str) -> dict[str, Any]:
    """Wait until the market waits for work, and return where a job stands then.

    It goes on until the job's deadline has passed, when the selector learns from it, and what rules would
    have cost by then goes on with it.
    """
    seen = stack.slots_opened(), time.monotonic()

    def rests() -> dict[str, Any] | None:
        nonlocal seen
        opened, now_s = stack.slots_opened(), time.monotonic()
        if opened != seen[0]:
            seen = opened, now_s
        return stack.status(job_id) if now_s - seen[1] > _RESTED_S else None

    return eventually("the market at rest", rests, within_s=_RECOVERED_S)


def recovered(stack: Stack, service: str) -> None:
    """Kill a service and wait until it is back."""
    before = stack.started_at(service)
    said = stack.kill(service)
    eventually(
        f"{service} started again{said and f' (killing it said: {said})'}",
        lambda: stack.started_at(service) != before,
        within_s=_RECOVERED_S,
    )
    healthy(stack, service, within_s=_RECOVERED_S)
    _said(f"killed {service}; it came back")


def healthy(stack: Stack, service: str, *, within_s: float) -> None:
    """Wait until a service's health check passes."""
    eventually(f"{service} healthy", lambda: stack.healthy(service), within_s=within_s)


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise Failed(f"expected: {what}")
    _said(what)


def _usd(status: dict[str, Any]) -> str:
    return f"{status['cost_micro_usd'] / 1e6:.2f} USD"


def _said(line: str, *, code: int = 0) -> int:
    print(f"{time.monotonic() - _BEGAN_S:6.0f} s  {line}", flush=True)
    return code


_BEGAN_S = time.monotonic()

if __name__ == "__main__":
    main()
