"""Ask registries of images for the digest behind a tag, by the OCI distribution protocol.

Source: https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md ("Pulling manifests"),
and https://distribution.github.io/distribution/spec/auth/token/ for the token that they ask for.
"""

from __future__ import annotations

import hashlib
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping

from tools.supply.images import DIGEST, Image

# Lists of platforms first: a digest of one platform would break the others.
_ACCEPTED = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_HOSTS = {"docker.io": "registry-1.docker.io"}
_TIMEOUT_S = 30
_LIMIT_BYTES = 4 << 20


class RegistryError(Exception):
    """A registry was not reached, or did not answer with a digest."""


def digest_of(image: Image, *, scheme: str = "https") -> str:
    """The digest that an image's tag stands for now.

    Raises
    ------
    RegistryError
        The registry does not say it; says why.
    """
    registry, _, path = image.repository.partition("/")
    url = f"{scheme}://{_HOSTS.get(registry, registry)}/v2/{path}/manifests/{image.tag}"
    headers = {"Accept": _ACCEPTED}
    try:
        try:
            body, answered = _get(url, headers)
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
            token = _token(error.headers.get("WWW-Authenticate", ""))
            body, answered = _get(url, {**headers, "Authorization": f"Bearer {token}"})
    except (OSError, ValueError) as error:
        raise RegistryError(f"{image.name}: {registry} did not answer: {error}") from error
    # What is pulled by the digest is checked against it, so it is computed, not believed.
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    said = answered.get("Docker-Content-Digest", digest)
    if said != digest or not DIGEST.fullmatch(digest):
        raise RegistryError(f"{image.name}: {registry} said {said}, its manifest has {digest}")
    return digest


def _get(url: str, headers: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310  # https, but in tests
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
        body: bytes = answer.read(_LIMIT_BYTES + 1)
        if len(body) > _LIMIT_BYTES:
            raise ValueError(f"more than {_LIMIT_BYTES} bytes for a manifest")
        return body, {name.title(): value for name, value in answer.headers.items()}


def _token(challenge: str) -> str:
    """A token to read with, from where the registry's refusal says."""
    scheme, _, rest = challenge.partition(" ")
    asked = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    if scheme.lower() != "bearer" or "realm" not in asked:
        raise ValueError(f"expected a challenge of type Bearer with a realm, was {challenge!r}")
    query = urllib.parse.urlencode({k: v for k, v in asked.items() if k in ("service", "scope")})
    body, _ = _get(f"{asked['realm']}?{query}", {})
    token = json.loads(body).get("token")
    if not token:
        raise ValueError(f"{asked['realm']} gave no token")
    return str(token)
