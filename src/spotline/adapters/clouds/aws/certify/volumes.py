"""Which volumes instances have: an export's lines of disks carry a volume's id, not an instance's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.calling import AwsReader, pages


async def volumes_of(
    reader: AwsReader, site: AwsPlace, instance_ids: Sequence[str]
) -> Mapping[str, tuple[str, ...]]:
    """Ids of the volumes of instances that are shown with any; of what has ended none are shown.

    Raises
    ------
    ProviderUnavailable
        AWS did not answer.
    """
    reservations = await pages(
        reader,
        (site.account, site.region, "ec2"),
        "DescribeInstances",
        "Reservations",
        # An unknown id among `InstanceIds` would fail the whole call.
        Filters=[{"Name": "instance-id", "Values": list(instance_ids)}],
    )
    found: dict[str, tuple[str, ...]] = {}
    for row in (row for one in reservations for row in one.get("Instances", ())):
        mappings = (mapping.get("Ebs", {}) for mapping in row.get("BlockDeviceMappings", ()))
        volumes = tuple(str(ebs["VolumeId"]) for ebs in mappings if ebs.get("VolumeId"))
        if volumes:
            found[str(row["InstanceId"])] = volumes
    return found
