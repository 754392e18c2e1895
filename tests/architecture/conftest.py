"""A copy of the tree in which a test may plant a violation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Sources and configuration, copied; tools are those of the running environment."""

    root: Path
    _before: dict[Path, bytes | None] = field(default_factory=dict)

    def append(self, path: str, text: str) -> None:
        target = self.root / path
        self.write(path, (target.read_text() if target.exists() else "") + text)

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        self._before.setdefault(target, target.read_bytes() if target.exists() else None)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def restore(self) -> None:
        """Take back what was planted."""
        for target, content in self._before.items():
            if content is not None:
                target.write_bytes(content)
                continue
            target.unlink()
            # A folder that was made for it would still be a package.
            if not any(target.parent.iterdir()):
                target.parent.rmdir()
        self._before.clear()

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


@pytest.fixture(scope="module")
def copied_tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A copy for the tests of a module; `tree` gives it to each of them as it was."""
    root = tmp_path_factory.mktemp("tree")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in ("src", "services", "protos"):
        shutil.copytree(ROOT / folder, root / folder, ignore=ignore)
    for file in ("pyproject.toml", "buf.yaml"):
        shutil.copyfile(ROOT / file, root / file)
    return Tree(root=root)


@pytest.fixture
def tree(copied_tree: Tree) -> Iterator[Tree]:
    yield copied_tree
    copied_tree.restore()


@pytest.fixture
def lint_imports(tree: Tree) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*contracts: str) -> subprocess.CompletedProcess[str]:
        chosen = [argument for contract in contracts for argument in ("--contract", contract)]
        return tree.run("lint-imports", "--no-logo", *chosen)

    return run
