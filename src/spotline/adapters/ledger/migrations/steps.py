"""The steps from each schema to the next, and the walk along them."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from sqlalchemy import Connection, text

from spotline import __version__
from spotline.adapters.ledger.migrations import to_2, to_3, to_4, to_5
from spotline.adapters.ledger.tables import SCHEMA_VERSION
from spotline.contracts.errors import ConfigError

# By the version that a step leads to. A step writes its own SQL: tables.py is of the newest alone.
STEPS: MappingProxyType[int, Callable[[Connection], None]] = MappingProxyType(
    {2: to_2.migrate, 3: to_3.migrate, 4: to_4.migrate, 5: to_5.migrate}
)


def migrate(connection: Connection, version: int) -> None:
    """Bring a ledger of an older schema to the newest, in the caller's transaction.

    Raises
    ------
    ConfigError
        The ledger is of a newer schema than this release reads.
    """
    if version > SCHEMA_VERSION:
        raise ConfigError(
            f"the ledger has schema {version}, this release (Spotline {__version__}) reads up to "
            f"{SCHEMA_VERSION}; start the release that wrote it, or a newer one"
        )
    taken = range(version + 1, SCHEMA_VERSION + 1)
    for step in taken:
        STEPS[step](connection)
        connection.execute(text("UPDATE ledger_schema SET version = :version"), {"version": step})
    if taken:
        # Recorded last: the table of steps came with schema 3.
        connection.execute(
            text("INSERT INTO ledger_migrations (version, release) VALUES (:version, :release)"),
            [{"version": step, "release": __version__} for step in taken],
        )
