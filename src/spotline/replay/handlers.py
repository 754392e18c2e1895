"""The deciding handlers of a recorded run, with the settings its manifest holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from spotline.application.allocator.handler import JobsHandler
from spotline.application.analytics.handler import StatisticsFold
from spotline.application.analytics.options import options_of
from spotline.application.configurator.handler import ConfigureHandler
from spotline.application.forecaster.handler import DEFAULT_HORIZON_SLOTS, ForecastHandler
from spotline.application.placer.handler import PlaceHandler
from spotline.application.placer.options import PlacerOptions
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.options import SelectorOptions
from spotline.application.spec import Handler
from spotline.contracts.errors import ContractError
from spotline.contracts.mapping import digest
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER, forecaster_factory
from spotline.domain.market.learning_rules import LearningRules
from spotline.domain.market.prior_laws import PriorLaws, named_priors


def selector_options(settings: Mapping[str, Any]) -> SelectorOptions:
    """The selector's options among a manifest's settings; what is not stated is the default.

    Raises
    ------
    ContractError
        A stated value is of the wrong type, or out of its range.
    """
    try:
        return SelectorOptions(**_stated(settings, "selector", SelectorOptions))
    except ValueError as error:
        raise ContractError("manifest settings.selector", str(error)) from error


def placer_options(settings: Mapping[str, Any]) -> PlacerOptions:
    """The placer's options among a manifest's settings; what is not stated is the default.

    Raises
    ------
    ContractError
        A stated value is of the wrong type, or there is no such method or cost.
    """
    try:
        return PlacerOptions(**_stated(settings, "placer", PlacerOptions))
    except ValueError as error:
        raise ContractError("manifest settings.placer", str(error)) from error


def _stated(
    settings: Mapping[str, Any], service: str, options: type[SelectorOptions | PlacerOptions]
) -> dict[str, Any]:
    stated = _of(settings, service)
    known: dict[str, Any] = {}
    for option in fields(options):
        if option.name not in stated:
            continue
        value, default = stated[option.name], option.default
        if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not type(default):
            raise ContractError(
                f"manifest settings.{service}.{option.name}",
                f"expected {type(default).__name__}, found {value!r}",
            )
        known[option.name] = value
    return known


def forecaster_stated(settings: Mapping[str, Any]) -> tuple[str, int]:
    """The forecaster's name and its horizon in slots among a manifest's settings, or the defaults.

    Raises
    ------
    ContractError
        The settings are malformed.
    """
    stated = _of(settings, "forecaster")
    name = stated.get("forecaster", DEFAULT_FORECASTER)
    return name, stated.get("horizon_slots", DEFAULT_HORIZON_SLOTS)


def learning_rules(settings: Mapping[str, Any]) -> LearningRules:
    """How laws were learned; what a manifest does not state was not done, as before 0.3.0.

    Raises
    ------
    ContractError
        The settings are malformed.
    """
    stated = _of(settings, "forecaster")
    done = {}
    for each in fields(LearningRules):
        said = stated.get(each.name, False)
        if not isinstance(said, bool):
            raise ContractError(
                f"manifest settings.forecaster.{each.name}",
                f"expected true or false, found {said!r}",
            )
        done[each.name] = said
    return LearningRules(**done)


def priors_stated(settings: Mapping[str, Any]) -> PriorLaws:
    """The prior laws among a manifest's settings; none where it names none.

    Raises
    ------
    ContractError
        This release has no priors of the name.
    """
    stated = _of(settings, "forecaster").get("priors_sha256", "")
    try:
        return named_priors(stated)
    except ValueError as error:
        raise ContractError("manifest settings.forecaster", str(error)) from error


def handlers_of(settings: Mapping[str, Any]) -> tuple[Handler[Any], ...]:
    """The deciding services as they were recorded; all others only observe.

    Raises
    ------
    ContractError
        The settings name a forecaster that does not exist, or are malformed.
    """
    name, horizon = forecaster_stated(settings)
    try:
        forecaster = ForecastHandler(
            forecaster_factory(name),
            horizon_slots=horizon,
            learning=learning_rules(settings),
            priors=priors_stated(settings),
        )
    except (TypeError, ValueError) as error:
        raise ContractError("manifest settings.forecaster", str(error)) from error
    selector = SelectHandler(selector_options(settings), digest=digest)
    placer = PlaceHandler(placer_options(settings))
    return (forecaster, selector, JobsHandler(), ConfigureHandler(), placer)


def statistics_of(settings: Mapping[str, Any]) -> StatisticsFold | None:
    """The analytics as they were recorded, None where the manifest does not say how.

    Raises
    ------
    ContractError
        The settings are malformed.
    """
    if "analytics" not in settings:
        return None
    try:
        return StatisticsFold(options_of(_of(settings, "analytics")))
    except ValueError as error:
        raise ContractError("manifest settings.analytics", str(error)) from error


def _of(settings: Mapping[str, Any], service: str) -> Mapping[str, Any]:
    stated = settings.get(service, {})
    if not isinstance(stated, Mapping):
        raise ContractError(f"manifest settings.{service}", f"expected settings, found {stated!r}")
    return stated
