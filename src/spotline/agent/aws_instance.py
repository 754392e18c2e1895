"""What an instance of EC2 learns of itself: which it is, where its control plane is, what proves it.

Nobody hands a secret to an instance: its user data says where to dial, and its identity document,
which AWS signs, who it is.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from spotline.agent.aws_metadata import Metadata
from spotline.contracts.errors import ContractError

CONTROL_TAG = "spotline-control"
"""Tag of an instance that says `HOST:PORT` of the control plane, where its metadata shows tags."""

_IDENTITY = "/latest/dynamic/instance-identity"
# A line of a file of variables, or of a shell script or cloud-init file that sets them.
_VARIABLE = re.compile(r"^\s*(?:export\s+|-\s+)?(SPOTLINE_[A-Z0-9_]+)=(.*)$", re.MULTILINE)
_PEM = "-----BEGIN"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsInstance:
    """What an instance says of itself: its document, signed, and variables that it was given."""

    instance_id: str
    region: str
    document: str
    signature: str
    variables: Mapping[str, str]

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The agent's environment: what is stated there comes before what the instance was given."""
        return {
            **self.variables,
            "SPOTLINE_CLOUD_KIND": "aws",
            **{name: value for name, value in environ.items() if value.strip()},
            "SPOTLINE_INSTANCE_ID": self.instance_id,
        }


def read_instance(metadata: Metadata) -> AwsInstance:
    """Ask the metadata service; blocks for seconds at most.

    Raises
    ------
    ProviderUnavailable
        It does not answer.
    ContractError
        What it says is not what it is documented to.
    """
    document = _needed(metadata, f"{_IDENTITY}/document")
    try:
        said = json.loads(document)
        instance_id, region = str(said["instanceId"]), str(said["region"])
    except (ValueError, KeyError, TypeError) as error:
        problem = f"expected a JSON object with instanceId and region, found {document[:200]!r}"
        raise ContractError("instance-identity/document", problem) from error
    variables = given(metadata.get("/latest/user-data") or "")
    tagged = metadata.get(f"/latest/meta-data/tags/instance/{CONTROL_TAG}")
    if tagged and "SPOTLINE_CONTROL" not in variables:
        variables["SPOTLINE_CONTROL"] = tagged.strip()
    return AwsInstance(
        instance_id=instance_id,
        region=region,
        document=document,
        signature=_needed(metadata, f"{_IDENTITY}/signature"),
        variables=variables,
    )


def given(user_data: str) -> dict[str, str]:
    """The `SPOTLINE_*` that user data sets, a line each: `NAME=VALUE`, as a shell reads it.

    A certificate may stand there as the base64 of its PEM, in one line.
    """
    variables: dict[str, str] = {}
    for name, value in _VARIABLE.findall(user_data):
        try:
            words = shlex.split(value, comments=True)
        except ValueError as error:
            raise ContractError(f"user data: {name}", f"expected one word, {error}") from error
        variables[name] = words[0] if words else ""
    certificate = variables.get("SPOTLINE_CONTROL_CA", "")
    if certificate and _PEM not in certificate:
        variables["SPOTLINE_CONTROL_CA"] = _unpacked(certificate)
    return variables


def _unpacked(certificate: str) -> str:
    """The PEM of which it is the base64, or what it is: the name of a file."""
    try:
        text = base64.b64decode(certificate, validate=True).decode()
    except (binascii.Error, ValueError):
        return certificate
    return text if _PEM in text else certificate


def _needed(metadata: Metadata, path: str) -> str:
    text = metadata.get(path)
    if not text:
        raise ContractError(path, "expected a text, and there is none: is this an instance of EC2?")
    return text
