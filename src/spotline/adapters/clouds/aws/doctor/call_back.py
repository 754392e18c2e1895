"""An instance that calls back: what only a launch can show."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.calling import AwsReader, CallRefused
from spotline.adapters.clouds.aws.doctor.looking import Look, Unread, unread
from spotline.adapters.clouds.aws.settings import AwsOffering
from spotline.application.cloud_checks import CallBack, CloudCheck, failed, ok
from spotline.contracts.errors import ProviderUnavailable

_NAME = "instance calls back"
_LONGEST_LINE = 4096
_TRIES = 3
# curl is in most images, and where it is not, wget is.
_SCRIPT = """#!/bin/sh
url='{url}'
for _ in $(seq 60); do
  curl -fsS -m 5 "$url" && break
  wget -q -T 5 -O /dev/null "$url" && break
  sleep 2
done
shutdown -h now
"""


class CallBackListener:
    """Waits for one GET of a path that nobody can guess."""

    def __init__(self, token: str) -> None:
        self._path = f"/spotline-doctor/{token}"
        self._called = asyncio.Event()
        self._server: asyncio.Server | None = None

    @property
    def path(self) -> str:
        """What the instance has to get."""
        return self._path

    @property
    def port(self) -> int:
        """The port that is listened on."""
        if self._server is None:
            raise RuntimeError("the listener is not open")
        return int(self._server.sockets[0].getsockname()[1])

    async def open(self, host: str, port: int) -> None:
        """Begin to listen; port 0 takes a free one."""
        self._server = await asyncio.start_server(self._answer, host, port, limit=_LONGEST_LINE)

    async def called(self) -> None:
        """Return once it was called."""
        await self._called.wait()

    async def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5.0):
                line = (await reader.readline()).decode("latin-1").split(" ")
                ours = len(line) > 1 and line[0] == "GET" and line[1] == self._path
                writer.write(
                    b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"
                    if ours
                    else b"HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n"
                )
                await writer.drain()
            if ours:
                self._called.set()
        except (TimeoutError, ValueError, ConnectionError):
            # Whatever called so is not the instance: it is simply not answered.
            return
        finally:
            writer.close()


def launch_request(
    offering: AwsOffering, url: str, token: str, tags: Mapping[str, str]
) -> dict[str, Any]:
    """RunInstances for one on-demand instance that calls `url` and ends itself."""
    script = _SCRIPT.format(url=url)
    request: dict[str, Any] = {
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceType": offering.instance_type,
        "ClientToken": token,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "UserData": base64.b64encode(script.encode()).decode(),
        "LaunchTemplate": {
            "LaunchTemplateId": offering.launch_template_id,
            "Version": offering.launch_template_version,
        },
        "TagSpecifications": [
            {
                "ResourceType": "instance",
                "Tags": [{"Key": key, "Value": tags[key]} for key in sorted(tags)],
            }
        ],
    }
    if offering.subnet_id:
        request["SubnetId"] = offering.subnet_id
    return request


async def check_call_back(
    reader: AwsReader,
    site: AwsPlace,
    offering: AwsOffering,
    plan: CallBack,
    token: str,
    tags: Mapping[str, str],
) -> list[CloudCheck]:
    """Launch an instance, wait for its call, end it: whatever happens, it is asked to end."""
    where, look, listener = offering.offering_id, Look(reader, _NAME, site), CallBackListener(token)
    await listener.open(plan.host, plan.port)
    launched: list[str] = []
    try:
        url = f"http://{plan.advertised or f'{plan.host}:{listener.port}'}{listener.path}"
        request = launch_request(offering, url, token, tags)
        launched = await _launched(reader, look, request)
        async with asyncio.timeout(plan.wait_s):
            await listener.called()
        checks = [ok(_NAME, where, f"{', '.join(launched)} called {url}")]
    except Unread as error:
        checks = [error.check]
    except TimeoutError:
        checks = [
            failed(
                _NAME,
                where,
                f"{', '.join(launched)} did not call {url} within {plan.wait_s:g} s",
                "look at its console output; open the way from its subnet to that address",
            )
        ]
    finally:
        await listener.close()
        ended = await _end(look, launched) if launched else []
    return [*checks, *ended]


async def _launched(reader: AwsReader, look: Look, request: dict[str, Any]) -> list[str]:
    """The ids of what was launched. An answer that is lost is asked for again, by the same token."""
    site = look.site
    for _ in range(_TRIES - 1):
        try:
            answer = await reader.call(site.account, site.region, "ec2", "RunInstances", **request)
        except CallRefused as error:
            raise Unread(unread(look.name, str(site), "ec2", "RunInstances", error)) from error
        except ProviderUnavailable:
            # The same token launches nothing twice: the next answer says what there is.
            continue
        return [str(each["InstanceId"]) for each in answer.get("Instances", ())]
    answer = await look.ask("ec2", "RunInstances", **request)
    return [str(each["InstanceId"]) for each in answer.get("Instances", ())]


async def _end(look: Look, instance_ids: list[str]) -> list[CloudCheck]:
    try:
        await look.ask("ec2", "TerminateInstances", InstanceIds=instance_ids)
    except Unread as error:
        return [
            failed(
                _NAME,
                str(look.site),
                f"{', '.join(instance_ids)} could not be ended: {error.check.detail}",
                f"aws ec2 terminate-instances --instance-ids {' '.join(instance_ids)} "
                f"--region {look.site.region}",
            )
        ]
    return [ok("rights", str(look.site), f"TerminateInstances: ended {', '.join(instance_ids)}")]
