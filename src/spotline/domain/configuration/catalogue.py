"""Tables of public facts, kept as data beside this module: a row per model or GPU.

The column `names` holds the names of a row, parted by ` | `; a name's other spellings follow it,
each after ` = `.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from importlib.resources import files
from typing import TypeVar

FactsT = TypeVar("FactsT")


def read_catalogue(
    table: str, facts_of: Callable[[str, dict[str, str]], FactsT]
) -> tuple[dict[str, FactsT], dict[str, str]]:
    """Read a table: the facts by canonical name, and the canonical name of other spellings.

    Parameters
    ----------
    table
        File name, such as `models.csv`.
    facts_of
        Makes the facts from a canonical name and the row's columns.
    """
    facts: dict[str, FactsT] = {}
    aliases: dict[str, str] = {}
    text = files("spotline.domain.configuration").joinpath(table).read_text("utf-8")
    for row in csv.DictReader(text.splitlines()):
        for spellings in row["names"].split(" | "):
            name, *others = spellings.split(" = ")
            facts[name] = facts_of(name, row)
            aliases.update(dict.fromkeys(others, name))
    return facts, aliases
