"""Whose ledger it is, and by which log it was written, in SQL."""

from __future__ import annotations

import json
from dataclasses import asdict

from spotline.adapters.ledger import tables as t
from spotline.adapters.ledger.rows import OwnedRows
from spotline.adapters.ledger.statements import owned
from spotline.application.cloud_actuator.agreed_mark import AgreedMark
from spotline.application.incarnations import FIRST
from spotline.contracts.errors import ConfigError

_INSTALLATION, _INCARNATION, _AGREED = "installation_id", "incarnation", "agreed"
_META = owned(t.meta)


class MetaRows(OwnedRows):
    """What a ledger says of itself; all in the name of its owner."""

    @property
    def installation_id(self) -> str:
        """Whose ledger it is, empty where nobody has claimed it."""
        return self._meta().get(_INSTALLATION, "")

    @property
    def incarnation(self) -> int:
        """The incarnation of the log that it was written by last."""
        return int(self._meta().get(_INCARNATION, FIRST))

    def claim(self, installation_id: str, incarnation: int) -> None:
        """Note whose it is, and which incarnation of the log writes it now.

        Raises
        ------
        ConfigError
            It belongs to another installation.
        OwnerFenced
            A newer epoch exists.
        """
        with self._writing() as transaction:
            known = {row.name: row.value for row in transaction.read(_META)}
            whose = known.get(_INSTALLATION, installation_id)
            if whose != installation_id:
                raise ConfigError(
                    f"the ledger belongs to installation {whose}, the store to {installation_id}: "
                    "give the store that belongs to it, or another ledger"
                )
            wanted = {_INSTALLATION: installation_id, _INCARNATION: str(incarnation)}
            for name, value in wanted.items():
                row = {"name": name, "value": value}
                if name not in known:
                    transaction.add(t.meta, [row])
                elif known[name] != value:
                    transaction.rewrite(t.meta, [row])

    def agreed(self) -> AgreedMark | None:
        """Up to where the log was last seen to have all that the ledger holds of jobs and costs.

        None where that was never noted, or by a release that notes it otherwise.
        """
        said = self._meta().get(_AGREED, "")
        try:
            return AgreedMark(**json.loads(said)) if said else None
        except (ValueError, TypeError):
            # All of the log is compared then: it costs time, and loses nothing.
            return None

    def note_agreed(self, mark: AgreedMark) -> None:
        """Hold up to where the two were seen to agree, in place of what was held before."""
        row = {"name": _AGREED, "value": json.dumps(asdict(mark), sort_keys=True)}
        with self._writing() as transaction:
            known = {row.name for row in transaction.read(t.meta)}
            write = transaction.rewrite if _AGREED in known else transaction.add
            write(t.meta, [row])

    def _meta(self) -> dict[str, str]:
        return {row.name: row.value for row in self._read(_META)}
