"""Have AWS interrupt one of our own spot instances, by its Fault Injection Service.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/initiate-a-spot-instance-interruption.html: the
notice comes two minutes before the instance is taken, as any other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.calling import AwsReader
from spotline.contracts.errors import ProviderUnavailable
from spotline.runtime.time_limit import time_limit

ACTION = "aws:ec2:send-spot-instance-interruptions"
_TARGET, _STEP = "ours", "interrupt"
# Instances go on costing meanwhile.
_DELETED_WITHIN_S = 15.0


@asynccontextmanager
async def interrupted(
    reader: AwsReader,
    site: AwsPlace,
    instance_arn: str,
    role_arn: str,
    token: str,
    *,
    stays: Callable[[str, str], None],
) -> AsyncIterator[None]:
    """Interrupt one instance; the template that this takes is deleted in the end.

    One that cannot be deleted is told to `stays`, by its id and with the reason: it costs nothing, and
    must not hide what went wrong before, or that time is up.

    Raises
    ------
    CallRefused, Throttled, ProviderUnavailable
        AWS does not do it.
    """
    where = (site.account, site.region, "fis")
    made = await reader.call(
        *where,
        "CreateExperimentTemplate",
        clientToken=token,
        description="Spotline: interrupt one instance of its own, to certify that it is noticed",
        roleArn=role_arn,
        stopConditions=[{"source": "none"}],
        targets={
            _TARGET: {
                "resourceType": "aws:ec2:spot-instance",
                "resourceArns": [instance_arn],
                "selectionMode": "ALL",
            }
        },
        actions={
            _STEP: {
                "actionId": ACTION,
                "parameters": {"durationBeforeInterruption": "PT2M"},
                "targets": {"SpotInstances": _TARGET},
            }
        },
        tags={"spotline-token": token},
    )
    template_id = str(made["experimentTemplate"]["id"])
    try:
        await reader.call(
            *where, "StartExperiment", clientToken=token, experimentTemplateId=template_id
        )
        yield
    finally:
        try:
            async with time_limit(_DELETED_WITHIN_S):
                # What it started goes on.
                await reader.call(*where, "DeleteExperimentTemplate", id=template_id)
        except TimeoutError:
            stays(template_id, f"not deleted within {_DELETED_WITHIN_S:g} s")
        except ProviderUnavailable as error:
            stays(template_id, str(error))
