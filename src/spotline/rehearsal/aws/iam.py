"""IAM: the roles that there are, and nothing else of it."""

from __future__ import annotations

import datetime
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from spotline.rehearsal.aws.service import AwsCall, AwsError
from spotline.rehearsal.aws.sts import role_id
from spotline.rehearsal.aws.wire.protocols import unknown_action

SPOT_ROLE = "AWSServiceRoleForEC2Spot"
"""Without this service-linked role an account gets no spot."""


class Iam:
    """The service.

    Parameters
    ----------
    roles
        ARNs of the roles of an account.
    began_ns
        When they were made, market time.
    """

    name = "iam"

    def __init__(self, roles: Callable[[str], tuple[str, ...]], *, began_ns: int) -> None:
        self._roles = roles
        self._made = datetime.datetime.fromtimestamp(began_ns // 10**9, tz=datetime.UTC)

    async def answer(self, call: AwsCall) -> Mapping[str, Any]:
        """Answer a call of IAM."""
        if call.operation != "GetRole":
            raise unknown_action(call.operation, "2010-05-08")
        wanted = call.params["RoleName"]
        for arn in (*self._roles(call.account_id), spot_role_arn(call.account_id)):
            path, _, name = arn.partition(":role")[2].rpartition("/")
            if name == wanted:
                return {"Role": self._told(arn, f"{path}/", name)}
        raise AwsError("NoSuchEntity", f"The role with name {wanted} cannot be found.", status=404)

    def _told(self, arn: str, path: str, name: str) -> dict[str, Any]:
        service = "spot.amazonaws.com" if name == SPOT_ROLE else "sts.amazonaws.com"
        trust = (
            '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"'
            f'{service}"}},"Action":"sts:AssumeRole"}}]}}'
        )
        return {
            "Path": path,
            "RoleName": name,
            "RoleId": role_id(arn),
            "Arn": arn,
            "CreateDate": self._made,
            # As IAM sends it: percent-encoded. botocore decodes it.
            "AssumeRolePolicyDocument": urllib.parse.quote(trust),
            "MaxSessionDuration": 3600,
        }


def spot_role_arn(account_id: str) -> str:
    """The service-linked role of spot of an account."""
    return f"arn:aws:iam::{account_id}:role/aws-service-role/spot.amazonaws.com/{SPOT_ROLE}"
