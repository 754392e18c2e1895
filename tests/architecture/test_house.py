"""Files, functions and names keep the limits of the house; exceptions are few, listed and dated."""

from __future__ import annotations

import ast
import datetime
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

MOST_LINES = 500
MOST_BODY_LINES = 60
MOST_PARAMETERS = 8
MOST_README_LINES = 150

EXCEPTIONS = Path(__file__).with_name("house_exceptions.toml")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# A command's options are its parameters, and generated code is nobody's style.
ALWAYS_IGNORED = ("src/spotline/cli/**", "src/spotline/bench/*/command.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What of a checkout is over a limit: by dotted module, by `module:function`, by class name."""

    files: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    readme_lines: int = 0


def sources(root: Path) -> Iterator[tuple[str, Path]]:
    """Every module that people write, with its dotted name."""
    for base in (root / "src", root):
        for package in ("spotline", "services"):
            for path in sorted((base / package).rglob("*.py")):
                parts = path.relative_to(base).with_suffix("").parts
                if parts[:2] != ("spotline", "api"):
                    yield ".".join(parts).removesuffix(".__init__"), path


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of a module with its qualified name."""
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        outer, parent = waiting.pop()
        for node in ast.iter_child_nodes(parent):
            inner = outer
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                inner = f"{outer}.{node.name}".lstrip(".")
            if isinstance(node, FUNCTIONS):
                yield inner, node
            waiting.append((inner, node))


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement to the last, the docstring aside."""
    body = [
        statement
        for statement in function.body
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    ]
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters as the linter counts them: without those that only bind or collect."""
    arguments = function.args
    names = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args)]
    return len(names) - (names[:1] in (["self"], ["cls"])) + len(arguments.kwonlyargs)


def look(root: Path) -> House:
    """Measure a checkout."""
    house = House(readme_lines=len((root / "README.md").read_text().splitlines()))
    homes: dict[str, set[str]] = {}
    for module, path in sources(root):
        text = path.read_text()
        tree = ast.parse(text)
        if len(text.splitlines()) > MOST_LINES:
            house.files[module] = len(text.splitlines())
        for name, function in functions(tree):
            if body_lines(function) > MOST_BODY_LINES:
                house.functions[f"{module}:{name}"] = body_lines(function)
        if module.startswith("spotline"):  # each service has its own Settings, and should
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, set()).add(module)
    house.names.update({name: tuple(sorted(at)) for name, at in homes.items() if len(at) > 1})
    return house


def grown(found: dict[str, int], allowed: dict[str, int], limit: int) -> list[str]:
    """Say which are over the limit, and over their exception where they have one."""
    return [
        f"{name} has {lines} lines, at most {max(limit, allowed.get(name, 0))} are allowed"
        for name, lines in sorted(found.items())
        if lines > allowed.get(name, 0)
    ]


def needless(found: object, listed: object, what: str) -> list[str]:
    """Say which exceptions nothing needs any more."""
    return [f"{name}: take it out of {what}" for name in sorted(set(listed) - set(found))]


@pytest.fixture(scope="module")
def house(repository) -> House:
    return look(repository)


@pytest.fixture(scope="module")
def exceptions() -> dict:
    return tomllib.loads(EXCEPTIONS.read_text())


def test_files_are_no_longer_than_500_lines(house, exceptions):
    assert grown(house.files, exceptions["files"], MOST_LINES) == []
    assert needless(house.files, exceptions["files"], EXCEPTIONS.name) == []


def test_functions_are_no_longer_than_60_lines(house, exceptions):
    assert grown(house.functions, exceptions["functions"], MOST_BODY_LINES) == []
    assert needless(house.functions, exceptions["functions"], EXCEPTIONS.name) == []


def test_a_public_name_means_one_thing(house, exceptions):
    new = {name: at for name, at in house.names.items() if name not in exceptions["names"]}

    assert new == {}
    assert needless(house.names, exceptions["names"], EXCEPTIONS.name) == []


def test_readme_is_one_screen_per_question(house):
    assert house.readme_lines <= MOST_README_LINES


def test_exceptions_are_dated(exceptions):
    assert isinstance(exceptions["since"], datetime.date)
    assert exceptions["names"] == sorted(set(exceptions["names"]))


def test_linter_ignores_long_signatures_only_where_there_are_some(repository):
    ruff = tomllib.loads((repository / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    ignoring = [
        pattern
        for pattern, rules in ruff["per-file-ignores"].items()
        if "PLR0913" in rules and pattern not in ALWAYS_IGNORED
    ]

    long = {
        pattern
        for pattern in ignoring
        for path in repository.glob(pattern)
        for _, function in functions(ast.parse(path.read_text()))
        if parameters(function) > MOST_PARAMETERS
    }

    assert ruff["pylint"]["max-args"] == MOST_PARAMETERS
    assert "PLR0913" in ruff["select"]
    assert needless(long, ignoring, "per-file-ignores in pyproject.toml") == []


def test_make_house_counts_as_this_test_does(repository, small_house):
    body = "".join(f"    x = {i}\n" for i in range(MOST_BODY_LINES + 1))
    source = small_house / "src/spotline"
    (source / "application").mkdir()
    (source / "long.py").write_text("x = 1\n" * (MOST_LINES + 1))
    (source / "second.py").write_text(f"class Market: ...\n\n\ndef f():\n{body}")
    house = look(small_house)
    printed = subprocess.run(
        [sys.executable, "tools/house_metrics.py", str(small_house)],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(printed.stdout)

    assert figures["files_over_500"] == len(house.files) == 1
    assert figures["functions_over_60_lines"] == len(house.functions) == 1
    assert figures["public_names_meaning_two_things"] == sorted(house.names) == ["Market"]
    assert figures["readme_lines"] == house.readme_lines


@pytest.fixture
def small_house(tmp_path) -> Path:
    for package in ("src/spotline", "services/selector"):
        (tmp_path / package).mkdir(parents=True)
    (tmp_path / "src/spotline/market.py").write_text("class Market: ...\n")
    (tmp_path / "services/selector/settings.py").write_text("class Settings: ...\n")
    (tmp_path / "README.md").write_text("# Small\n")
    return tmp_path


def test_a_house_within_the_limits_is_left_alone(small_house):
    body = "".join(f"    x = {i}\n" for i in range(MOST_BODY_LINES))
    (small_house / "src/spotline/full.py").write_text(f'def f():\n    """Doc."""\n{body}')
    (small_house / "src/spotline/long.py").write_text("x = 1\n" * MOST_LINES)

    assert look(small_house) == House(readme_lines=1)


def test_what_is_over_a_limit_is_found(small_house):
    body = "".join(f"        x = {i}\n" for i in range(MOST_BODY_LINES + 1))
    (small_house / "src/spotline/long.py").write_text("x = 1\n" * (MOST_LINES + 1))
    (small_house / "services/selector/main.py").write_text(
        f"class Main:\n    async def run(self):\n{body}"
    )
    (small_house / "src/spotline/second.py").write_text("class Market: ...\n")

    found = look(small_house)

    assert found.files == {"spotline.long": MOST_LINES + 1}
    assert found.functions == {"services.selector.main:Main.run": MOST_BODY_LINES + 1}
    assert found.names == {"Market": ("spotline.market", "spotline.second")}


def test_an_exception_may_neither_grow_nor_outlive_its_need():
    assert grown({"a": 510}, {"a": 510}, MOST_LINES) == []
    assert grown({"a": 511}, {"a": 510}, MOST_LINES) == ["a has 511 lines, at most 510 are allowed"]
    assert needless({"a": 510}, {"a": 510, "b": 600}, "the list") == ["b: take it out of the list"]
