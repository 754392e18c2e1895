"""What `make test-images` prepares before an engine is called."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tools.images import engine, stand_ins
from tools.images.engine import RUNTIME, MissingPart, engine_here, local_paths
from tools.images.stack import TooLate, eventually
from tools.images.stand_ins import public_images

LIMITS = [{"type": "RLIMIT_NOFILE", "hard": 1048576, "soft": 1048576}]


@pytest.mark.parametrize(
    ("name", "content", "arguments"),
    [
        ("config.json", {"process": {"args": ["x"], "rlimits": LIMITS}}, ["--bundle", "{folder}"]),
        ("process", {"args": ["x"], "rlimits": LIMITS}, ["--process={folder}/process"]),
    ],
)
def test_the_runtime_starts_what_it_is_given_without_limits(tmp_path, name, content, arguments):
    runc = tmp_path / "runc"
    runc.write_text('#!/bin/sh\necho "$@"\n')
    runc.chmod(0o755)
    (tmp_path / name).write_text(json.dumps(content))
    said = [argument.format(folder=tmp_path) for argument in arguments]

    done = subprocess.run(
        [RUNTIME, "--log", "x", "create", *said],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["--log", "x", "create", *said]
    left = json.loads((tmp_path / name).read_text())
    assert "rlimits" not in json.dumps(left)
    assert left.get("process", left)["args"] == ["x"]


def test_only_what_is_on_this_machine_is_shown_to_a_build(tmp_path):
    (tmp_path / "wheels").mkdir()
    values = (f"file://{tmp_path}/wheels {tmp_path}/gone", "https://index.example/simple")

    assert local_paths(values) == [tmp_path / "wheels"]


def test_every_missing_part_is_named_with_what_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(engine.shutil, "which", lambda program, path=None: None)

    with pytest.raises(MissingPart) as missing:
        engine_here(tmp_path)

    for part in ("podman: apt-get", "netavark: apt-get", "podman-compose==1.6.0"):
        assert part in str(missing.value)


def test_stand_ins_are_named_as_the_files_name_what_they_build_on():
    assert [image.name for image in public_images()] == ["python:3.12-slim", "nats:2.15-alpine"]


class EngineThatMakes:
    """An engine that has what it made, and whose registry does not answer."""

    is_podman = True

    def __init__(self, *made):
        self.made = list(made)

    def run(self, *words, check=True, timeout_s=120):
        known = words[:2] == ("image", "inspect") and words[2] in self.made
        return subprocess.CompletedProcess(words, 0 if known else 1)


def test_a_stand_in_has_no_digest_and_the_broker_is_built_on_it(monkeypatch):
    made = []
    monkeypatch.setattr(stand_ins, "_make_base", lambda engine, name: made.append(name))
    monkeypatch.setattr(
        stand_ins, "_make_broker", lambda engine, name, *, base: made.append((name, base))
    )

    provided = stand_ins.provide_public_images(EngineThatMakes())

    base, broker = "docker.io/library/python:3.12-slim", "docker.io/library/nats:2.15-alpine"
    assert (provided.base, provided.broker) == (base, broker)
    assert made == [base, (broker, base)]


def test_what_is_there_by_its_digest_is_used_by_its_digest():
    here = [f"{image.repository}@{image.digest}" for image in public_images()]

    provided = stand_ins.provide_public_images(EngineThatMakes(*here))

    assert [provided.base, provided.broker] == here


def test_what_does_not_come_in_time_is_named():
    with pytest.raises(TooLate, match="the moon: not within 0 s"):
        eventually("the moon", lambda: None, within_s=0)
