from pathlib import Path

import pytest

from spotline.agent.image import EngineMissing, find_engine, folders_to_mount
from spotline.agent.ranks import RankStart

START = RankStart(
    rank=3,
    words=("python", "train.py"),
    environment={"RANK": "3", "KEY": "secret", "PATH": "/bin", "LD_LIBRARY_PATH": "/lib"},
)


def wrapped(which, **fields) -> RankStart:
    known = {"image": "me/train:1", "name": "c-3", "work_dir": Path("/w"), "mounts": [Path("/w")]}
    return find_engine(which).wrap(START, **{**known, **fields})


def test_a_container_gets_folders_and_variables_but_no_value_on_its_command_line():
    start = wrapped({"docker": "/usr/bin/docker"}.get, mounts=[Path("/w"), Path("/r")])

    assert start.words == (
        *("/usr/bin/docker", "run", "--rm", "--init", "--name", "c-3"),
        *("--network", "host", "--ipc", "host", "--workdir", "/w"),
        *("--volume", "/w:/w", "--volume", "/r:/r", "--env", "KEY", "--env", "RANK"),
        *("me/train:1", "python", "train.py"),
    )
    assert start.environment == START.environment
    assert start.rank == 3


@pytest.mark.parametrize(
    ("engine", "words"), [("docker", "--gpus all"), ("podman", "--device nvidia.com/gpu=all")]
)
def test_gpus_are_shown_where_the_machine_has_some(engine, words):
    found = {engine: f"/usr/bin/{engine}", "nvidia-smi": "/usr/bin/nvidia-smi"}

    assert words in " ".join(wrapped(found.get).words)


def test_docker_goes_before_podman():
    found = {"podman": "/p/podman", "docker": "/d/docker"}

    assert find_engine(found.get).end("c") == ("/d/docker", "rm", "--force", "c")


def test_without_an_engine_it_says_so():
    with pytest.raises(EngineMissing, match=r"run\.image is set, and none of docker, podman"):
        find_engine(lambda _: None)


def test_folders_of_checkpoints_are_mounted_and_stores_are_not(tmp_path):
    work = Path("/w")

    assert folders_to_mount("s3://bucket/job", work) == [work]
    assert folders_to_mount("", work) == [work]
    assert folders_to_mount(f"file://{tmp_path}/a/job", work) == [work, tmp_path / "a/job"]
    assert folders_to_mount(f"{tmp_path}/b", work) == [work, tmp_path / "b"]
    assert (tmp_path / "a/job").is_dir()
