"""The tags that an instance carries from its creation on: who ordered it, for whom, and as what.

Keys have no slash and no blank: so they may also be shown in an instance's metadata.
"""

from __future__ import annotations

from collections.abc import Mapping

from spotline.application.cloud_actuator.ports import LaunchRequest

OWNER = "spotline-owner"
EPOCH = "spotline-epoch"
INSTALLATION = "spotline-installation"
JOB = "spotline-job"
TENANT = "spotline-tenant"
TOKEN = "spotline-token"  # noqa: S105 - the key of a tag
OFFERING = "spotline-offering"
CAPACITY_TYPE = "spotline-capacity-type"
QUOTA_POOL = "spotline-quota-pool"
HOLD = "spotline-hold"
"""Set by a person: such an instance is never ended as an orphan."""

# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html: values of up to 256 characters.
MOST_VALUE = 256


def tags_of(request: LaunchRequest) -> Mapping[str, str]:
    """The tags of what a request launches.

    Raises
    ------
    ValueError
        One would be longer than a tag may be; names it.
    """
    tags = {
        OWNER: request.owner.name,
        EPOCH: str(request.owner.epoch),
        INSTALLATION: request.installation_id,
        JOB: request.job_id,
        TENANT: request.tenant,
        TOKEN: request.token,
        OFFERING: request.offering_id,
        CAPACITY_TYPE: request.capacity_type.value,
        QUOTA_POOL: request.quota_pool,
    }
    for key, value in tags.items():
        if len(value) > MOST_VALUE:
            raise ValueError(
                f"tag {key} must have at most {MOST_VALUE} characters, had {len(value)}"
            )
    return tags
