"""A person has an account acted on, or no longer."""

from __future__ import annotations

from spotline.application.allocator.jobs_state import JobsState
from spotline.domain.events.modes import AccountModeSet

LONGEST_REASON = 400


class CannotPromote(ValueError):
    """The mode of an account cannot be set so; `field` is at fault, empty where the run is."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def check_mode_wanted(state: JobsState, account: str, reason: str) -> None:
    """Refuse a mode without a reason, of an account that nobody knows, or of a run on paper.

    Raises
    ------
    CannotPromote
        Says what was expected.
    """
    if not reason.strip():
        raise CannotPromote("reason", "reason must say why, was empty")
    if len(reason) > LONGEST_REASON:
        raise CannotPromote(
            "reason", f"reason must be at most {LONGEST_REASON} characters, were {len(reason)}"
        )
    known = sorted({offering.account_key for offering in state.recent.offerings})
    if account not in known:
        raise CannotPromote(
            "account",
            f"account must be one of the market's ({', '.join(known) or 'none yet'}), "
            f"was {account!r}",
        )
    run = state.recent.mode
    if run.on_paper:
        raise CannotPromote(
            "",
            f"this run is in mode {run.value}, and stays on paper, in its own store: start a live one "
            f"with `spotline up --mode live --store ANOTHER`, and promote {account} there",
        )


def account_modes(state: JobsState) -> tuple[AccountModeSet, ...]:
    """The mode of every account of the market, by account; one that nobody spoke of is the run's."""
    said = state.operations.modes
    accounts = sorted({offering.account_key for offering in state.recent.offerings} | said.keys())
    return tuple(
        said.get(account)
        or AccountModeSet(account=account, mode=state.recent.mode, by="", reason="as the run is")
        for account in accounts
    )
