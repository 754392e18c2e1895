"""Generated code and the released protobuf contract keep what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


def test_generated_code_is_what_the_protos_give(repository):
    result = subprocess.run(
        [sys.executable, "tools/generate_protos.py", "--check", "src"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stdout + result.stderr


def released_in(root: Path) -> list[Path]:
    """The released contracts, oldest first."""
    found = (root / "protos/released").glob("v*.binpb")
    return sorted(found, key=lambda path: [int(part) for part in path.stem[1:].split(".")])


def test_the_newest_release_is_what_make_compares_with(repository):
    recipe = subprocess.run(
        ["make", "-n", "buf-breaking"], cwd=repository, capture_output=True, text=True, check=True
    ).stdout
    choice = next(line for line in recipe.splitlines() if line.startswith("last="))
    chosen = subprocess.run(
        ["bash", "-c", f"{choice.rstrip(chr(92))} echo $last"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()

    assert Path(chosen).name == released_in(repository)[-1].name


def test_no_released_contract_is_broken(tree):
    for image in released_in(tree.root):
        result = tree.run("buf", "breaking", "--against", str(image))

        assert result.returncode == 0, f"{image.name}: {result.stdout}"


@pytest.mark.parametrize(
    ("file", "pattern", "broken"),
    [
        ("job.proto", r"(\n  [a-z][\w.]* \w+ = )1;", r"\g<1>999;"),
        ("job_service.proto", r"\n  rpc Cancel\(.*?;", ""),
        ("job_service.proto", r"bool already_closed = 1;", "string already_closed = 1;"),
        ("placement_service.proto", r"\n  bool already_submitted = 2;", ""),
    ],
    ids=["renumbered", "method gone", "other type", "field gone"],
)
def test_a_planted_change_breaks_the_released_contract(tree, file, pattern, broken):
    path = f"protos/spotline/api/v1/{file}"
    text = (tree.root / path).read_text()
    planted = re.sub(pattern, broken, text, count=1)
    assert planted != text
    tree.write(path, planted)

    result = tree.run("buf", "breaking", "--against", str(released_in(tree.root)[-1]))

    assert result.returncode != 0
    assert file in result.stdout
