"""A copy of the tree in which a test may plant a violation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Sources and configuration, copied; tools are those of the running environment."""

    root: Path

    def append(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("a") as file:
            file.write(text)

    def run(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        # The copy goes before the checkout, which an editable installation would find otherwise:
        # a tool that looks at the wrong root finds nothing wrong.
        environment = os.environ | {"PYTHONPATH": f"{self.root / 'src'}{os.pathsep}{self.root}"}
        return subprocess.run(
            [str(Path(sys.executable).parent / tool), *arguments],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="session")
def repository() -> Path:
    return ROOT


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in ("src", "services", "protos"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignore)
    for file in ("pyproject.toml", "buf.yaml"):
        shutil.copyfile(ROOT / file, tmp_path / file)
    return Tree(root=tmp_path)


@pytest.fixture
def lint_imports(tree: Tree) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*contracts: str) -> subprocess.CompletedProcess[str]:
        chosen = [argument for contract in contracts for argument in ("--contract", contract)]
        return tree.run("lint-imports", "--no-logo", "--no-cache", *chosen)

    return run
