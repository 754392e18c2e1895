"""What a server is given to show who it is, and to learn who calls."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from spotline.adapters.identity.authority import KeyAndChain
from spotline.application.identity.ports import Authenticator


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerIdentity:
    """A server's side of an encrypted connection.

    Parameters
    ----------
    authenticator
        Knows callers by their tokens. For one event loop: no two servers share it.
    key_and_chain
        What it shows, PEM: its key, and its certificate with those that go with it.
    clients_ca_pem
        Callers, too, must show a certificate that this authority signed (mTLS); empty: none need.
    """

    authenticator: Authenticator
    key_and_chain: KeyAndChain = field(repr=False)
    clients_ca_pem: bytes = b""

    def tls_context(self) -> ssl.SSLContext:
        """What a server of asyncio speaks TLS with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        key, chain = self.key_and_chain
        # It reads files only; the folder is this user's alone, and for this moment.
        with tempfile.TemporaryDirectory(prefix="spotline-tls-") as folder:
            key_file, chain_file = Path(folder) / "key.pem", Path(folder) / "chain.pem"
            key_file.touch(mode=0o600)
            key_file.write_bytes(key)
            chain_file.write_bytes(chain)
            context.load_cert_chain(chain_file, key_file)
        if self.clients_ca_pem:
            context.load_verify_locations(cadata=self.clients_ca_pem.decode())
            context.verify_mode = ssl.CERT_REQUIRED
        return context
