"""AWS's services as botocore's models describe them: the one place that knows botocore's types.

botocore is read here, never taught: what a client serialises by these models is parsed by them, and
what a service answers is held against them.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Mapping
from typing import Any, Protocol

SERVICES = (
    *("ec2", "sts", "sqs", "events", "pricing", "service-quotas", "iam", "fis"),
    "cloudtrail",
)
"""The services that a rehearsal has, as botocore names them."""


class WireShape(Protocol):
    """A type of the wire: a structure, list, map or scalar. Only its kind's attributes are there."""

    name: str
    type_name: str
    serialization: Mapping[str, Any]
    metadata: Mapping[str, Any]
    members: Mapping[str, WireShape]
    member: WireShape
    key: WireShape
    value: WireShape


class WireOperation(Protocol):
    """An operation, and what goes in and comes out; None: nothing."""

    name: str
    http: Mapping[str, Any]
    input_shape: WireShape | None
    output_shape: WireShape | None


class ServiceDescription:
    """What the wire needs of a service's model.

    Parameters
    ----------
    name
        As botocore names it.

    Raises
    ------
    ModuleNotFoundError
        botocore is not there: `pip install spotline[aws]`.
    """

    def __init__(self, name: str) -> None:
        from botocore.loaders import Loader
        from botocore.model import ServiceModel

        self.name = name
        # Of our own, so that nobody's ~/.aws/models is read.
        loader = Loader(include_default_search_paths=False)
        loader.search_paths.append(Loader.BUILTIN_DATA_PATH)
        self._model = ServiceModel(loader.load_service_model(name, "service-2"), name)
        metadata: Mapping[str, Any] = self._model.metadata
        self.protocol: str = self._model.resolved_protocol
        # Both write JSON; they differ in where a request says what it is.
        self.speaks_json = self.protocol in ("json", "rest-json")
        self.api_version: str = metadata["apiVersion"]
        self.namespace: str = metadata.get("xmlNamespace", "")
        self.json_version: str = metadata.get("jsonVersion", "")
        self.target_prefix: str = metadata.get("targetPrefix", "")
        self.query_compatible: bool = "awsQueryCompatible" in metadata
        self.signing_name: str = metadata.get("signingName", metadata["endpointPrefix"])
        self._names = frozenset(self._model.operation_names)

    def operation(self, name: str) -> WireOperation | None:
        """The operation of that name; None: AWS has none."""
        if name not in self._names:
            return None
        operation: WireOperation = self._model.operation_model(name)
        return operation

    def operation_names(self) -> tuple[str, ...]:
        """All of its operations, in order."""
        return tuple(sorted(self._names))

    def error_shape(self, code: str) -> WireShape | None:
        """The modelled error of that name or code; None: it has none."""
        for shape in self._model.error_shapes:
            if code in (shape.name, shape.metadata.get("error", {}).get("code")):
                found: WireShape = shape
                return found
        return None


@functools.cache
def describe(name: str) -> ServiceDescription:
    """A service's description; read once in a process (EC2's takes 0.2 s)."""
    return ServiceDescription(name)


@functools.cache
def by_signing_name() -> Mapping[str, str]:
    """Names of services by what a signature's scope calls them: `servicequotas`."""
    return {describe(name).signing_name: name for name in SERVICES}


def flattened(shape: WireShape) -> bool:
    """Whether a list's or map's elements lie beside its siblings."""
    return bool(shape.serialization.get("flattened"))


def read_time(value: object) -> datetime.datetime:
    """A moment from a datetime, seconds since the epoch, or AWS's ways to write one; in UTC.

    Raises
    ------
    ValueError
        It is none.
    """
    from botocore.utils import parse_to_aware_datetime

    if isinstance(value, str) and value.strip().replace(".", "", 1).isdecimal():
        value = float(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.datetime.fromtimestamp(value, tz=datetime.UTC)
    moment: datetime.datetime = parse_to_aware_datetime(value)
    return moment.astimezone(datetime.UTC)


def unfitting(value: Mapping[str, Any], shape: WireShape | None) -> str:
    """Say why a value does not fit a shape, by botocore's own validator; empty: it fits."""
    if shape is None:
        return f"nothing was expected, was {sorted(value)}" if value else ""
    from botocore.validate import ParamValidator

    report = ParamValidator().validate(value, shape)
    return str(report.generate_report()) if report.has_errors() else ""
