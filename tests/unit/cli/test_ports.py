"""Ports are tried before anything is started, and the option at fault is named."""

from __future__ import annotations

import socket

import pytest

from spotline.cli.ports import check_ports
from spotline.contracts.errors import ConfigError


def test_a_port_in_use_names_its_option_and_what_to_do() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(ConfigError) as error:
            check_ports({"--address": f"127.0.0.1:{port}", "--placer-address": "127.0.0.1:0"})

    assert str(error.value) == (
        f"--address: expected a free port, found {port} in use, perhaps by another `spotline up` "
        f"(`lsof -i :{port}` says; --address 127.0.0.1:0 takes any)"
    )


def test_free_ports_are_let_go_again() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    check_ports({"--address": f"127.0.0.1:{port}"})
    check_ports({"--address": f"127.0.0.1:{port}"})


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("7070", "expected HOST:PORT, such as 127.0.0.1:7070, found '7070'"),
        ("127.0.0.1:http", "expected HOST:PORT"),
        ("127.0.0.1:70700", "expected HOST:PORT"),
        ("nowhere.invalid:7070", "expected an address to listen on, found nowhere.invalid:7070"),
        ("203.0.113.1:0", "expected an address to listen on, found 203.0.113.1:0"),
    ],
)
def test_what_is_no_address_is_said_by_its_option(address: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"^--address: ") as error:
        check_ports({"--address": address})

    assert said in str(error.value)


def test_two_options_cannot_share_a_port_and_every_mistake_is_said() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    with pytest.raises(ConfigError) as error:
        check_ports({"--a": f"127.0.0.1:{port}", "--b": f"127.0.0.1:{port}", "--c": "x"})

    wrong, shared = str(error.value).splitlines()
    assert wrong.startswith("--c: expected HOST:PORT")
    assert shared == f"--b: expected a port of its own, found that of --a: {port}"
