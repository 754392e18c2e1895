"""Dependencies come from the lock alone, wherever the index is, and nothing names a machine."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

LOCKS = ("lock.txt", "runtime.txt", "clouds.txt", "train.txt", "docs.txt", "build.txt")
# Of training programs; no deployment has them.
TRAINERS = ("train", "ray")
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path) -> dict[str, str]:
    matches = (REQUIREMENT.match(line) for line in path.read_text().splitlines())
    return {normal(match[1]): match[2] for match in matches if match}


def declared(requirements: list[str]) -> set[str]:
    return {normal(re.match(r"[A-Za-z0-9._-]+", text)[0]) for text in requirements}


@pytest.fixture(scope="module")
def project(repository) -> dict:
    return tomllib.loads((repository / "pyproject.toml").read_text())


@pytest.mark.parametrize("name", LOCKS)
def test_lock_names_no_host_and_no_path(repository, name):
    text = (repository / "requirements" / name).read_text()

    assert not re.search(
        r"://|^\s*(-i|-f|--(extra-)?index-url|--find-links)|@ ", text, re.MULTILINE
    )


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_a_hash(repository, name):
    path = repository / "requirements" / name
    entries = path.read_text().replace("\\\n", " ").splitlines()

    unhashed = [line for line in entries if REQUIREMENT.match(line) and "--hash=" not in line]

    assert pins(path)
    assert unhashed == []


def test_lock_has_what_the_project_declares(repository, project):
    wanted = declared(
        project["project"]["dependencies"]
        + [
            text
            for group in ("dev", "test")
            for text in project["dependency-groups"][group]
            if isinstance(text, str)
        ]
        + project["build-system"]["requires"]
    )

    assert wanted <= pins(repository / "requirements/lock.txt").keys()


def test_runtime_lock_is_the_lock_without_development(repository, project):
    locked = pins(repository / "requirements/lock.txt")
    runtime = pins(repository / "requirements/runtime.txt")

    assert runtime.items() <= locked.items()
    assert declared(project["project"]["dependencies"]) <= runtime.keys()
    assert not {"pytest", "ruff", "mypy", "grpcio-tools"} & runtime.keys()


def test_what_builds_the_wheel_is_locked(repository, project):
    locked = pins(repository / "requirements/lock.txt")
    build = pins(repository / "requirements/build.txt")

    assert build.items() <= locked.items()
    assert build.keys() == declared(project["build-system"]["requires"])


def test_an_image_gets_the_files_that_the_wheel_is_built_from(repository, project):
    dockerfile = (repository / "services/Dockerfile").read_text()
    let_in = (repository / ".dockerignore").read_text().splitlines()
    named = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}

    (copied,) = re.findall(r"^COPY (pyproject.*) \./$", dockerfile, re.MULTILINE)
    assert named == set(copied.split())
    assert {f"!{name}" for name in named} <= set(let_in)


def test_cloud_lock_adds_clients_at_the_same_versions(repository, project):
    runtime = pins(repository / "requirements/runtime.txt")
    clouds = pins(repository / "requirements/clouds.txt")
    extras = project["project"]["optional-dependencies"]

    assert runtime.items() <= clouds.items()
    wanted = [text for name, extra in extras.items() if name not in TRAINERS for text in extra]
    assert declared(wanted) <= clouds.keys()
    assert not {"torch", "transformers", "ray"} & clouds.keys()


def test_train_lock_adds_trainers_but_torch_at_the_same_versions(repository, project):
    runtime = pins(repository / "requirements/runtime.txt")
    train = pins(repository / "requirements/train.txt")
    extra = declared(project["project"]["optional-dependencies"]["train"])

    assert runtime.items() <= train.items()
    assert extra - {"torch"} <= train.keys()
    # Torch's builds differ from index to index; so do the libraries that come with them.
    assert not [name for name in train if re.match(r"(torch|triton)$|nvidia-|cuda-", name)]


def test_what_builds_the_documents_is_locked_and_weighs_on_nothing_else(repository, project):
    docs = pins(repository / "requirements/docs.txt")
    wanted = declared(project["dependency-groups"]["docs"])

    assert wanted <= docs.keys()
    assert not wanted & pins(repository / "requirements/lock.txt").keys()
    # mkdocs 2 has neither plugins nor this theme.
    assert docs["mkdocs"].startswith("1.")


def test_set_up_installs_the_torch_that_was_resolved(repository):
    resolved = re.search(r"^TORCH_VERSION=(\S+)", (repository / "tools/lock.sh").read_text(), re.M)
    installed = (repository / "tools/setup_train.sh").read_text()

    assert f"${{TORCH:-torch=={resolved[1]}}}" in installed


def test_protobuf_stays_where_ortools_and_grpc_agree(repository):
    locked = pins(repository / "requirements/lock.txt")

    assert locked["ortools"].startswith("9.15.")
    assert locked["protobuf"].startswith("6.33.")


def test_no_tracked_file_names_a_registry(repository):
    # Spelled in pieces, so that this file does not find itself.
    hosts = "|".join(
        re.escape(".".join(parts))
        for parts in (("pythonhosted", "org"), ("pypi", "org"), ("registry", "npmjs"))
    )
    found = subprocess.run(
        ["git", "grep", "-nIE", hosts],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode > 1:
        pytest.skip("not a git checkout")

    assert found.stdout == ""


def test_refused_python_is_told_what_to_do(repository, tmp_path):
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\ncase "$1" in --version) echo Python 3.9.2;; *) exit 1;; esac\n')
    old.chmod(0o755)

    result = subprocess.run(
        ["tools/setup.sh", str(tmp_path / "venv"), "requirements/lock.txt"],
        cwd=repository,
        env={"PYTHON": str(old), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 1
    assert "Python 3.9.2 is too old: Spotline needs Python 3.11 or newer" in result.stderr
    assert not (tmp_path / "venv").exists()


def test_git_hooks_run_every_check_by_its_make_target(repository):
    makefile = (repository / "Makefile").read_text()
    checks = re.search(r"^CHECKS := (.+)$", makefile, re.MULTILINE)[1].split()
    hooks = yaml.safe_load((repository / ".pre-commit-config.yaml").read_text())["repos"]

    called = [hook["entry"].split() for repo in hooks for hook in repo["hooks"]]

    assert {repo["repo"] for repo in hooks} == {"local"}
    assert {program for program, *_ in called} == {"make"}
    assert {target for _, *targets in called for target in targets} == {*checks, "test"}


def test_changelog_names_the_version(repository):
    version = re.search(
        r'^__version__ = "(.+)"$',
        (repository / "src/spotline/__init__.py").read_text(),
        re.MULTILINE,
    )[1]
    headings = re.findall(r"^## \[(.+?)\]", (repository / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert headings[0] == "Unreleased"
    assert headings[1] == version
