"""A TLS handshake between two sockets of this process."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path


def shake_hands(
    shown: tuple[bytes, bytes],
    ca_pem: str,
    folder: Path,
    *,
    host: str = "localhost",
    client: tuple[bytes, bytes] | None = None,
    client_ca: str = "",
) -> bytes | None:
    """Connect to a server that shows `shown`, trusting `ca_pem` and nobody else.

    With `client_ca` the server asks for a certificate of that authority; returns what it saw, DER.
    Raises `ssl.SSLError` where either side does not trust the other.
    """
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(serving, shown, folder / "server")
    if client_ca:
        serving.verify_mode = ssl.CERT_REQUIRED
        serving.load_verify_locations(cadata=client_ca)
    context = ssl.create_default_context(cadata=ca_pem)
    if client is not None:
        _load(context, client, folder / "client")
    ours, theirs = socket.socketpair()
    seen: list[bytes | None] = []

    def answer() -> None:
        try:
            with serving.wrap_socket(theirs, server_side=True) as connected:
                seen.append(connected.getpeercert(binary_form=True))
                connected.sendall(b"x")
        except OSError:
            theirs.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with context.wrap_socket(ours, server_hostname=host) as connected:
            # Under TLS 1.3 a server refuses a client's certificate after the client's handshake.
            if not connected.recv(1):
                raise ssl.SSLError("the server hung up")
    finally:
        thread.join()
    return seen[0] if seen else None


def _load(context: ssl.SSLContext, key_and_chain: tuple[bytes, bytes], stem: Path) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    key, chain = stem.with_suffix(".key"), stem.with_suffix(".pem")
    key.write_bytes(key_and_chain[0])
    chain.write_bytes(key_and_chain[1])
    context.load_cert_chain(chain, key)
