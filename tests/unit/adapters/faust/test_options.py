import pytest
from faust.exceptions import ImproperlyConfigured
from yarl import URL

from spotline.adapters.faust.options import Options, parse_options
from spotline.adapters.faust.session import Session
from spotline.adapters.nats.connection import NatsConnection, _credentials, redacted


def parsed(url):
    return parse_options([URL(url)])


def test_a_url_without_options_has_defaults():
    assert parsed("nats://127.0.0.1:4000") == Options(url="nats://127.0.0.1:4000")
    assert parsed("nats://").url == "nats://127.0.0.1:4222"
    assert parsed("nats://user:secret@host/").url == "nats://user:secret@host:4222"


def test_options_are_read_and_not_sent_to_the_server():
    options = parsed(
        "nats://host:4222?lease_s=2.5&partitions=0-2&partitions=7&changelog=each&monitor=off"
    )

    assert options == Options(
        url="nats://host:4222",
        lease_s=2.5,
        partitions=frozenset({0, 1, 2, 7}),
        coalesce=False,
        monitor=False,
    )


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("lease=3", "unknown option 'lease'"),
        ("lease_s=soon", "lease_s must be 0.1 to 3600 seconds, was 'soon'"),
        ("lease_s=0", "lease_s must be"),
        ("lease_s=nan", "lease_s must be"),
        ("partitions=a", "partitions must be like 3 or 0-3, was 'a'"),
        ("partitions=-1", "partitions must be like"),
        ("monitor=no", "monitor must be on or off, was 'no'"),
        ("changelog=no", "changelog must be coalesced or each, was 'no'"),
    ],
)
def test_a_wrong_option_is_named(query, says):
    with pytest.raises(ImproperlyConfigured, match=says):
        parsed(f"nats://host?{query}")


def test_several_servers_are_refused():
    with pytest.raises(ImproperlyConfigured, match="takes one broker URL"):
        parse_options([URL("nats://a"), URL("nats://b")])


def test_credentials_are_neither_shown_nor_left_encoded():
    assert redacted("nats://u:p%40ss@host:4222") == "nats://u:***@host:4222"
    assert redacted("nats://token@host") == "nats://***@host"
    assert redacted("nats://host:4222") == "nats://host:4222"
    assert _credentials("nats://u:p%40ss%2F1@host:4222") == (
        "nats://host:4222",
        {"user": "u", "password": "p@ss/1"},
    )
    assert _credentials("nats://t%40ken@host") == ("nats://host", {"token": "t@ken"})
    assert _credentials("nats://host:1") == ("nats://host:1", {})


def test_neither_options_nor_their_errors_show_a_password():
    with pytest.raises(ImproperlyConfigured) as refused:
        parse_options([URL("nats://u:secret@a"), URL("nats://u:secret@b")])
    assert "secret" not in str(refused.value)
    assert "secret" not in repr(parse_options([URL("nats://u:secret@a")]))
    connection = NatsConnection("nats://u:secret@a")
    assert connection.url == Session("nats://u:secret@a", name="x").url == "nats://u:***@a"
