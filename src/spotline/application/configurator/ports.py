"""What completion needs from outside: knowledge of how configurations run."""

from __future__ import annotations

from typing import Protocol

from spotline.domain.configuration.interface import KnowledgeSource


class Knowledge(Protocol):
    """The knowledge sources that completion may ask.

    Attributes
    ----------
    stack
        The software that jobs run with.
    """

    @property
    def stack(self) -> str:
        """The software that jobs run with."""
        ...

    def source(self, source_id: str = "") -> KnowledgeSource:
        """The source of this name, the default one where it is empty.

        Raises
        ------
        ValueError
            There is none of this name.
        """
        ...
