"""No reader of ours can be made to run or import anything by what it reads."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

MODULES = {"cloudpickle", "dill", "joblib", "jsonpickle", "marshal", "pickle", "shelve"}
CALLS = {"eval", "exec", "__import__"}
# Of these, the ones that make objects of what a file names.
ATTRIBUTES = {
    "yaml": {
        "load",
        "load_all",
        "full_load",
        "unsafe_load",
        "Loader",
        "FullLoader",
        "UnsafeLoader",
    },
    "torch": {"load"},
    "importlib": {"__import__"},
}


def code_in_data(source: str) -> list[str]:
    """What in a module could run what it reads, a line each."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                named = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module)):
                named = [module]
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                found.append(f"line {node.lineno}: {name}()")
                continue
            case ast.Attribute(value=ast.Name(id=owner), attr=attr) if attr in ATTRIBUTES.get(
                owner, ()
            ):
                found.append(f"line {node.lineno}: {owner}.{attr}")
                continue
            case ast.keyword(arg="allow_pickle"):
                found.append(f"line {node.value.lineno}: allow_pickle")
                continue
            case _:
                continue
        found += [
            f"line {node.lineno}: import {name}"
            for name in named
            if name.partition(".")[0].lstrip("_") in MODULES
        ]
    return found


def test_nothing_that_is_read_can_run(repository: Path) -> None:
    found = {
        str(path.relative_to(repository)): wrong
        for folder in ("src", "services", "tools")
        for path in sorted((repository / folder).rglob("*.py"))
        if (wrong := code_in_data(path.read_text(encoding="utf-8")))
    }

    assert found == {}


@pytest.mark.parametrize(
    "planted",
    [
        "import pickle",
        "import os, _pickle",
        "from pickle import Unpickler as Reader",
        "def late():\n    import marshal",
        "import shelve",
        "import yaml\nyaml.load(text)",
        "import yaml\nyaml.parse(text, Loader=yaml.UnsafeLoader)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import torch\ntorch.load(path)",
        "eval(text)",
        "exec(text, {})",
        "__import__(name)",
    ],
)
def test_a_planted_reader_of_code_is_caught(planted: str) -> None:
    assert code_in_data(planted)


@pytest.mark.parametrize(
    "harmless", ["import json", "import yaml\nyaml.safe_load(text)", "model.eval()"]
)
def test_a_reader_of_data_is_not(harmless: str) -> None:
    assert not code_in_data(harmless)
