"""Settings of clouds: `SPOTLINE_CLOUD_<NAME>_<FIELD>` for every field of a cloud's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from spotline.adapters.files.mistake import (
    BadFile,
    Mistake,
    SecretText,
    known_field,
    shown,
    shown_key,
)
from spotline.adapters.files.spotline_yaml.secret_values import BY_PLACE, NOT_SHOWN
from spotline.contracts.errors import ConfigError
from spotline.runtime.settings import PREFIX

CLOUD_PREFIX = f"{PREFIX}CLOUD_"
# Kubernetes puts such variables into every container beside a Service of the actuator's name.
_NOT_OURS = f"{PREFIX}CLOUD_ACTUATOR_"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingProblem:
    """What is wrong with a variable."""

    variable: str
    problem: str

    def __str__(self) -> str:
        """Name the variable first."""
        return f"{self.variable}: {self.problem}"


_SHOULD = "Input should be "
_SAID: Mapping[type[Any], tuple[tuple[type[Any], ...], str]] = {
    str: ((str,), "text"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
}
_OF_ONE_TEXT = (str, int, float, bool)
NOTHING: Mapping[str, Any] = MappingProxyType({})


class WrongCloudSettings(ConfigError):
    """Variables of clouds are unknown, missing, or no values of their fields."""

    def __init__(self, problems: Sequence[SettingProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def variables_of(name: str, settings: type[Any]) -> dict[str, str]:
    """The variable of each field of a cloud's settings, a dataclass, that one text can state."""
    hints = get_type_hints(settings)
    return {
        field.name: f"{CLOUD_PREFIX}{name}_{field.name}".upper()
        for field in fields(settings)
        if hints[field.name] in _OF_ONE_TEXT
    }


def check_known(environ: Mapping[str, str], known: Mapping[str, type[Any]]) -> None:
    """Refuse variables that look like settings of a cloud and are none of those in `known`.

    Raises
    ------
    WrongCloudSettings
        Each of them, with the nearest that there is.
    """
    variables = [
        variable for name in known for variable in variables_of(name, known[name]).values()
    ]
    problems = []
    for stated in sorted(_upper(environ)):
        if not stated.startswith(CLOUD_PREFIX) or stated.startswith(_NOT_OURS):
            continue
        if stated not in variables:
            near = get_close_matches(stated, variables, n=1)
            hint = f" (did you mean {near[0]}?)" if near else f", one of {', '.join(variables)}"
            said = f"expected a setting of a cloud{hint}, found another"
            problems.append(SettingProblem(variable=stated, problem=said))
    if problems:
        raise WrongCloudSettings(problems)


def read_cloud_settings(
    name: str,
    settings: type[Any],
    environ: Mapping[str, str],
    *,
    former_prefix: str = "",
    stated: Mapping[str, Any] = NOTHING,
) -> tuple[Any, Mapping[str, str]]:
    """Read a cloud's settings; a field without a variable is as `stated`, or has its own default.

    `former_prefix` is how variables began before `SPOTLINE_CLOUD_<NAME>_`: they are read where the
    new ones are not stated, and returned beside the settings with what they are called now.

    Raises
    ------
    WrongCloudSettings
        All variables whose values are none of their fields, and fields that need one.
    ValueError
        What is stated is none; names the field.
    """
    given = _upper(environ)
    variables = variables_of(name, settings)
    stated_by: dict[str, str] = {}
    for field, variable in variables.items():
        former = f"{former_prefix}{field}".upper() if former_prefix else ""
        if variable in given:
            stated_by[field] = variable
        elif former in given:
            stated_by[field] = former
    try:
        read = TypeAdapter(settings).validate_python(
            {**stated, **{field: given[variable] for field, variable in stated_by.items()}}
        )
    except ValidationError as error:
        problems = []
        for wrong in error.errors():
            # A check of the settings as a whole says the name of the field first.
            words = wrong["msg"].removeprefix("Value error, ")
            field = str(wrong["loc"][0]) if wrong["loc"] else words.split(maxsplit=1)[0]
            if field in stated and field not in stated_by:
                raise ValueError(words) from error
            variable = stated_by.get(field) or variables.get(field, f"{CLOUD_PREFIX}{name}".upper())
            if variable in given:
                words = found_beside(words, given[variable])
            problems.append(SettingProblem(variable=variable, problem=words))
        raise WrongCloudSettings(problems) from error
    renamed = {
        variable: variables[field]
        for field, variable in stated_by.items()
        if variable != variables[field]
    }
    return read, renamed


def read_section(settings: type[Any], section: Mapping[str, Any]) -> dict[str, Any]:
    """Read what a file says of fields of a cloud's settings, a dataclass, by their names.

    Raises
    ------
    BadFile
        Fields that are unknown or not as expected, each by its name.
    """
    hints = get_type_hints(settings)
    # A field's own default, where it is blank.
    stated = {name: value for name, value in section.items() if value is not None}
    secret = {field.name for field in fields(settings) if not field.repr}
    mistakes: list[Mistake] = []
    for name, value in stated.items():
        expected, found = "", shown(value)
        if name not in hints:
            expected, found = known_field(name, list(hints)), shown_key(name)
        elif name in secret and not isinstance(value, SecretText):
            expected, found = BY_PLACE, NOT_SHOWN
        elif hints[name] in _SAID:
            kinds, said = _SAID[hints[name]]
            expected = "" if isinstance(value, kinds) and _is_bool(value, hints[name]) else said
        else:
            expected = _not_of(hints[name], value)
        if expected:
            mistakes.append(Mistake(field=name, expected=expected, found=found))
    if mistakes:
        raise BadFile(settings.__name__, mistakes)
    return stated


def _is_bool(value: Any, kind: type[Any]) -> bool:
    """Whether it is a truth value exactly where one belongs: for Python it is a number, too."""
    return isinstance(value, bool) is (kind is bool)


def _not_of(kind: Any, value: Any) -> str:
    """What a value of a field with parts should be; empty: what it is."""
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        (wrong, *_) = error.errors()
        inner = ".".join(map(str, wrong["loc"]))
        return f"{inner}: {wrong['msg']}".removeprefix(": ").replace(_SHOULD, "")
    return ""


def found_beside(words: str, found: str) -> str:
    """What pydantic says of a value, in our words, beside the value."""
    if not words.startswith(_SHOULD):
        return words
    expected = words.removeprefix(_SHOULD).partition(", unable to parse")[0]
    return f"expected {expected}, found {found!r}"


def _upper(environ: Mapping[str, str]) -> dict[str, str]:
    return {variable.upper(): text for variable, text in environ.items()}


def without_secrets(value: Any) -> Any:
    """A value as plain ones, without fields that are secret, at whatever depth."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: without_secrets(getattr(value, each.name))
            for each in fields(value)
            if each.repr
        }
    match value:
        case Enum():
            return value.value
        case Mapping():
            return {key: without_secrets(inner) for key, inner in value.items()}
        case tuple() | list():
            return [without_secrets(inner) for inner in value]
        case _:
            return value


def placed_settings(settings: Any, folder: Path) -> dict[str, Any]:
    """The fields of settings that a file states: a path among them begins at its folder."""
    stated = {each.name: getattr(settings, each.name) for each in fields(settings)}
    for each in fields(settings):
        if each.metadata.get("path") and stated[each.name]:
            stated[each.name] = str(folder / Path(stated[each.name]).expanduser())
    return stated
