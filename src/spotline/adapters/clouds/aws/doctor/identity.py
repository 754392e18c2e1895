"""Who we are to AWS: credentials, roles, clocks, and the role that spot needs."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from spotline.adapters.clouds.aws.calling import AwsReader, CallRefused
from spotline.adapters.clouds.aws.doctor.looking import unread
from spotline.adapters.clouds.aws.feeds.feed import FeedWall
from spotline.adapters.clouds.aws.settings import AwsAccount
from spotline.application.cloud_checks import CloudCheck, failed, left_open, ok, warning
from spotline.contracts.errors import ConfigError, ProviderUnavailable
from spotline.domain.units import NS_PER_S

# "AWS requires a request to be signed within five minutes of its time stamp":
# https://docs.aws.amazon.com/IAM/latest/UserGuide/signature-v4-troubleshooting.html
REFUSED_SKEW_S = 300
# Dates of HTTP have whole seconds, and an answer takes a while.
CAREFUL_SKEW_S = 30

SPOT_ROLE = "AWSServiceRoleForEC2Spot"
# IAM is one service for all regions, signed for this one.
_IAM_REGION = "us-east-1"
_NO_ROLE = frozenset({"NoSuchEntity", "NoSuchEntityException"})


async def check_identity(
    reader: AwsReader, account: AwsAccount, region: str, wall: FeedWall
) -> list[CloudCheck]:
    """Whether we act in the account that is meant, by a clock that AWS accepts."""
    name, where = "credentials", account.name
    began_ns = wall.now_ns()
    try:
        answer = await reader.call(account.name, region, "sts", "GetCallerIdentity")
    except CallRefused as error:
        step = (
            f"let {account.role_arn} trust this caller"
            + (", with the external id that is stated" if account.external_id else "")
            if account.role_arn
            else "renew the credentials of the environment, profile or instance"
        )
        return [failed(name, where, f"{error.code}: {error.message}", step)]
    except ConfigError as error:
        return [failed(name, where, str(error), "log in, as with aws sso login, or set a profile")]
    except ProviderUnavailable as error:
        return [unread(name, where, "sts", "GetCallerIdentity", error)]
    found, arn = str(answer.get("Account", "")), str(answer.get("Arn", ""))
    skew = _clock(answer, where, (began_ns + wall.now_ns()) // 2)
    if found != account.account_id:
        return [
            failed(
                name,
                where,
                f"they are of account {found} ({arn}), not of {account.account_id}",
                f"set role_arn of {account.name}, or use credentials of that account",
            ),
            skew,
        ]
    by = f"assumed {account.role_arn}" if account.role_arn else "of the environment"
    guarded = ", with an external id" if account.external_id else ""
    return [ok(name, where, f"{arn} ({by}{guarded})"), skew]


async def check_spot_role(reader: AwsReader, account: AwsAccount) -> list[CloudCheck]:
    """Whether the account has the role without which AWS sells it no spot."""
    name, where = "spot role", account.name
    try:
        await reader.call(account.name, _IAM_REGION, "iam", "GetRole", RoleName=SPOT_ROLE)
    except CallRefused as error:
        if error.code in _NO_ROLE:
            return [
                failed(
                    name,
                    where,
                    f"{SPOT_ROLE} is not there: every spot request is refused",
                    "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
                )
            ]
        return [unread(name, where, "iam", "GetRole", error)]
    except ProviderUnavailable as error:
        return [unread(name, where, "iam", "GetRole", error)]
    return [ok(name, where, f"{SPOT_ROLE} is there")]


def _clock(answer: object, where: str, now_ns: int) -> CloudCheck:
    """How far our clock is from that of AWS, by the date of its answer."""
    name = "clock"
    headers = {}
    if isinstance(answer, dict):
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        theirs = parsedate_to_datetime(str(headers.get("date", "")))
    except ValueError:
        return left_open(name, where, "the answer had no date")
    skew_s = now_ns / NS_PER_S - theirs.timestamp()
    said = f"{skew_s:+.0f} s from AWS's"
    step = "synchronise this machine's clock (chrony, systemd-timesyncd)"
    if abs(skew_s) >= REFUSED_SKEW_S:
        return failed(name, where, f"{said}: signatures are refused", step)
    if abs(skew_s) >= CAREFUL_SKEW_S:
        return warning(name, where, said, step)
    return ok(name, where, said)
