"""Settings of the notifier, read once at start."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from spotline.application.notify.target import NotifyTarget
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.clouds import SIMULATED
from spotline.bootstrap.explaining import SELECTOR_VARIABLES, SERVED, CloudName, served_options
from spotline.bootstrap.stated_config import stated_config
from spotline.runtime.settings import ServiceSettings


class NotifierSettings(ServiceSettings):
    """`SPOTLINE_*` of the notifier.

    Who is told stands in the list `notify` of the file that `SPOTLINE_CONFIG` names. What each was told is kept in
    `store`. `cloud` is the actuator's, as the selector has it, and `selector` are the options of the
    selector that decides, by the names that it has for them: the limits that are told of are theirs.
    """

    cloud: CloudName = SIMULATED
    store: Path = Path("spotline-store")
    selector: Annotated[SelectorOptions, SELECTOR_VARIABLES, BeforeValidator(served_options)] = (
        Field(default=SERVED, validate_default=True)
    )
    _receivers: tuple[NotifyTarget, ...] = PrivateAttr()

    @model_validator(mode="after")
    def _read_receivers(self) -> NotifierSettings:
        config = stated_config(os.environ)
        self._receivers = () if config is None else config.notify
        return self

    @property
    def receivers(self) -> Sequence[NotifyTarget]:
        """Who is told."""
        return self._receivers
