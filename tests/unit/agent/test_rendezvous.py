import socket

import pytest

from spotline.agent.rendezvous import (
    FIRST_PORT,
    PORTS,
    is_free,
    master_port,
    own_port,
    says_in_use,
)


def test_ports_of_generations_differ_and_stay_below_those_of_the_system():
    ports = [master_port(f"job-{job}", generation) for job in range(20) for generation in range(50)]

    assert min(ports) >= FIRST_PORT
    assert max(ports) < FIRST_PORT + PORTS <= 32_768
    assert len(set(ports)) > 900


@pytest.mark.parametrize("address", ["", "127.0.0.1"])
def test_a_program_on_a_single_member_passes_over_a_port_that_is_taken(address):
    first = own_port("job-1", 1)

    with socket.create_server((address, first)):
        assert not is_free(first)
        second = own_port("job-1", 1)

    assert second != first
    assert FIRST_PORT <= second < FIRST_PORT + PORTS


def test_a_port_of_the_other_protocol_is_taken_too():
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    port = own_port("job-1", 2)

    with socket.create_server(("", port), family=socket.AF_INET6):
        assert not is_free(port)


@pytest.mark.parametrize(
    "words",
    [
        "OSError: [Errno 98] Address already in use",
        "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    ],
)
def test_a_program_that_met_a_taken_address_says_so(words):
    assert says_in_use(words)
    assert not says_in_use("RuntimeError: no address")
