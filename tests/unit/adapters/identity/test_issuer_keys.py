"""Keys of an issuer over https: from where they were said to be, and from nowhere else."""

from __future__ import annotations

import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from spotline.adapters.identity.authority import Authority
from spotline.adapters.identity.issuer_keys import fetch_keys, keys_in
from spotline.adapters.identity.jwt_tokens import JwtTokens
from spotline.contracts.errors import ProviderUnavailable, Unauthenticated
from tests.fakes.signed_tokens import NOW, TokenIssuer, trusted


class Answers(BaseHTTPRequestHandler):
    """Answers by path, as a test says."""

    def do_GET(self) -> None:
        status, content, headers = self.server.answers[self.path]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder, answers):
    """An https server of an authority of its own; its URL, and the file of the authority."""
    authority = Authority(folder, title="An identity provider")
    key, chain = authority.server_identity([])
    (folder / "k.pem").write_bytes(key)
    (folder / "c.pem").write_bytes(chain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "c.pem", folder / "k.pem")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.answers = answers
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://localhost:{server.server_address[1]}", folder / "ca.pem"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


async def test_keys_are_fetched_over_https_and_check_a_token(tmp_path):
    issuer = TokenIssuer()
    with served(tmp_path, {"/keys": (200, issuer.jwks(), {})}) as (url, ca):
        tokens = JwtTokens([trusted(keys_url=f"{url}/keys", keys_ca=ca)], now=lambda: NOW)

        assert (await tokens.read(issuer.sign())).caller.subject == "ann"


async def test_what_cannot_be_fetched_lets_nobody_in(tmp_path):
    issuer = TokenIssuer()
    with served(tmp_path, {"/keys": (200, issuer.jwks(), {})}) as (url, _):
        # Its certificate is not one that the system trusts.
        tokens = JwtTokens([trusted(keys_url=f"{url}/keys")], now=lambda: NOW)

        with pytest.raises(Unauthenticated, match="its key id is none of"):
            await tokens.read(issuer.sign())


@pytest.mark.parametrize(
    ("status", "content", "headers", "said"),
    [
        (404, b"", {}, "HTTP Error 404"),
        (500, b"", {}, "HTTP Error 500"),
        (302, b"", {"Location": "/keys"}, "HTTP Error 302"),
        (301, b"", {"Location": "http://127.0.0.1:1/keys"}, "HTTP Error 301"),
        (307, b"", {"Location": "file:///etc/passwd"}, "HTTP Error 307"),
        (200, b" " * ((1 << 20) + 1), {}, "expected at most 1048576 bytes of keys"),
    ],
)
def test_what_is_no_answer_is_none(tmp_path, status, content, headers, said):
    answers = {"/odd": (status, content, headers), "/keys": (200, TokenIssuer().jwks(), {})}
    with served(tmp_path, answers) as (url, ca):
        issuer = trusted(keys_url=f"{url}/odd", keys_ca=ca)

        with pytest.raises(ProviderUnavailable, match=said):
            fetch_keys(issuer)
        assert keys_in(fetch_keys(trusted(keys_url=f"{url}/keys", keys_ca=ca)))


def test_an_issuer_that_is_not_there_is_said():
    with pytest.raises(ProviderUnavailable, match=r"the keys of https://login.* cannot be had"):
        fetch_keys(trusted(keys_url="https://localhost:1/keys"))
