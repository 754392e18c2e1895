"""Hard rules: a configuration that breaks one is rejected before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.configuration.configuration import Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A rule that a configuration breaks: its short name, the field at fault, and a sentence."""

    rule: str
    field: str
    message: str


def broken_rules(configuration: Configuration) -> tuple[BrokenRule, ...]:
    """Say which hard rules a configuration breaks, none where it may be tried.

    Notes
    -----
    batch % gpus, gpus % nodes, gpus % expert_parallel (measured on the public data set of
    30,920 runs by its authors).
    """
    raise NotImplementedError
