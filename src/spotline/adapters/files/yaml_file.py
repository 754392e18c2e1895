"""What our placement files share: how YAML is read, and what is said of its mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from spotline.contracts.errors import ContractError


def _no_bool(value: Any) -> Any:
    # YAML's yes and on are true, which Python counts as 1.
    if isinstance(value, bool):
        raise ValueError("expected a number")  # noqa: TRY004 - what pydantic reports
    return value


Number = Annotated[float, BeforeValidator(_no_bool), Field(allow_inf_nan=False)]
NotNegative = Annotated[float, BeforeValidator(_no_bool), Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, BeforeValidator(_no_bool), Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, BeforeValidator(_no_bool), Field(ge=0, le=1 << 40)]
Name = Annotated[str, Field(min_length=1)]


class Part(BaseModel):
    """A mapping of a file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


PartT = TypeVar("PartT", bound=Part)


def text_of(path: Path) -> str:
    """The text of a file; `ContractError` where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ContractError(str(path), f"expected a readable YAML file: {error}") from error


def part_of(part: type[PartT], text: str, *, where: str) -> PartT:
    """Read the text of a file as a part.

    Raises
    ------
    ContractError
        It is no YAML, or fields are not as expected: says which, and what was found.
    """
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ContractError(where, f"expected YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ContractError(where, f"expected a mapping of fields, found {type(content).__name__}")
    try:
        return part.model_validate(content)
    except ValidationError as error:
        raise ContractError(where, _problems(error)) from error


def _problems(error: ValidationError) -> str:
    said = []
    for one in error.errors():
        path = ""
        for step in one["loc"]:
            if str(step).startswith("<"):
                continue  # which form of a value it is, not a key of the file
            path += f"[{step}]" if isinstance(step, int) else f"{'.' if path else ''}{step}"
        found = "" if one["type"] == "missing" else f", found {one['input']!r}"
        said.append(f"{path or '(file)'}: {one['msg']}{found}")
    return "; ".join(said)
