"""What a server is given to show who it is, and to learn who calls."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from spotline.adapters.identity.authority import KeyAndChain
from spotline.application.identity.ports import Authenticator
from spotline.contracts.errors import ConfigError

LOOK_EVERY_S = 10.0

_log = structlog.get_logger(__name__)


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
    look
        Looks again what is to be shown, after a rotation another one; None: it stays as it is.
    """

    authenticator: Authenticator
    key_and_chain: KeyAndChain = field(repr=False)
    clients_ca_pem: bytes = b""
    look: Callable[[], KeyAndChain] | None = field(default=None, repr=False)

    def tls_context(self) -> ssl.SSLContext:
        """What a server of asyncio speaks TLS with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load(context, self.key_and_chain)
        if self.clients_ca_pem:
            context.load_verify_locations(cadata=self.clients_ca_pem.decode())
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    @asynccontextmanager
    async def kept_current(
        self, context: ssl.SSLContext, *, every_s: float = LOOK_EVERY_S
    ) -> AsyncIterator[None]:
        """Have new connections shown what is to be shown by then; those that are open stay."""
        if self.look is None:
            yield
            return
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._keep_current(context, self.look, every_s))
            try:
                yield
            finally:
                looking.cancel()

    async def _keep_current(
        self, context: ssl.SSLContext, look: Callable[[], KeyAndChain], every_s: float
    ) -> None:
        shown, trouble = self.key_and_chain, ""
        while True:
            await asyncio.sleep(every_s)
            try:
                found = await asyncio.to_thread(look)
                if found != shown:
                    await asyncio.to_thread(_load, context, found)
                    shown = found
                    _log.info("certificate_renewed")
                trouble = ""
            except (ConfigError, OSError) as error:
                # What was shown before is good still; said once.
                if str(error) != trouble:
                    _log.error("certificate_not_renewed", error=str(error))
                trouble = str(error)


def _load(context: ssl.SSLContext, key_and_chain: KeyAndChain) -> None:
    key, chain = key_and_chain
    # It reads files only; the folder is this user's alone, and for this moment.
    with tempfile.TemporaryDirectory(prefix="spotline-tls-") as folder:
        key_file, chain_file = Path(folder) / "key.pem", Path(folder) / "chain.pem"
        key_file.touch(mode=0o600)
        key_file.write_bytes(key)
        chain_file.write_bytes(chain)
        context.load_cert_chain(chain_file, key_file)
