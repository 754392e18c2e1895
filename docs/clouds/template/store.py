"""What the cloud's adapter must not forget: which messages were taken, and by which token."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class AcmeStore:
    """A file that outlives the process."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)
        with self._connection:
            self._connection.execute("CREATE TABLE IF NOT EXISTS taken (token PRIMARY KEY, said)")
            self._connection.execute("CREATE TABLE IF NOT EXISTS told (message PRIMARY KEY)")

    def said(self, token: str) -> list[Any] | None:
        """What a taking got before, None where there was none by this token."""
        row = self._connection.execute("SELECT said FROM taken WHERE token = ?", [token]).fetchone()
        return None if row is None else list(json.loads(row[0]))

    def untold(self, messages: Sequence[Any]) -> list[Any]:
        """Those that no taking got so far."""
        told = {row[0] for row in self._connection.execute("SELECT message FROM told")}
        return [message for message in messages if message["id"] not in told]

    def take(self, token: str, messages: Sequence[Any]) -> None:
        """Note what a taking got, all of it or nothing."""
        ids = [[message["id"]] for message in messages]
        with self._connection:
            self._connection.execute(
                "INSERT INTO taken VALUES (?, ?)", [token, json.dumps(messages)]
            )
            self._connection.executemany("INSERT OR IGNORE INTO told VALUES (?)", ids)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
