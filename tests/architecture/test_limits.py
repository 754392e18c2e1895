"""What bounds a message is one figure, wherever it stands."""

from __future__ import annotations

import re
from pathlib import Path

from spotline.adapters.grpc.agent.server import AgentServer
from spotline.adapters.grpc.kit.serving import GrpcServer
from spotline.contracts.limits import JOB_BYTES, MESSAGE_BYTES
from spotline.runtime.broker import _config
from tests.fakes.strict_yaml import read_yaml


def max_payload(text: str) -> int:
    (found,) = re.findall(r"^max_payload: (\d+)$", text, re.MULTILINE)
    return int(found)


def test_every_broker_takes_what_grpc_takes(repository: Path) -> None:
    deployed = (repository / "deploy/nats/nats.conf").read_text()

    assert max_payload(deployed) == MESSAGE_BYTES
    assert max_payload(_config(Path("store"), Path("ports"), 4222)) == MESSAGE_BYTES
    assert GrpcServer.message_bytes == MESSAGE_BYTES
    assert AgentServer.message_bytes <= MESSAGE_BYTES
    assert 4 * JOB_BYTES <= MESSAGE_BYTES


def test_the_composed_broker_reads_that_file(repository: Path) -> None:
    nats = read_yaml(repository / "docker-compose.yml")["services"]["nats"]

    mounted = [str(volume) for volume in nats["volumes"]]
    assert any("deploy/nats/nats.conf" in volume for volume in mounted)
    assert not any("max_payload" in str(word) for word in nats.get("command", ()))


def test_no_other_figure_bounds_a_message(repository: Path) -> None:
    for path in sorted((repository / "src/spotline").rglob("*.py")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.search(r"grpc\.max_(send|receive)_message_length", line):
                assert re.search(r"MESSAGE_BYTES|message_bytes", line), path
