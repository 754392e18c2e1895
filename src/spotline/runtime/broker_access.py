"""What a broker's configuration says of who may connect, and as whom. Pure.

The same text goes into the embedded broker's configuration, compose's and `deploy/`'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spotline.contracts.bus_access import (
    IDENTITIES,
    TENANT,
    Permissions,
    permissions,
    tenant_identity,
    tenant_permissions,
)
from spotline.contracts.limits import MESSAGE_BYTES

# For a handshake on a machine that is busy starting.
_PATIENCE_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAccess:
    """Who may connect to a broker, and by which certificate it is known.

    Parameters
    ----------
    public_keys
        By identity, `U...`; one that is absent cannot connect.
    certificate, key
        Files, PEM: the chain that the server shows, and its private key.
    partition
        Whose streams the identities may use.
    """

    public_keys: Mapping[str, str]
    certificate: Path
    key: Path = field(repr=False)
    partition: int = 0

    def text(self) -> str:
        """The part of the configuration that says so."""
        return "\n".join(
            (
                *_tls(self.certificate, self.key),
                *_authorization(self.public_keys, self.partition),
                "",
            )
        )


def variable(identity: str) -> str:
    """The variable that has an identity's public key in a deployed broker's configuration."""
    return f"SPOTLINE_NKEY_{identity.upper()}"


def variables(public_keys: Mapping[str, str]) -> str:
    """What a deployed broker's configuration includes: the public key of each identity."""
    return "".join(f"{variable(identity)}: {key}\n" for identity, key in public_keys.items())


def deployed(tenants: Sequence[str] = (), *, partition: int = 0) -> str:
    """The whole configuration of a deployed broker, but for what is in the folder beside it.

    That has the keys, as `variables` writes them, and the broker's certificate.
    """
    names = (*IDENTITIES, *map(tenant_identity, tenants))
    keys = {identity: f"${variable(identity)}" for identity in names}
    authorization = _authorization(keys, partition)
    return "\n".join((*_deployed_head(), *_tls_of_deployment(), *authorization, ""))


def _deployed_head() -> Iterator[str]:
    yield "# The broker of a deployment, with the settings and permissions of the embedded one."
    yield "# Generated: spotline broker config > deploy/nats/nats.conf"
    yield "# Public keys and certificate: spotline broker keys, mounted at /etc/nats/identity."
    yield "include ./identity/keys.inc"
    yield ""
    yield "server_name: spotline"
    yield "port: 4222"
    yield "http: 8222 # /healthz, for the health check"
    yield "# As large as a message may be, over gRPC too (MESSAGE_BYTES in contracts/limits.py)."
    yield f"max_payload: {MESSAGE_BYTES}"
    yield ""
    yield "jetstream {"
    yield "  store_dir: /data"
    yield "  max_memory_store: 256MB"
    yield "  max_file_store: 10GB"
    yield "  # An acknowledged event has reached the disk; the default flushes every two minutes."
    yield "  sync_interval: always"
    yield "}"
    yield ""


def _tls_of_deployment() -> Iterator[str]:
    yield from _tls(Path("/etc/nats/identity/server.pem"), Path("/etc/nats/identity/server.key"))


def _tls(certificate: Path, key: Path) -> Iterator[str]:
    yield "tls {"
    yield f"  cert_file: {_quoted(certificate)}"
    yield f"  key_file: {_quoted(key)}"
    yield '  min_version: "1.3"'
    yield f"  timeout: {_PATIENCE_S}"
    yield "}"


def _authorization(keys: Mapping[str, str], partition: int) -> Iterator[str]:
    known = permissions(partition)
    yield "authorization {"
    yield f"  timeout: {_PATIENCE_S}"
    yield "  users: ["
    for identity, key in keys.items():
        may = known.get(identity)
        if may is None:
            may = tenant_permissions(identity.removeprefix(TENANT))
        yield from _user(identity, key, may)
    yield "  ]"
    yield "}"


def _user(identity: str, key: str, may: Permissions) -> Iterator[str]:
    yield f"    # {identity}"
    yield f"    {{ nkey: {key}, permissions: {{"
    yield from _side("publish", may.publish)
    yield from _side("subscribe", may.subscribe)
    yield "    } }"


def _side(side: str, subjects: Sequence[str]) -> Iterable[str]:
    if not subjects:
        # An empty list of what is allowed would allow everything.
        return (f'      {side}: {{ deny: [">"] }}',)
    return (
        f"      {side}: {{ allow: [",
        *(f"        {json.dumps(subject)}" for subject in subjects),
        "      ] }",
    )


def _quoted(path: Path) -> str:
    # The configuration language has JSON's strings, except that it knows no escapes beyond ASCII.
    return json.dumps(str(path), ensure_ascii=False)
