"""Looks at AWS that commands alone take: what they need is imported when they do.

Every process imports the cloud; the doctor and the certification are a good part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from spotline.adapters.clouds.aws.settings import AwsSettings
from spotline.application.cloud_checks import (
    CertifyPlan,
    CloudCheck,
    Examination,
    ReconciledLine,
)

if TYPE_CHECKING:
    from spotline.adapters.clouds.aws.certify.trial import AwsTrial


async def examined(settings: AwsSettings, plan: Examination) -> Sequence[CloudCheck]:
    """As `doctor.opening.examine_aws`."""
    from spotline.adapters.clouds.aws.doctor.opening import examine_aws

    return await examine_aws(settings, plan)


def certified(
    settings: AwsSettings, plan: CertifyPlan, folder: Path
) -> AbstractAsyncContextManager[AwsTrial]:
    """As `certify.opening.opened_trial`."""
    from spotline.adapters.clouds.aws.certify.opening import opened_trial

    return opened_trial(settings, plan, folder)


def reconciled(report: Path, export: Path) -> Sequence[ReconciledLine]:
    """As `certify.opening.reconciled_files`."""
    from spotline.adapters.clouds.aws.certify.opening import reconciled_files

    return reconciled_files(report, export)
