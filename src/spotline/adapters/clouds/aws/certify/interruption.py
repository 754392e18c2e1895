"""Have AWS interrupt one of our own spot instances, by its Fault Injection Service.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/initiate-a-spot-instance-interruption.html: the
notice comes two minutes before the instance is taken, as any other.
"""

from __future__ import annotations

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.calling import AwsReader

ACTION = "aws:ec2:send-spot-instance-interruptions"
_TARGET, _STEP = "ours", "interrupt"


async def start_interruption(
    reader: AwsReader, site: AwsPlace, instance_arn: str, role_arn: str, token: str
) -> str:
    """Begin to interrupt one instance; returns the id of the template, which is to be deleted.

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
    except BaseException:
        await delete_template(reader, site, template_id)
        raise
    return template_id


async def delete_template(reader: AwsReader, site: AwsPlace, template_id: str) -> None:
    """Delete a template; what it started goes on."""
    await reader.call(site.account, site.region, "fis", "DeleteExperimentTemplate", id=template_id)
