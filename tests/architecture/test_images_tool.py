"""What `make test-images` prepares before an engine is called."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tools.images import engine
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
    assert public_images() == ("python:3.12-slim", "nats:2.15-alpine")


def test_what_does_not_come_in_time_is_named():
    with pytest.raises(TooLate, match="the moon: not within 0 s"):
        eventually("the moon", lambda: None, within_s=0)
