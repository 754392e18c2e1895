"""AWS as it is opened: with boto3, in the time that its settings say."""

from __future__ import annotations

from pathlib import Path

from spotline.adapters.clouds.aws.api import BotoApi
from spotline.adapters.clouds.aws.clock import WallMarketClock
from spotline.adapters.clouds.aws.cloud import AwsCloud
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
