"""Import a market from a source: the registry of formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from spotline.adapters.market.importers import (
    aws_spot_price_history,
    long_csv,
    prime_intellect,
    skypilot,
)
from spotline.adapters.market.options import FLAGS, Importer, ImportOptions
from spotline.contracts.errors import ContractError
from spotline.domain.market.market import Market

IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        importer.name: importer
        for importer in (
            skypilot.IMPORTER,
            aws_spot_price_history.IMPORTER,
            prime_intellect.IMPORTER,
            long_csv.IMPORTER,
        )
    }
)


def import_market(source_format: str, files: Sequence[Path], options: ImportOptions) -> Market:
    """Read `files` of one format as a market.

    Raises
    ------
    ContractError
        The format is unknown, an option is missing or means nothing for it, or a file breaks it.
    """
    importer = IMPORTERS.get(source_format)
    if importer is None:
        raise ContractError(
            "--format", f"expected one of {', '.join(IMPORTERS)}, found {source_format!r}"
        )
    if not files:
        raise ContractError("FILE", "expected at least one file, found none")
    for name in options.given():
        if name not in importer.accepts:
            accepted = ", ".join(flag for key, flag in FLAGS.items() if key in importer.accepts)
            raise ContractError(
                FLAGS[name], f"expected only {accepted} with the format {importer.name}, found it"
            )
    return importer.read(files, options)
