"""Instance metadata (IMDSv2): each instance at a URL of its own, `.../i-0123456789abcdef0/`.

There is no other way in: without a token nothing is told, as where `HttpTokens` is `required`.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from spotline.rehearsal.aws.identity import IdentitySigner, document_of

_TTL = "x-aws-ec2-metadata-token-ttl-seconds"
_TOKEN = "x-aws-ec2-metadata-token"  # noqa: S105 - a header's name
# "The token TTL, in seconds, with a maximum value of six hours".
_LONGEST_TTL_S = 21_600


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceMetadata:
    """What an instance is told of itself. Times are market time; None: there is no such notice."""

    instance_id: str
    account_id: str
    region: str
    zone: str
    instance_type: str
    image_id: str
    private_ip: str
    lifecycle: str
    launched_ns: int
    reservation_id: str = ""
    placement_group: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    user_data: bytes = b""
    taken_ns: int | None = None
    rebalance_ns: int | None = None


class MetadataService:
    """Answers instances over HTTP.

    Parameters
    ----------
    find
        What an instance of that id is told now; None: none is there that could ask.
    signer
        Signs identity documents.
    secret
        What tokens are proved with.
    wall_ns
        Wall time, by which tokens end.
    """

    def __init__(
        self,
        find: Callable[[str], InstanceMetadata | None],
        signer: IdentitySigner,
        *,
        secret: bytes,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._find = find
        self._signer = signer
        self._secret = secret
        self._wall_ns = wall_ns

    async def handle(self, request: Request) -> Response:
        """Answer one request."""
        instance_id, _, path = request.url.path.removeprefix("/").partition("/")
        told = self._find(instance_id)
        if told is None:
            return PlainTextResponse("Not Found", status_code=404)
        version, _, below = path.partition("/")
        if version != "latest" and not _is_date(version):
            return PlainTextResponse("Not Found", status_code=404)
        if request.method == "PUT":
            return self._give_token(request, instance_id, below)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("Method Not Allowed", status_code=405)
        if not self._known(instance_id, request.headers.get(_TOKEN, "")):
            return PlainTextResponse("Unauthorized", status_code=401)
        return self._tell(told, below)

    def _give_token(self, request: Request, instance_id: str, below: str) -> Response:
        if below != "api/token":
            return PlainTextResponse("Method Not Allowed", status_code=405)
        if "x-forwarded-for" in request.headers:
            # What came through a proxy is not of the instance.
            return PlainTextResponse("Forbidden", status_code=403)
        ttl = request.headers.get(_TTL, "")
        if not ttl.isdecimal() or not 1 <= int(ttl) <= _LONGEST_TTL_S:
            return PlainTextResponse("Bad Request", status_code=400)
        ends_ns = self._wall_ns() + int(ttl) * 10**9
        token = f"{ends_ns:x}-{self._proof(instance_id, ends_ns)}"
        return PlainTextResponse(token, headers={_TTL: ttl})

    def _known(self, instance_id: str, token: str) -> bool:
        ends, _, proof = token.partition("-")
        try:
            ends_ns = int(ends, 16)
        except ValueError:
            return False
        proved = hmac.compare_digest(proof, self._proof(instance_id, ends_ns))
        return proved and self._wall_ns() < ends_ns

    def _proof(self, instance_id: str, ends_ns: int) -> str:
        said = f"{instance_id} {ends_ns}".encode()
        return hmac.new(self._secret, said, hashlib.sha256).hexdigest()

    def _tell(self, told: InstanceMetadata, below: str) -> Response:
        category, _, rest = below.partition("/")
        if category == "meta-data":
            return _found(metadata_of(told), rest)
        if below == "user-data" and told.user_data:
            return Response(told.user_data, media_type="application/octet-stream")
        if category == "dynamic":
            return _found(self._identity_of(told), rest)
        return PlainTextResponse("Not Found", status_code=404)

    def _identity_of(self, told: InstanceMetadata) -> Mapping[str, str]:
        document = document_of(
            {
                "accountId": told.account_id,
                "architecture": "x86_64",
                "availabilityZone": told.zone,
                "imageId": told.image_id,
                "instanceId": told.instance_id,
                "instanceType": told.instance_type,
                "pendingTime": _time(told.launched_ns),
                "privateIp": told.private_ip,
                "region": told.region,
            }
        )
        return {
            "instance-identity/document": document.decode(),
            "instance-identity/pkcs7": self._signer.pkcs7(document),
            "instance-identity/rsa2048": self._signer.pkcs7(document),
            "instance-identity/signature": self._signer.signature(document),
        }


def metadata_of(told: InstanceMetadata) -> Mapping[str, str]:
    """All below `meta-data/`, by path."""
    host = f"ip-{told.private_ip.replace('.', '-')}.{told.region}.compute.internal"
    texts = {
        "ami-id": told.image_id,
        "hostname": host,
        "instance-id": told.instance_id,
        "instance-life-cycle": told.lifecycle,
        "instance-type": told.instance_type,
        "local-hostname": host,
        "local-ipv4": told.private_ip,
        "placement/availability-zone": told.zone,
        # Ids and names of zones are the same in a rehearsal.
        "placement/availability-zone-id": told.zone,
        "placement/region": told.region,
        "reservation-id": told.reservation_id,
        "services/domain": "amazonaws.com",
        "services/partition": "aws",
    }
    if told.placement_group:
        texts["placement/group-name"] = told.placement_group
    for name, value in told.tags.items():
        # Tags with a slash or a blank in their name are refused at launch where they are shown here.
        if "/" not in name and " " not in name:
            texts[f"tags/instance/{name}"] = value
    if told.taken_ns is not None:
        at = _time(told.taken_ns)
        texts["spot/instance-action"] = json.dumps({"action": "terminate", "time": at})
        texts["spot/termination-time"] = at
    if told.rebalance_ns is not None:
        notice = {"noticeTime": _time(told.rebalance_ns)}
        texts["events/recommendations/rebalance"] = json.dumps(notice)
    return texts


def _found(texts: Mapping[str, str], path: str) -> Response:
    """The text of a path, or what lies below it; 404 if nothing does."""
    text = texts.get(path)
    if text is not None:
        return PlainTextResponse(text)
    prefix = f"{path.rstrip('/')}/" if path else ""
    below = {name.removeprefix(prefix) for name in texts if name.startswith(prefix)}
    entries = {name.partition("/")[0] + ("/" if "/" in name else "") for name in below}
    if not entries:
        return PlainTextResponse("Not Found", status_code=404)
    return PlainTextResponse("\n".join(sorted(entries)))


def _is_date(version: str) -> bool:
    try:
        datetime.date.fromisoformat(version)
    except ValueError:
        return False
    return True


def _time(at_ns: int) -> str:
    moment = datetime.datetime.fromtimestamp(at_ns // 10**9, tz=datetime.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
