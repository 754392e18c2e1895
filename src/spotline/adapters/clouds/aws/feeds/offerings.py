"""AWS's offerings as markets know them."""

from __future__ import annotations

from spotline.adapters.clouds.aws.quotas import family_of
from spotline.adapters.clouds.aws.settings import AwsOffering
from spotline.domain.market.offering import AWS_BILLING, Offering


def market_offering(offering: AwsOffering) -> Offering:
    """The offering of a market that is sold by a launch template.

    A quota of EC2 counts the vCPUs of several families of types, in one region of one account: what
    shares a quota shares a pool.
    """
    family = family_of(offering.instance_type) or offering.instance_type.partition(".")[0]
    return Offering(
        offering_id=offering.offering_id,
        provider="aws",
        account=offering.account,
        region=offering.region,
        zone=offering.zone,
        instance_type=offering.instance_type,
        gpu_model=offering.gpu_model,
        gpus_per_instance=offering.gpus_per_instance,
        quota_pool=f"aws:{offering.account}:{offering.region}:{family}",
        notice_lead_s=0,
        reservation=offering.reservation,
        billing=AWS_BILLING,
        disks=offering.disks,
    )
