"""The one YAML reader: what it makes of a text, and how little it reads of what is too much."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.adapters.files.mistake import BadFile
from spotline.adapters.files.yaml_file import (
    LONGEST_NUMBER,
    MOST_LEVELS,
    ONE_DOCUMENT,
    Limits,
    parse_yaml,
    read_yaml,
)
from tests.depth import examples

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"


def refusal(text: str, limits: Limits = ONE_DOCUMENT) -> str:
    with pytest.raises(BadFile) as caught:
        parse_yaml(text, where="a.yaml", limits=limits)
    assert str(caught.value).startswith("a.yaml: ")
    return str(caught.value).removeprefix("a.yaml: ")


@pytest.fixture
def events_read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every event that the parser was asked for."""
    read: list[Any] = []
    parse = yaml.parse

    def counted(*arguments: Any, **options: Any) -> Any:
        for event in parse(*arguments, **options):
            read.append(event)
            yield event

    monkeypatch.setattr(yaml, "parse", counted)
    return read


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("\ufeffa: 1", {"a": 1}),
        ("- 0x10\n- 300_000\n- 2.0e+8\n- 1e3\n- yes\n- ~\n-", [16, 300_000, 2e8, "1e3", True, None, None]),
        ("at: 2026-03-01T18:00:00+02:00", {"at": "2026-03-01T18:00:00+02:00"}),
        ("no: 1\n1: 2\n2026-01-01: 3", {"no": 1, "1": 2, "2026-01-01": 3}),
        ("a: !!str 5\nc: '7'", {"a": "5", "c": "7"}),
        ("a: &x [1, 2]\nb: *x", {"a": [1, 2], "b": [1, 2]}),
        ("a: &x {b: 1, d: 0}\nc: {<<: *x, d: 2}", {"a": {"b": 1, "d": 0}, "c": {"b": 1, "d": 2}}),
        ("<<: [{a: 1}, {a: 2, b: 3}]", {"a": 1, "b": 3}),
        ("'<<': {a: 1}", {"<<": {"a": 1}}),
        ("--- text\n...", "text"),
        (f"a: {'9' * LONGEST_NUMBER}", {"a": int("9" * LONGEST_NUMBER)}),
        (f"a: {'9' * (LONGEST_NUMBER + 1)}", {"a": "9" * (LONGEST_NUMBER + 1)}),
        ("", None),
        ("# nothing", None),
    ],
)  # fmt: skip
def test_a_text_is_read_as(text: str, value: Any) -> None:
    assert parse_yaml(text, where="a.yaml") == value


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_the_examples_are_read_as_yaml_reads_them_but_for_times(name: str) -> None:
    text = (EXAMPLES / name).read_text()

    written = yaml.load(text, yaml.BaseLoader)

    assert parse_yaml(text, where=name) == _times_as_text(yaml.safe_load(text), written)


def _times_as_text(value: Any, written: Any) -> Any:
    if isinstance(value, dict):
        return {key: _times_as_text(held, written[key]) for key, held in value.items()}
    if isinstance(value, list):
        return [_times_as_text(held, text) for held, text in zip(value, written, strict=True)]
    return written if hasattr(value, "isoformat") else value


# --- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: expected each field once, found a again"),
        ("a: {b: 1, b: 1}", "line 1: expected each field once, found b again"),
        ("{<<: {a: 1}, <<: {b: 2}}", "line 1: expected each field once, found << again"),
        ("a: 1\n\tb: 2", "line 2: expected YAML, found a tab character that violates indentation"),
        ("a: 1\nb: \x00", "line 2: expected text, found the control character U+0000"),
        ("a: \x1b[31m", "line 1: expected text, found the control character U+001B"),
        ("a: 1\n---\nb: 2", "line 2: expected one document, found a second one"),
        ("a: [1,\n2", "line 3: expected ',' or ']', found something else"),
        ("a: b: c", "line 1: expected YAML, found mapping values are not allowed in this context"),
        ("a: *x", "line 1: expected an alias of what stands before, found 'x'"),
        ("a: &a [*a]", "line 1: expected an alias of what stands before, found 'a'"),
        ("? [a]\n: 1", "line 1: expected a field's name, found a list"),
        ("&a a: 1\n*a : 2", "line 2: expected a field's name, found the alias 'a'"),
        ("<<: 5", "line 1: expected a mapping to merge, found 5"),
        (
            "a: !!python/object/apply:os.getcwd []",
            "line 1: expected a mapping or a list, "
            "found the tag 'tag:yaml.org,2002:python/object/apply:os.getcwd'",
        ),
        (
            "a: !ours x",
            "line 1: expected text, a number, true, false or null, found the tag '!ours'",
        ),
        ("a: !!int x", "line 1: expected a value of the tag 'tag:yaml.org,2002:int', found 'x'"),
        ("a: !!bool x", "line 1: expected a value of the tag 'tag:yaml.org,2002:bool', found 'x'"),
        (
            f"a: !!int {'1:' * 100_000}1",
            f"line 1: expected a number of at most {LONGEST_NUMBER} characters, "
            f"found '{('1:' * 40)[:76]}...",
        ),
        ('"\\e[31m": 1\n"\\e[31m": 2', r"line 2: expected each field once, found '\x1b[31m' again"),
    ],
)
def test_a_mistake_names_its_line(text: str, said: str) -> None:
    assert refusal(text) == said


def test_every_error_of_the_parser_becomes_one_of_ours() -> None:
    assert refusal("%YAML 1.3\n---\na: 1").startswith("line 1: expected YAML, found ")
    assert refusal("a: 'b\n").startswith("line 2: expected YAML, found ")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: 1\nb: caf\xe9\n")

    for path, said in [
        (tmp_path / "none.yaml", "(file): expected a file, found none"),
        (tmp_path, "(file): expected a file, found a directory"),
        (latin, "line 2: expected UTF-8 text, found the byte 0xe9"),
    ]:
        with pytest.raises(BadFile) as caught:
            read_yaml(path)
        assert str(caught.value) == f"{path}: {said}"


def test_a_path_that_is_none_is_no_crash() -> None:
    with pytest.raises(BadFile, match="expected a readable file"):
        read_yaml(Path("a\0b"))


# --- too much ---------------------------------------------------------------------------------


def test_of_60_megabytes_one_byte_too_many_is_read_and_no_event(
    tmp_path: Path, events_read: list[Any]
) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as stream:
        stream.truncate(60 << 20)

    with pytest.raises(BadFile, match=r"\(file\): expected at most 1,048,576 bytes, found more"):
        read_yaml(path)

    assert events_read == []


@pytest.mark.parametrize("bracket", ["[", "- ", "{a: ", "[{a: "])
def test_of_thousands_of_levels_no_more_than_allowed_is_read(
    bracket: str, events_read: list[Any]
) -> None:
    said = refusal(bracket * 5000)

    assert (
        said == f"line 1: expected at most {MOST_LEVELS} levels of lists and mappings, found more"
    )
    # The stream's and the document's beginnings, then an event per level or two where it has keys.
    assert len(events_read) <= 2 + 2 * (MOST_LEVELS + 1)


def bomb(first: str, more: str) -> str:
    """What grows tenfold with each of twenty lines."""
    lines = [f"a0: &a0 {first}"]
    lines += [
        f"a{level}: &a{level} " + more.format(", ".join([f"*a{level - 1}"] * 10))
        for level in range(1, 20)
    ]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [bomb("[x, x]", "[{}]"), bomb("{k: 1, l: 2}", "{{<<: [{}]}}"), bomb("x", "[{}]")],
    ids=["lists", "merges", "scalars"],
)
def test_a_bomb_of_aliases_is_refused_where_it_passes_the_limit(
    text: str, events_read: list[Any]
) -> None:
    said = refusal(text)

    assert "expected at most 100,000 values, found more" in said
    assert len(events_read) < 100


def test_aliases_are_as_deep_as_what_they_repeat(events_read: list[Any]) -> None:
    text = "a0: &a0 []\n" + "".join(
        f"a{level}: &a{level} [*a{level - 1}]\n" for level in range(1, 40)
    )

    assert f"expected at most {MOST_LEVELS} levels" in refusal(text)


def test_a_list_as_long_as_allowed_is_read_and_a_longer_one_is_not() -> None:
    limits = Limits(most_values=100)

    assert len(parse_yaml("- 1\n" * 99, where="a.yaml", limits=limits)) == 99
    said = refusal("- 1\n" * 100, limits)
    assert said.startswith("line 100: expected at most 100 values, found more")


def test_lists_as_deep_as_allowed_are_read() -> None:
    parse_yaml("[" * MOST_LEVELS + "]" * MOST_LEVELS, where="a.yaml")


# --- anything ---------------------------------------------------------------------------------

SMALL = Limits(most_bytes=4096, most_values=200)
YAML_LIKE = st.text(alphabet="ab1.:-?&*!<>|'\"[]{},# \n\t%@~\\\x00é=", max_size=200)


@settings(max_examples=examples(200), deadline=None)
@given(YAML_LIKE | st.text(max_size=100))
def test_any_text_is_a_value_or_a_bad_file(text: str) -> None:
    try:
        value = parse_yaml(text, where="a.yaml", limits=SMALL)
    except BadFile:
        return
    assert isinstance(value, dict | list | str | int | float | bool | None)


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_bad_file(tmp_path_factory: Any, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    with suppress(BadFile):
        read_yaml(path, SMALL)


SCALARS = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text("abc é", max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc"), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=examples(100), deadline=None)
@given(VALUES)
def test_what_is_written_as_yaml_is_read_back(value: Any) -> None:
    assert parse_yaml(yaml.safe_dump(value, allow_unicode=True), where="a.yaml") == value
