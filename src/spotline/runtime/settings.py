"""What every service is told: where its broker is, and where it shows its health.

A service's options are a dataclass of the application. Its settings hold that dataclass as a field
marked with `OptionVariables`: each option is then a variable, with the name, the type, the default
and the checks that the dataclass has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from spotline.application.health.conditions import HealthLimits

PREFIX = "SPOTLINE_"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionVariables:
    """Marks a field of settings that holds options: each is a variable, `prefix` and its name.

    `left_out` are options that no variable sets. An option that is no number, text or truth value
    needs a validator of the field that reads it from text.
    """

    prefix: str = ""
    left_out: tuple[str, ...] = ()

    def variables(self, options: type[Any]) -> Mapping[str, str]:
        """The variables without `SPOTLINE_`, in lower case, by the name of the option."""
        return {
            option.name: f"{self.prefix}{option.name}"
            for option in fields(options)
            if option.name not in self.left_out
        }


HEALTH_VARIABLES = OptionVariables(prefix="health_")
"""How a service's environment states from when on it is not well: `SPOTLINE_HEALTH_STALL_S`."""


class ServiceSettings(BaseSettings):
    """`SPOTLINE_*` that all services share; read once in `__main__`.

    `health_port` 0 takes any free port and says which in the log. `metrics` shows the metrics
    there too, at `/metrics`; traces, and the same metrics, go to `otlp_endpoint` where that is set.
    `nats_seed` is the file of the key to connect to the broker with, named as its identity
    (`selector.seed`), `nats_ca` that of the certificates that sign the broker's; neither: whoever
    reaches the broker is let in.
    `health` are the limits of `HealthLimits`, each by its own name. Callers are asked who they are,
    over TLS, where `identity_keys` names the folder of keys that this service was handed out, or
    `identity_store` the folder that has `identity/`, shared by all services; certificates of the
    latter name `identity_hosts` (separated by commas). JWTs of `identity_issuers` count, and with
    `identity_mtls` callers must show a certificate of the same authority. What callers do is recorded
    in `audit/` of `audit_store`, else of `identity_store`; with neither no audit is kept.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True
    )

    # Either address may hold a password.
    nats_url: str = Field(default="nats://127.0.0.1:4222", repr=False)
    nats_seed: str = ""
    nats_ca: str = ""
    partition: int = Field(default=0, ge=0)
    health_host: str = "127.0.0.1"
    health_port: int = Field(default=0, ge=0, le=65535)
    health: Annotated[HealthLimits, HEALTH_VARIABLES] = HealthLimits()
    identity_keys: Path | None = None
    identity_store: Path | None = None
    identity_hosts: str = ""
    identity_issuers: Path | None = None
    identity_mtls: bool = False
    audit_store: Path | None = None
    metrics: bool = True
    otlp_endpoint: str = Field(default="", repr=False)
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read options from variables of their own, and behind them what a file states."""
        return init_settings, _OptionSource(settings_cls), _StatedSource(settings_cls)

    @classmethod
    def variables(cls) -> set[str]:
        """The names of all variables that are read."""
        names: set[str] = set()
        for name, field in cls.model_fields.items():
            names.update(_variables_of(field).values() or (name,))
        return {f"{PREFIX}{name}".upper() for name in names}


def problems_of(settings: type[ServiceSettings], error: ValidationError) -> list[str]:
    """What is wrong with the settings, one line each, each with the name of its variable."""
    lines = []
    for problem in error.errors():
        loc = [str(part) for part in problem["loc"]]
        field = settings.model_fields.get(loc[0]) if loc else None
        options = _variables_of(field) if field is not None else {}
        if options:
            # A check of the options as a whole says the name of the option first.
            words = problem["msg"].removeprefix("Value error, ").split(maxsplit=1)
            option = loc[1] if len(loc) > 1 else words[0].rstrip(":")
            loc = [options.get(option, f"{loc[0]}_{option}")]
        lines.append(f"{PREFIX}{'_'.join(loc).upper()}: {problem['msg']}")
    return lines


_NOTHING: Mapping[str, str] = MappingProxyType({})
_stated_by_file: ContextVar[Mapping[str, str]] = ContextVar("stated_by_file", default=_NOTHING)


@contextmanager
def stated_by_file(variables: Mapping[str, str]) -> Iterator[None]:
    """Have settings that are made inside take what their environment does not say from these.

    They are named as variables without `SPOTLINE_`; those that a service has not are passed over.
    """
    token = _stated_by_file.set({f"{PREFIX}{name}".lower(): variables[name] for name in variables})
    try:
        yield
    finally:
        _stated_by_file.reset(token)


class _OptionSource(EnvSettingsSource):
    """Variables, those of options gathered into the field that holds them."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        variables = _variables_of(field)
        if not variables:
            return super().get_field_value(field, field_name)
        stated = {
            option: self.env_vars[f"{PREFIX}{variable}".lower()]
            for option, variable in variables.items()
            if f"{PREFIX}{variable}".lower() in self.env_vars
        }
        return stated or None, field_name, False

    def prepare_field_value(
        self, field_name: str, field: FieldInfo, value: Any, value_is_complex: bool
    ) -> Any:
        if _variables_of(field):
            return value
        return super().prepare_field_value(field_name, field, value, value_is_complex)


class _StatedSource(_OptionSource):
    """The same from what a file states; a service reads of it what is its own."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return dict(_stated_by_file.get())


def _variables_of(field: FieldInfo) -> Mapping[str, str]:
    """The variables of the options in a field, by option; none where it holds no options."""
    for mark in field.metadata:
        if isinstance(mark, OptionVariables) and isinstance(field.annotation, type):
            return mark.variables(field.annotation)
    return {}
