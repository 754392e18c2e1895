"""Settings of clouds: `SPOTLINE_CLOUD_<NAME>_<FIELD>` for every field of a cloud's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from pydantic import TypeAdapter, ValidationError

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


class WrongCloudSettings(ConfigError):
    """Variables of clouds are unknown, missing, or no values of their fields."""

    def __init__(self, problems: Sequence[SettingProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def variables_of(name: str, settings: type[Any]) -> dict[str, str]:
    """The variable of every field of a cloud's settings, which are a dataclass."""
    return {field.name: f"{CLOUD_PREFIX}{name}_{field.name}".upper() for field in fields(settings)}


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
    name: str, settings: type[Any], environ: Mapping[str, str], *, former_prefix: str = ""
) -> tuple[Any, Mapping[str, str]]:
    """Read a cloud's settings; a field without a variable has its own default.

    `former_prefix` is how variables began before `SPOTLINE_CLOUD_<NAME>_`: they are read where the
    new ones are not stated, and returned beside the settings with what they are called now.

    Raises
    ------
    WrongCloudSettings
        All variables whose values are none of their fields, and fields that need one.
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
            {field: given[variable] for field, variable in stated_by.items()}
        )
    except ValidationError as error:
        problems = []
        for wrong in error.errors():
            # A check of the settings as a whole says the name of the field first.
            words = wrong["msg"].removeprefix("Value error, ")
            field = str(wrong["loc"][0]) if wrong["loc"] else words.split(maxsplit=1)[0]
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


def found_beside(words: str, found: str) -> str:
    """What pydantic says of a value, in our words, beside the value."""
    if not words.startswith(_SHOULD):
        return words
    expected = words.removeprefix(_SHOULD).partition(", unable to parse")[0]
    return f"expected {expected}, found {found!r}"


def _upper(environ: Mapping[str, str]) -> dict[str, str]:
    return {variable.upper(): text for variable, text in environ.items()}
