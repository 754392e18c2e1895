"""AWS as it is opened: with boto3, in the time that its settings say."""

from __future__ import annotations

from pathlib import Path

from spotline.adapters.clouds.aws.api import BotoApi
from spotline.adapters.clouds.aws.billing import AwsBiller
from spotline.adapters.clouds.aws.calling import AwsReader
from spotline.adapters.clouds.aws.clock import WallMarketClock
from spotline.adapters.clouds.aws.cloud import AwsCloud
from spotline.adapters.clouds.aws.feeds.on_demand import OnDemandPrices
from spotline.adapters.clouds.aws.settings import AwsSettings


def open_aws(folder: Path, settings: AwsSettings) -> AwsCloud:
    """Open AWS on a folder for what it must keep.

    Raises
    ------
    ConfigError
        boto3 is not installed, or the folder was written by another version.
    """
    return AwsCloud(
        folder / "aws.sqlite", settings, BotoApi(settings), WallMarketClock(settings.clock)
    )


def biller_of(cloud: AwsCloud, reader: AwsReader, settings: AwsSettings) -> AwsBiller:
    """What says in the end what the instances of a cloud cost; the caller closes the reader."""
    places = [(offering.region, offering.instance_type) for offering in settings.offerings]
    accounts = [account.name for account in settings.accounts]
    return AwsBiller(reader, settings, OnDemandPrices(reader, accounts, places), cloud.clock, cloud)
