"""What is secret in an address of NATS is in no log and no error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.nats.connection import NatsConnection, redacted
from spotline.contracts.errors import ConfigError

SECRETS = st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=4, max_size=20)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://h:4222", "nats://h:4222"),
        ("nats://u:secret@h:4222", "nats://u:***@h:4222"),
        ("u:secret@h", "u:***@h"),
        ("nats://token@h", "nats://***@h"),
        ("nats://u:secret@h1,nats://v:hidden@h2", "nats://u:***@h1,nats://v:***@h2"),
        ("nats://h1:1,u:secret@h2", "nats://h1:1,u:***@h2"),
        ("nats://u:sec,ret@h", "nats://u:***,***@h"),
        ("nats://h1:1,nats://[::1]:2", "nats://h1:1,nats://[::1]:2"),
    ],
)
def test_passwords_and_tokens_are_masked(url, shown):
    assert redacted(url) == shown


@given(secret=SECRETS)
def test_no_password_is_shown_whatever_it_holds(secret):
    url = f"nats://somebody:{secret}@host:4222"

    # A part before a comma that looks like a port is one to whoever reads the address.
    parts = [part for part in secret.split(",") if len(part) > 3 and not part.isdecimal()]
    for part in parts:
        assert part not in redacted(url).replace("somebody", "").replace("host:4222", "")


@pytest.mark.parametrize(
    "url", ["nats://u:pa/ss@h:1", "nats://u:pa#ss@h", "nats://[::1", "nats://h:x"]
)
async def test_an_address_that_is_none_is_refused_without_its_password(url):
    with pytest.raises(ConfigError, match="the address of NATS must be") as caught:
        NatsConnection(url)

    assert (
        "pa"
        not in str(caught.value)
        .replace("address of", "")
        .replace("host", "")
        .replace("PASSWORD", "")
        .replace("special", "")
        .replace("percent", "")
        .partition("was ")[2]
    )
    assert caught.value.__cause__ is None
