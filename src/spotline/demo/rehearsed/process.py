"""The rehearsed cloud beside a demo: a process of its own, with its bill to compare with."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from spotline.contracts.errors import ConfigError, ProviderUnavailable
from spotline.runtime.time_limit import time_limit

REHEARSAL_AWS = "rehearsal-aws"
"""Of `spotline demo --cloud`."""

_SAID = "stderr.log"
_BEGINS_S, _ENDS_S, _ANSWERS_S = 60.0, 10.0, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedAws:
    """A rehearsal that answers.

    Parameters
    ----------
    config
        The `spotline.yaml` of its accounts and offerings.
    credentials
        The credentials of the first account, as AWS's shared file has them.
    """

    endpoint_url: str
    config: Path
    credentials: Path

    async def bill(self) -> Mapping[str, Any]:
        """Its bill by instance up to now; errors as `_got`."""
        return await asyncio.to_thread(_got, self.endpoint_url, "bill")

    async def state(self) -> Mapping[str, Any]:
        """What there is on it, and how many calls failed how; errors as `_got`."""
        return await asyncio.to_thread(_got, self.endpoint_url, "state")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceProgram:
    """What instances run: a command, and what their launch templates give them."""

    command: str
    user_data: Path

    @property
    def arguments(self) -> tuple[str, ...]:
        """As the rehearsal's command line has it."""
        return f"--instance-command={self.command}", f"--user-data={self.user_data}"


def _got(endpoint_url: str, name: str) -> Mapping[str, Any]:
    """What the control endpoint says; `ProviderUnavailable` where it does not answer."""
    where = urlsplit(endpoint_url)
    connection = http.client.HTTPConnection(
        where.hostname or "", where.port or 80, timeout=_ANSWERS_S
    )
    try:
        connection.request("GET", f"/_rehearsal/{name}")
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise ProviderUnavailable(f"the rehearsal answered {name} with {answer.status}")
        said: Mapping[str, Any] = json.loads(text)
        return said
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ProviderUnavailable(f"the rehearsal did not answer {name}: {error}") from error
    finally:
        connection.close()


@asynccontextmanager
async def rehearsed_aws(
    market: Path,
    state: Path,
    *,
    fail: float,
    seed: int,
    speed: float,
    instances: InstanceProgram | None = None,
) -> AsyncIterator[RehearsedAws]:
    """Run `spotline rehearse aws` on a market file; it ends with the block.

    Parameters
    ----------
    fail
        Share of calls that fail.
    speed
        Market seconds in a second of wall time.
    instances
        What each instance runs, as a process of this machine; None: nothing.

    Raises
    ------
    ConfigError
        It does not begin; says what it said.
    """
    with _said_to(state) as said:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "spotline.rehearsal.aws", "serve"),
            *(f"--market={market}", f"--state={state}", f"--fail={fail}"),
            *(f"--seed={seed}", f"--speed={speed}"),
            *(() if instances is None else instances.arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=said,
        )
    try:
        line = b""
        if process.stdout is not None:
            async with asyncio.timeout(_BEGINS_S):
                line = await process.stdout.readline()
        if not line:
            raise ConfigError(f"the rehearsal of AWS does not begin: {_last_said(state)}")
        ready = json.loads(line)
        yield RehearsedAws(
            endpoint_url=ready["endpoint_url"],
            config=Path(ready["config"]),
            credentials=Path(ready["credentials"]),
        )
    finally:
        await _ended(process)


def _said_to(state: Path) -> BinaryIO:
    state.mkdir(parents=True, exist_ok=True)
    return (state / _SAID).open("wb")


def _last_said(state: Path) -> str:
    lines = (state / _SAID).read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with time_limit(_ENDS_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


@contextmanager
def credentials_of(rehearsed: RehearsedAws) -> Iterator[None]:
    """Let this process come with the rehearsal's credentials, and no others."""
    ours = {
        "AWS_SHARED_CREDENTIALS_FILE": str(rehearsed.credentials),
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    others = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")
    before = {name: os.environ.get(name) for name in (*ours, *others)}
    for name in others:
        os.environ.pop(name, None)
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
