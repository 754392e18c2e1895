"""What a `spotline.yaml` amounts to: whether a system can run by it, and what then holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotline.adapters.files.fields import path_of
from spotline.adapters.files.mistake import Mistake, SecretText
from spotline.adapters.files.spotline_yaml.parts import as_text
from spotline.adapters.files.spotline_yaml.reading import SpotlineConfig
from spotline.adapters.market.parquet import read_market
from spotline.bootstrap.cloud_settings import variables_of
from spotline.bootstrap.clouds import SIMULATED, ChosenCloud, cloud_of, known_settings, run_mode
from spotline.bootstrap.followers import geography_of
from spotline.bootstrap.live import followed_market
from spotline.contracts.errors import ConfigError, SpotlineError
from spotline.domain.market.grid import AnyMarket
from spotline.domain.modes import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedConfig:
    """A file that a system can run by, as far as can be told before it runs."""

    config: SpotlineConfig
    cloud: ChosenCloud
    mode: Mode


def checked(config: SpotlineConfig, environ: Mapping[str, str]) -> CheckedConfig:
    """Read all that a file names, too: its market, geography, knowledge and issuers.

    Raises
    ------
    ConfigError
        Something is wrong; a line for each mistake.
    """
    name = str(config.values.get("cloud", SIMULATED))
    found: list[ChosenCloud] = []
    mode = Mode.OBSERVE

    def cloud() -> None:
        nonlocal mode
        try:
            mode = run_mode(name, str(config.values.get("mode", "")))
        except ConfigError as error:
            known = ", ".join(sorted(set(known_settings()) - {"paper"}))
            mistake = Mistake(field="cloud", expected=f"one of {known}", found=repr(name))
            raise config.wrong([mistake]) from error
        found.append(cloud_of(environ, name, mode, config))
        if "market.file" not in config.values:
            followed = followed_market(found[0], Path(config.values.get("store", ".")))
            if followed is not None:
                _check_market(config, followed.market)

    problems = [*_problems((cloud, *_files(config)))]
    if problems:
        raise ConfigError("\n".join(problems))
    return CheckedConfig(config=config, cloud=found[0], mode=mode)


def _problems(steps: tuple[Callable[[], object], ...]) -> Iterator[str]:
    for step in steps:
        try:
            step()
        except (SpotlineError, ValueError) as error:
            yield from str(error).splitlines()


def _files(config: SpotlineConfig) -> Iterator[Callable[[], object]]:
    """Reads what the file names, one each."""
    from spotline.adapters.files.weights_file import read_weights
    from spotline.adapters.identity.issuers import read_issuers
    from spotline.adapters.knowledge.store import read_knowledge

    readers: Mapping[str, Callable[[Path], object]] = {
        "knowledge.file": read_knowledge,
        "placement.geography": geography_of,
        "identity.issuers": read_issuers,
        "jobs.warm_start": read_weights,
    }
    if "market.file" in config.values:
        yield lambda: _check_market(config, read_market(Path(config.values["market.file"])))
    for key, read in readers.items():
        if key in config.values:
            yield lambda read=read, path=Path(config.values[key]): read(path)  # type: ignore[misc]


def _check_market(config: SpotlineConfig, market: AnyMarket) -> None:
    """Refuse what is said of offerings that the market does not have."""
    known = [each.offering_id for each in market.offerings if each.reservation is None]
    unknown = [each for each in config.values.get("market.list_prices", {}) if each not in known]
    if unknown:
        raise config.wrong(
            Mistake(
                field=path_of(("market", "list_prices", offering_id)),
                expected=f"an offering of the market, one of {', '.join(known)}",
                found=repr(offering_id),
            )
            for offering_id in unknown
        )
    config.reserved(market)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """A value that holds, and where it comes from: file and line, variable, or `default`."""

    key: str
    value: str
    source: str


def effective_of_clouds(
    config: SpotlineConfig, chosen: ChosenCloud, environ: Mapping[str, str]
) -> Iterator[Effective]:
    """What holds of the chosen cloud; of a secret, only where it stands."""
    section = f"clouds.{chosen.name}"
    stated = dict(_leaves(config.clouds.get(chosen.name, {}), ""))
    by_file = {path.partition(".")[0].partition("[")[0] for path in stated}
    upper = {name.upper() for name in environ}
    variables = variables_of(chosen.name, known_settings()[chosen.name])
    for name, value in chosen.described().items():
        variable = variables.get(name, "")
        key = f"{section}.{name}"
        if name in variables and variable in upper:
            yield Effective(key=key, value=as_text(value), source=variable)
        elif name in variables and name not in by_file:
            yield Effective(key=key, value=as_text(value), source="default")
    for path, value in stated.items():
        if variables.get(path, "") not in upper:
            key = f"{section}.{path}"
            yield Effective(
                key=key,
                value=repr(value) if isinstance(value, SecretText) else as_text(value),
                source=f"{config.path}:{config.lines.of(key)}",
            )


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from _leaves(inner, f"{path}.{key}" if path else str(key))
        case list() if any(isinstance(inner, (dict, list)) for inner in value):
            for at, inner in enumerate(value):
                yield from _leaves(inner, f"{path}[{at}]")
        case list():
            yield path, tuple(map(str, value))
        case _:
            yield path, value
