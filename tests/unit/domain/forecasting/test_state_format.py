"""A state is written as plain values, and read back as what the reader expects or not at all."""

import hashlib
import json
import math
import random
import zlib
from collections import deque
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.forecasting.registry import forecaster_factory, forecaster_names
from spotline.domain.forecasting.state_format import MOST_BYTES, pack, state_version, unpack
from spotline.domain.forecasting.state_values import AsPlain
from tests.contract.test_forecaster_contract import wild_slots
from tests.depth import examples

VERSIONS = {"format": "1"}
MAGIC = b"spotline-forecaster 2\n"


@dataclass
class Point:
    x: int
    y: int


@dataclass
class Everything:
    flag: bool
    count: int
    share: float
    name: str
    maybe: int | None
    row: list[float]
    counts: tuple[int, ...]
    pairs: list[tuple[float, float]]
    points: tuple[Point, ...]
    mixed: tuple[int, str]
    by_name: dict[str, list[float]]
    by_pair: dict[tuple[int, int], Point]
    latest: deque[int]
    known: set[str]
    matrix: npt.NDArray[np.float64]
    own: Annotated[
        Any, AsPlain(list[int], lambda value: [int(value.real)], lambda of: complex(of[0]))
    ]


def everything() -> Everything:
    return Everything(
        flag=True,
        count=-(2**63),
        share=math.inf,
        name="a\nb",
        maybe=None,
        row=[0.1, -0.0, 5e-324],
        counts=(1, 2**63 - 1),
        pairs=[(1.0, 2.0)],
        points=(Point(1, 2), Point(3, 4)),
        mixed=(1, "x"),
        by_name={"b": [1.5], "a": []},
        by_pair={(1, 2): Point(0, 0)},
        latest=deque([1, 2], maxlen=5),
        known={"z", "a"},
        matrix=np.arange(6.0).reshape(2, 3),
        own=7,
    )


def sealed(plain: object, numbers: bytes = b"", **head: object) -> bytes:
    """A state whose checksum is right, whatever it holds."""
    values = json.dumps(plain).encode() + b"\n" + numbers
    body = zlib.compress(values)
    header = {
        "bytes": len(values),
        "model": "m",
        "sha256": hashlib.sha256(body).hexdigest(),
        "versions": VERSIONS,
        **head,
    }
    return MAGIC + json.dumps(header).encode() + b"\n" + body


def test_every_kind_of_value_comes_back():
    written = pack("m", VERSIONS, everything(), Everything)

    again = unpack("m", VERSIONS, written, Everything)

    assert pack("m", VERSIONS, again, Everything) == written
    assert (again.row, again.by_name, again.points) == (
        everything().row,
        everything().by_name,
        everything().points,
    )
    assert math.copysign(1.0, again.row[1]) == -1.0
    assert list(again.by_name) == ["b", "a"]
    assert again.latest == deque([1, 2])
    assert again.latest.maxlen == 5
    assert again.matrix.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert again.own == complex(7)


def test_equal_states_give_equal_bytes_whatever_they_share():
    text = "shared"
    shared, apart = [text, text], ["shared", "".join(["sha", "red"])]

    kind = list[str]
    assert pack("m", VERSIONS, shared, kind) == pack("m", VERSIONS, apart, kind)


def test_header_is_readable():
    header = json.loads(pack("model", VERSIONS, 1, int).split(b"\n")[1])

    assert (header["model"], header["versions"]) == ("model", VERSIONS)


@pytest.mark.parametrize(
    ("kind", "plain", "said"),
    [
        (int, 1.5, "an int of 64 bits"),
        (int, True, "an int of 64 bits"),
        (int, 2**63, "an int of 64 bits"),
        (float, "1", "float was expected"),
        (float, 1, "float was expected"),
        (bool, 1, "bool was expected"),
        (str, None, "str was expected"),
        (list[str], {"a": 1}, "a list was expected"),
        (tuple[int, str], [1], "a list of 2"),
        (int | None, [], "a list of 1"),
        (list[float], -1, "a row must hold"),
        (list[float], 2**40, "a row must hold"),
        (list[float], [1.0], "an int of 64 bits"),
        (dict[str, int], [["a", "a"], 2], "a row must hold"),
        (deque[str], [1, ["a", "b"]], "at most 1 values"),
        (npt.NDArray[np.float64], [2**20, 2**20], "a row must hold"),
        (npt.NDArray[np.float64], [-1, -1], "the shape of an array"),
        (npt.NDArray[np.float64], [1] * 100, "the shape of an array"),
        (Point, [1, 2, 3], "a list of 2"),
    ],
)
def test_a_value_of_another_type_is_refused(kind, plain, said):
    with pytest.raises(ValueError, match=said):
        unpack("m", VERSIONS, sealed(plain), kind)


def test_numbers_of_no_value_and_keys_twice_are_refused():
    with pytest.raises(ValueError, match="8 bytes of numbers belong to no value"):
        unpack("m", VERSIONS, sealed(1, b"\0" * 8), int)
    with pytest.raises(ValueError, match="twice"):
        unpack("m", VERSIONS, sealed([["a", "a"], ["b", "c"]]), dict[str, str])


def test_nested_brackets_and_long_numbers_are_refused():
    for text in (b"[" * 100_000, b"9" * 100_000):
        values = text + b"\n"
        body = zlib.compress(values)
        header = {
            "bytes": len(values),
            "model": "m",
            "sha256": hashlib.sha256(body).hexdigest(),
            "versions": VERSIONS,
        }
        with pytest.raises(ValueError, match="cannot be read"):
            unpack("m", VERSIONS, MAGIC + json.dumps(header).encode() + b"\n" + body, list[int])


@pytest.mark.parametrize("size", [10, MOST_BYTES + 1, -1, "10", True])
def test_what_inflates_to_more_than_it_says_is_refused(size):
    body = zlib.compress(b"\0" * 50_000_000, 9)
    header = {
        "bytes": size,
        "model": "m",
        "sha256": hashlib.sha256(body).hexdigest(),
        "versions": VERSIONS,
    }

    with pytest.raises(ValueError, match="bytes"):
        unpack("m", VERSIONS, MAGIC + json.dumps(header).encode() + b"\n" + body, int)


def test_a_state_of_the_former_format_is_refused():
    with pytest.raises(ValueError, match="must start with its header"):
        unpack("m", VERSIONS, b"spotline-forecaster\n{}\n", int)


def test_version_names_the_model_and_everything_it_depends_on():
    assert state_version("m", {"river": "2", "format": "1"}) == "m format=1 river=2"


def test_a_type_that_cannot_be_written_is_a_mistake_of_the_code():
    with pytest.raises(TypeError, match="cannot be written"):
        pack("m", VERSIONS, object(), object)


# --- hostile states of real forecasters, with the right checksum ---------------------------------


def parts_of(data: bytes) -> tuple[dict, Any, bytes]:
    header, _, body = data.removeprefix(MAGIC).partition(b"\n")
    plain, _, numbers = zlib.decompress(body).partition(b"\n")
    return json.loads(header), json.loads(plain), numbers


def places_in(plain: Any, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    found = [path] if path else []
    if isinstance(plain, list):
        for index, each in enumerate(plain):
            found += places_in(each, (*path, index))
    return found


@pytest.fixture(scope="module")
def learnt():
    states = {}
    for name in forecaster_names():
        forecaster = forecaster_factory(name)(2)
        for opened in wild_slots(7, 12):
            forecaster.learn(opened)
        states[name] = forecaster.dump()
    return states


STRANGE = (None, True, -1, 2**62, 2**70, 1e300, math.nan, "x" * 100, [], [[[]]], {"a": 1})


@pytest.mark.parametrize("name", forecaster_names())
def test_a_hostile_state_is_read_as_a_state_or_refused(learnt, name):
    header, plain, numbers = parts_of(learnt[name])
    places = places_in(plain)
    rng = random.Random(16)
    refused = 0
    for _ in range(examples(20)):
        hostile = json.loads(json.dumps(plain))
        *path, last = rng.choice(places)
        holder = hostile
        for index in path:
            holder = holder[index]
        holder[last] = rng.choice(STRANGE)
        cut = rng.choice((numbers, numbers[:-8], numbers + b"\0" * 8, rng.randbytes(len(numbers))))
        data = sealed(hostile, cut, model=header["model"], versions=header["versions"])
        try:
            forecaster_factory(name).load(data)
        except ValueError:
            refused += 1

    assert refused > 0


@given(noise=st.binary(max_size=200), at=st.integers(0, 10**6))
def test_bytes_put_into_a_state_are_found(learnt, noise, at):
    data = learnt["persistence"]
    place = at % len(data)
    changed = data[:place] + noise + data[place + len(noise) :]
    if changed != data:
        with pytest.raises(ValueError, match="state"):
            forecaster_factory("persistence").load(changed)
