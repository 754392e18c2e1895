"""What a snapshot of the forecaster holds, and that another content has another version."""

import dataclasses
import hashlib
import json
import types
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest

from spotline.application.forecaster.handler import ForecastStateCodec
from spotline.domain.forecasting.law_book import LawBook
from spotline.domain.forecasting.registry import forecaster_factory, forecaster_names
from spotline.domain.forecasting.state_values import AsPlain

FORMAT = "10"
FORMS = {
    "climatology": "376d11b54884",
    "law": "062fd95f5d3e",
    "mixture": "00958d62cb13",
    "persistence": "aeabac83ecd4",
    "river": "e897c21c42e0",
    "seasonal_naive": "122718ca62c6",
    "snarimax": "71669b978748",
    "law book": "30820026d8d4",
}


def form_of(kind):
    """What is written for a type, down to the plain ones: names, order and types of all fields."""
    origin, of = get_origin(kind), get_args(kind)
    if origin is Annotated:
        plain = [each.plain_type for each in of[1:] if isinstance(each, AsPlain)]
        return form_of(plain[0] if plain else of[0])
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {each.name: form_of(hints[each.name]) for each in dataclasses.fields(kind)}
    if origin in (list, tuple, dict, set, types.UnionType) or str(origin).endswith("deque'>"):
        return [str(origin), *(form_of(each) for each in of)]
    return str(kind)


def digest_of(kind) -> str:
    return hashlib.sha256(json.dumps(form_of(kind)).encode()).hexdigest()[:12]


@pytest.mark.parametrize("name", forecaster_names())
def test_a_snapshot_of_another_form_has_another_version(name):
    factory = forecaster_factory(name)

    assert digest_of(factory._kind) == FORMS[name], (
        "an older snapshot cannot be read: raise the format of the forecaster or of the codec, "
        "and note the form above"
    )
    assert ForecastStateCodec(factory).version.startswith(f"{FORMAT} ")


def test_a_law_book_of_another_form_has_another_version():
    assert digest_of(LawBook) == FORMS["law book"], "raise the format of the law book"


def test_the_form_shows_every_field():
    @dataclasses.dataclass
    class Held:
        count: int
        shares: list[float]

    assert form_of(Held) == {"count": "<class 'int'>", "shares": ["<class 'list'>", str(float)]}
