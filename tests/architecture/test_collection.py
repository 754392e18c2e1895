"""What is collected is the same in every process: workers that differ by a second run nothing at all."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
UNSTEADY = {
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "datetime.now",
    "datetime.utcnow",
    "os.getpid",
    "os.urandom",
    "uuid.uuid1",
    "uuid.uuid4",
    "uuid4",
    "random.random",
    "random.randint",
    "secrets.token_hex",
    "secrets.token_bytes",
}
# Writes the second it is called in, unless told otherwise.
STAMPED = "gzip.compress"


def parameters(tree: ast.AST):
    """All that decorators hold: what names of tests are made of."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                yield from ast.walk(decorator)


def unsteady_calls(source: str) -> list[str]:
    return [
        f"line {node.lineno}: {name}"
        for node in parameters(ast.parse(source))
        if isinstance(node, ast.Call)
        and (
            (name := ast.unparse(node.func)) in UNSTEADY
            or (name == STAMPED and "mtime" not in {each.arg for each in node.keywords})
        )
    ]


def test_no_parameter_of_a_test_depends_on_when_it_is_collected():
    found = {
        str(path.relative_to(TESTS)): calls
        for path in sorted(TESTS.rglob("test_*.py"))
        if (calls := unsteady_calls(path.read_text(encoding="utf-8")))
    }

    assert not found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('@parametrize("x", [gzip.compress(b"a")])\ndef test(x): ...', 1),
        ('@parametrize("x", [gzip.compress(b"a", mtime=0)])\ndef test(x): ...', 0),
        ('@parametrize("x", [uuid4()])\nclass Test: ...', 1),
        ('@parametrize("x", [time.time()])\nasync def test(x): ...', 1),
        ('def test():\n    gzip.compress(b"a")\n    time.time()', 0),
    ],
)
def test_a_planted_call_is_found(source, expected):
    assert len(unsteady_calls(source)) == expected
