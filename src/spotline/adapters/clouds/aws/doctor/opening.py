"""The doctor as it is opened on AWS."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.adapters.clouds.aws.calls import EXAMINING
from spotline.adapters.clouds.aws.doctor.examination import examine
from spotline.adapters.clouds.aws.feeds.wall import SystemWall
from spotline.adapters.clouds.aws.reader import ApiReader
from spotline.adapters.clouds.aws.settings import AwsSettings
from spotline.application.cloud_checks import CloudCheck, Examination


async def examine_aws(settings: AwsSettings, plan: Examination) -> Sequence[CloudCheck]:
    """Look at all accounts, regions and offerings.

    Raises
    ------
    ConfigError
        boto3 is not installed.
    """
    reader = ApiReader(settings, EXAMINING)
    try:
        return await examine(reader, settings, SystemWall(), plan)
    finally:
        reader.close()
