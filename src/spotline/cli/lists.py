"""`spotline policies`, `forecasters` and `presets`: what there is to choose from."""

# What is listed is imported inside: kernels and tables cost more than `--help` should.

from __future__ import annotations

from collections.abc import Sequence

import typer

from spotline.cli.calls import AsJson
from spotline.cli.tables import Column, Kind, print_table

_SENTENCE = Column("what it is", Kind.SENTENCE)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(policies)
    app.command()(forecasters)
    app.command()(presets)


def policies(as_json: AsJson = False) -> None:
    """List the policies that jobs are run by, each with what it does."""
    from spotline.domain.policies.registry import FALLBACK_POLICY_ID, POOL

    rows = [
        {
            "policy": policy.policy_id,
            "kind": policy.policy_id.partition("(")[0],
            "what": _summary(type(policy).__doc__),
            "fallback": policy.policy_id == FALLBACK_POLICY_ID,
        }
        for policy in POOL
    ]
    if _printed_json(rows, as_json=as_json):
        return
    kinds: dict[str, list[str]] = {}
    what: dict[str, str] = {}
    for row in rows:
        kinds.setdefault(str(row["kind"]), []).append(str(row["policy"]))
        what[str(row["kind"])] = str(row["what"])
    print_table(
        (
            Column("policy", Kind.ID),
            Column("first"),
            Column("last"),
            Column("n", Kind.NUMBER),
            _SENTENCE,
        ),
        [
            (kind, ids[0], ids[-1] if len(ids) > 1 else "", str(len(ids)), what[kind])
            for kind, ids in kinds.items()
        ],
        whole=True,
    )


def forecasters(as_json: AsJson = False) -> None:
    """List the forecasters of price and availability, each with what it does."""
    from spotline.domain.forecasting.registry import (
        DEFAULT_FORECASTER,
        forecaster_names,
        forecaster_summary,
    )

    rows = [
        {
            "forecaster": name,
            "what": forecaster_summary(name),
            "default": name == DEFAULT_FORECASTER,
        }
        for name in forecaster_names()
    ]
    if not _printed_json(rows, as_json=as_json):
        print_table(
            (Column("forecaster", Kind.ID), Column(""), _SENTENCE),
            [
                (str(row["forecaster"]), "default" if row["default"] else "", str(row["what"]))
                for row in rows
            ],
            whole=True,
        )


def presets(as_json: AsJson = False) -> None:
    """List the presets of generated markets, each with what is in it."""
    from spotline.domain.market.generate import PRESETS

    rows = [
        {
            "preset": preset.name,
            "offerings": len(preset.zones) + len(preset.neoclouds),
            "what": preset.description,
        }
        for preset in PRESETS.values()
    ]
    if not _printed_json(rows, as_json=as_json):
        print_table(
            (Column("preset", Kind.ID), Column("offerings", Kind.NUMBER), _SENTENCE),
            [(str(row["preset"]), str(row["offerings"]), str(row["what"])) for row in rows],
            whole=True,
        )


def _printed_json(rows: Sequence[dict[str, object]], *, as_json: bool) -> bool:
    from spotline.cli.jobs_view import print_json

    if as_json:
        print_json(rows)
    return as_json


def _summary(docstring: str | None) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((docstring or "").partition("\n\n")[0].split())
