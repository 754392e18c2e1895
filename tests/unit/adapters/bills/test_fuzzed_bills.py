"""Whatever stands in a bill or a history is read, or is answered by an error of its own."""

from __future__ import annotations

import random
import re
from itertools import chain, islice
from pathlib import Path

import pytest

from spotline.adapters.bills.assessing import read_assessed
from spotline.adapters.histories.reading import read_history
from spotline.contracts.errors import ContractError
from tests.depth import examples
from tests.fakes.bills import cur, focus, gcp
from tests.fakes.bills.drawn import AWS_KINDS, GCP_KINDS, Drawn
from tests.fakes.mutation import changed_bytes, changed_text, only_raises

DOCUMENT = Path(__file__).parents[4] / "docs" / "assess-formats.md"
EXAMPLES = re.compile(r"^```(?:csv|json|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TIMES = examples(80)
BILLS = {
    "focus": (focus.written, AWS_KINDS),
    "cur 2.0": (cur.written_parquet, AWS_KINDS),
    "cur": (cur.written_legacy, AWS_KINDS),
    "gcp": (gcp.written, GCP_KINDS),
}


@pytest.mark.parametrize("form", BILLS)
def test_a_changed_bill_is_read_or_refused(form, tmp_path):
    write, kinds = BILLS[form]
    drawn = Drawn(4, jobs=1, days=4, kinds=kinds)
    write(tmp_path / "bill", chain(islice(drawn.charges(), 12), drawn.planted()))
    whole = (tmp_path / "bill").read_bytes()
    rng = random.Random(f"bill {form}")
    path = tmp_path / "changed"
    for number in range(TIMES):
        if form in ("focus", "gcp") and number % 3:
            changed = changed_text(whole.decode(), rng).encode("utf-8", "surrogatepass")
        else:
            changed = changed_bytes(whole, rng)
        path.write_bytes(changed)
        only_raises(
            lambda: read_assessed(path, jobs=None, prices=None),
            (ContractError,),
            f"{form} {number}",
        )


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_changed_history_is_read_or_refused(number, tmp_path):
    text = EXAMPLES.findall(DOCUMENT.read_text())[number]
    rng = random.Random(f"history {number}")
    path = Path(tmp_path / "history")
    for _ in range(TIMES):
        path.write_bytes(changed_text(text, rng).encode("utf-8", "surrogatepass"))
        only_raises(lambda: read_history(path), (ContractError,), text)
