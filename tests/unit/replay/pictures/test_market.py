"""Pictures of markets: equal scales for equal questions, readable, equal each time."""

import numpy as np
import pytest

from spotline.domain.market.generate import generate
from spotline.domain.market.supply import measure_supply, most_different
from spotline.replay.pictures.market import DescribedMarket, binned, draw_markets, stay_text
from spotline.replay.pictures.style import PRICE_SCALE
from tests.fakes.drawn import assert_readable

START_NS = 1_767_571_200 * 10**9


def described(preset="mixed", *, slots=200, slot_s=1800, name="m.parquet", instances=1):
    market = generate(preset, seed=3, slots=slots, slot_s=slot_s, start_ns=START_NS)
    supply = measure_supply(market, most_different(market, instances), instances)
    return DescribedMarket(name=name, market=market, supply=supply)


def panels(figure):
    """The axes of a figure by their question."""
    found: dict[str, list] = {}
    for axes in figure.axes:
        title = axes.get_title(loc="left")
        if title:
            found.setdefault(title.partition("?")[0], []).append(axes)
    return found


def test_markets_abreast_have_equal_scales(tmp_path, figures):
    pair = [described("cloud-zones"), described("mixed", slots=90, slot_s=3600)]

    draw_markets(pair, tmp_path / "a.png")

    found = panels(figures[0])
    assert len(found) == 5
    for question, axes in found.items():
        assert len(axes) == 2
        lengths = {round(each.get_xlim()[1] - each.get_xlim()[0], 6) for each in axes}
        if question != "How many have enough at once":
            assert len(lengths) == 1, question
        if "cost" in question:
            assert {each.get_ylim() for each in axes} == {PRICE_SCALE}
        if "long" in question:
            assert {each.get_xlim() for each in axes} == {(0.05, 1000.0)}
            assert {each.get_ylim() for each in axes} == {(0.0, 1.02)}
    assert_readable(figures[0])


def test_scales_do_not_depend_on_the_file(tmp_path, figures):
    for name, preset, slot_s in (("a", "neocloud", 600), ("b", "cloud-gang", 3600)):
        draw_markets([described(preset, slot_s=slot_s)], tmp_path / f"{name}.png")

    a, b = (panels(figure) for figure in figures)
    for question in (
        "What did spot cost of the on-demand price",
        "How long does spot stay, once it is there",
    ):
        assert a[question][0].get_ylim() == b[question][0].get_ylim()
    stay = "How long does spot stay, once it is there"
    assert a[stay][0].get_xlim() == b[stay][0].get_xlim()


def test_one_alone_says_numbers_and_is_readable(tmp_path, figures):
    one = described("cloud-zones", slots=480)

    draw_markets([one], tmp_path / "a.png")

    found = panels(figures[0])
    hours = found["At which hour of the day"][0]
    said = [int(text.get_text()) for text in hours.texts]
    shares = [o.share_by_hour for o in one.supply.offerings]
    assert said == [round(100 * share) for share in np.concatenate(shares)]
    assert_readable(figures[0])
    names = [
        text.get_text()
        for axes in figures[0].axes
        if axes.get_legend()
        for text in axes.get_legend().get_texts()
    ]
    assert any(stay_text(one.supply.offerings[0]) in name for name in names)


def test_equal_markets_make_equal_files(tmp_path):
    for name in ("a.png", "b.png"):
        draw_markets([described()], tmp_path / name)

    drawn = (tmp_path / "a.png").read_bytes()
    assert drawn == (tmp_path / "b.png").read_bytes()
    assert b"Software" not in drawn


def test_the_shortest_market_is_drawn_too(tmp_path):
    draw_markets([described(slots=1)], tmp_path / "a.png")

    assert (tmp_path / "a.png").stat().st_size > 1000


def test_none_and_too_many_are_refused(tmp_path):
    for number in (0, 5):
        with pytest.raises(ValueError, match="1 to 4 markets can be drawn"):
            draw_markets([described(slots=4)] * number, tmp_path / "a.png")


@pytest.mark.parametrize(("length", "most"), [(1, 4), (4, 4), (5, 4), (479, 120), (20158, 480)])
def test_binned_values_keep_their_mean(length, most):
    values = np.random.default_rng(1).random(length)

    means, size = binned(values, most)

    assert len(means) <= most
    counts = np.array([min(size, length - n * size) for n in range(len(means))])
    assert float((means * counts).sum()) == pytest.approx(values.sum())


def test_what_is_not_known_is_passed_over():
    means, size = binned(np.array([1.0, np.nan, np.nan, np.nan, 3.0]), 3)

    assert size == 2
    assert np.array_equal(means, [1.0, np.nan, 3.0], equal_nan=True)
