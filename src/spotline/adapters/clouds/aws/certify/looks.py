"""What a certification waits to see of its instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spotline.application.cloud_actuator.ports import Instance, InstanceState


def runs(instance_id: str) -> Callable[[Mapping[str, Instance]], Instance | None]:
    """One instance as it runs."""
    return _in_state(instance_id, InstanceState.RUNNING)


def ended(instance_id: str) -> Callable[[Mapping[str, Instance]], Instance | None]:
    """One instance as it has ended."""
    # AWS shows an ended instance for about an hour: one that is not shown proves nothing.
    return _in_state(instance_id, InstanceState.ENDED)


def _in_state(
    instance_id: str, state: InstanceState
) -> Callable[[Mapping[str, Instance]], Instance | None]:
    def seen(found: Mapping[str, Instance]) -> Instance | None:
        instance = found.get(instance_id)
        return instance if instance and instance.state is state else None

    return seen


def of_token(token: str) -> Callable[[Mapping[str, Instance]], Instance | None]:
    """The first instance of a launch."""

    def seen(found: Mapping[str, Instance]) -> Instance | None:
        return next((each for each in found.values() if each.token == token), None)

    return seen
