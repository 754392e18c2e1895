"""Read `spotline.yaml`: what it says, in which line, and everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os.path import normpath
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from spotline.adapters.files.fields import mistakes_of, path_of
from spotline.adapters.files.mistake import WHOLE_FILE, BadFile, Mistake, mistake_of, shown_key
from spotline.adapters.files.reservations_file import ReservationPart, reserved_offerings
from spotline.adapters.files.spotline_yaml.parts import (
    ConfigPart,
    OverridePart,
    as_text,
    keys,
    value_at,
)
from spotline.adapters.files.spotline_yaml.secret_values import Secrets
from spotline.adapters.files.yaml_file import parse_yaml_with_lines, read_text
from spotline.application.notify.target import NotifyTarget
from spotline.domain.limits.spending import Spending
from spotline.domain.market.grid import AnyMarket
from spotline.domain.market.overrides import PriceOverride, PriceOverrides
from spotline.domain.market.reservations import with_reservations

_CLOUDS = "clouds"
# Where secrets may stand; elsewhere `{file: ...}` is a mapping like every other.
_WITH_SECRETS = (_CLOUDS, "nats_url", "notify")


@dataclass(frozen=True, slots=True)
class Lines:
    """In which line of a file each of its fields stands."""

    by_field: Mapping[str, int] = field(default_factory=dict)

    def of(self, path: str) -> int:
        """The line of a field, of what holds it where it is absent, 0 of the whole file."""
        while path and path not in self.by_field:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.by_field.get(path, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotlineConfig:
    """What a file says.

    Attributes
    ----------
    values
        What is stated of `keys()`, by key: paths begin at the file's folder.
    spending
        Limits on money; None: the file says nothing of them.
    clouds
        Each cloud's section, secrets in it resolved.
    notify
        Who is told of what needs somebody.
    """

    path: Path
    values: Mapping[str, Any] = field(repr=False)  # an address may hold a password
    lines: Lines = field(repr=False)
    spending: Spending | None = None
    overrides: tuple[OverridePart, ...] = ()
    reservations: tuple[ReservationPart, ...] = ()
    clouds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    notify: tuple[NotifyTarget, ...] = ()

    def options(self) -> dict[str, Any]:
        """Values of the options of `spotline up`, by the names of its parameters."""
        found: dict[str, Any] = {}
        for key, sets in keys():
            if key in self.values and sets.option:
                found[sets.option] = _for_option(self.values[key])
        return found

    def variables(self) -> dict[str, str]:
        """What services would read from their environment, by name without `SPOTLINE_`."""
        found = {
            variable: as_text(self.values[key])
            for key, sets in keys()
            if key in self.values
            for variable in sets.variables
        }
        if self.spending is not None:
            found["SPENDING"] = self.spending.to_json()
        return found

    def reserved(self, market: AnyMarket) -> AnyMarket:
        """The market with what is paid for already; `BadFile` where that is not of the market."""
        added, mistakes = reserved_offerings(market.offerings, self.reservations)
        if mistakes:
            raise self.wrong(mistakes)
        return with_reservations(market, added) if added else market

    def price_overrides(self) -> PriceOverrides:
        """What this buyer pays; `BadFile` where a price or a time cannot be."""
        stated: list[PriceOverride] = []
        mistakes: list[Mistake] = []
        for index, part in enumerate(self.overrides):
            try:
                stated.append(part.price_override())
            except ValueError as error:
                expected, _, found = str(error).partition(", was ")
                mistakes.append(
                    Mistake(field=f"overrides[{index}]", expected=expected, found=found or "none")
                )
        if mistakes:
            raise self.wrong(mistakes)
        return PriceOverrides(stated=tuple(stated))

    def wrong(self, mistakes: Iterable[Mistake]) -> BadFile:
        """The error of these mistakes, each with its line."""
        return BadFile(str(self.path), _placed(mistakes, self.lines))

    def check_clouds(self, known: Sequence[str]) -> None:
        """Refuse sections of clouds that are none of those known; `BadFile`."""
        unknown = [name for name in self.clouds if name not in known]
        if unknown:
            raise self.wrong(
                Mistake(
                    field=path_of((_CLOUDS, name)),
                    expected=f"a cloud, one of {', '.join(known)}",
                    found=shown_key(name),
                )
                for name in unknown
            )

    @contextmanager
    def reading(self, cloud: str) -> Iterator[None]:
        """Say of mistakes in a cloud's section where in the file they stand.

        Raises
        ------
        BadFile
            What the block raises as `BadFile` or `ValueError`, in the words of the file.
        """
        try:
            yield
        except BadFile as error:
            raise self.wrong(_below(cloud, error.mistakes)) from error
        except ValueError as error:
            raise self.wrong(_below(cloud, [mistake_of(str(error))])) from error


def read_config(path: Path, environ: Mapping[str, str]) -> SpotlineConfig:
    """Read a file; secrets are looked up in `environ` and in files beside it.

    Raises
    ------
    BadFile
        It is unreadable, or fields are not as expected: names each, with its line.
    """
    text = read_text(path)
    content, by_steps = parse_yaml_with_lines(text, where=str(path))
    lines = Lines({path_of(steps): line for steps, line in by_steps.items()})
    mistakes: list[Mistake] = []
    # An empty file says nothing, and that is well.
    content = _resolved({} if content is None else content, path, environ, mistakes)
    try:
        part = ConfigPart.model_validate(content)
    except ValidationError as error:
        mistakes += mistakes_of(error, ConfigPart)
    if mistakes:
        raise BadFile(str(path), _placed(mistakes, lines))
    return _config(path, part, lines)


def _resolved(content: Any, path: Path, environ: Mapping[str, str], mistakes: list[Mistake]) -> Any:
    if not isinstance(content, dict):
        return content
    secrets = Secrets(environ, path.absolute().parent, mistakes)
    return {
        key: secrets.resolved(value, (key,)) if key in _WITH_SECRETS else value
        for key, value in content.items()
    }


def _config(path: Path, part: ConfigPart, lines: Lines) -> SpotlineConfig:
    folder = path.absolute().parent
    values = {}
    for key, sets in keys():
        value = value_at(part, key)
        if value is None:
            continue
        values[key] = normpath(folder / Path(value).expanduser()) if sets.is_path else value
    return SpotlineConfig(
        path=path,
        values=values,
        lines=lines,
        spending=None if part.limits is None else part.limits.spending(),
        overrides=part.overrides,
        reservations=part.reservations,
        clouds=part.clouds,
        notify=tuple(receiver.target() for receiver in part.notify),
    )


def _for_option(value: Any) -> Any:
    match value:
        case Mapping():
            return [f"{name}={amount}" for name, amount in value.items()]
        case tuple():
            return ",".join(value)
        case _:
            return value


def _below(cloud: str, mistakes: Sequence[Mistake]) -> list[Mistake]:
    section = path_of((_CLOUDS, cloud))
    return [
        replace(
            mistake,
            field=section if mistake.field == WHOLE_FILE else f"{section}.{mistake.field}",
        )
        for mistake in mistakes
    ]


def _placed(mistakes: Iterable[Mistake], lines: Lines) -> list[Mistake]:
    placed = [
        mistake if mistake.line else replace(mistake, line=lines.of(mistake.field))
        for mistake in mistakes
    ]
    return sorted(placed, key=lambda mistake: mistake.line)
