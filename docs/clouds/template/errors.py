"""What Acme says when it refuses, and the class that decides the reaction (ADR 0025)."""

from __future__ import annotations

from spotline.domain.events.capacity import RefusalClass

# Every code of the provider's documentation; what is not in it is UNSUPPORTED, which a person sees.
_CLASSES = {
    "sold_out": RefusalClass.NO_CAPACITY,
    "quota": RefusalClass.QUOTA,
    "bad_request": RefusalClass.UNSUPPORTED,
    "forbidden": RefusalClass.UNAUTHORISED,
    "slow_down": RefusalClass.THROTTLED,
    "internal": RefusalClass.SERVER,
    "no_address": RefusalClass.NETWORK,
    "key_reused": RefusalClass.TOKEN_MISMATCH,
}


class AcmeError(Exception):
    """Acme answered no."""

    def __init__(self, code: str, message: str, retry_after_s: int = 0) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s

    @property
    def refusal_class(self) -> RefusalClass:
        """What decides the reaction."""
        return _CLASSES.get(self.code, RefusalClass.UNSUPPORTED)


class AcmeNoAnswer(Exception):
    """A call was sent, and no answer came: only Acme knows what it did."""
