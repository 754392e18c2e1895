"""The only mapping between protobuf messages and domain values.

A dataclass maps to the message of its own name (or of its `message_name`), a field to the field of
its name, an enum member to `<ENUM>_<MEMBER>`. The mapping of a type is compiled once, when it is
first used, and refuses a dataclass and a message that do not agree.

Reading is strict about what it knows and silent about what it does not: unknown fields are newer
than this code, but an unspecified enum, a missing nested message, an empty id or a value that a
constructor refuses raises `ContractError`. Lists may be empty, scalars zero.
"""

from __future__ import annotations

import hashlib
import math
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import partial
from importlib import import_module
from operator import attrgetter
from pkgutil import iter_modules
from typing import Any, TypeGuard, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

import spotline.api.v1
from spotline.contracts.errors import ContractError, FieldViolation, InvariantViolation
from spotline.domain.problems import problems_of

ValueT = TypeVar("ValueT")


def _messages() -> dict[str, type[Message]]:
    """Every message of the generated package, by name."""
    found: dict[str, type[Message]] = {}
    for module_info in iter_modules(spotline.api.v1.__path__):
        if module_info.name.endswith("_pb2"):
            module = import_module(f"{spotline.api.v1.__name__}.{module_info.name}")
            for name in module.DESCRIPTOR.message_types_by_name:
                found[name] = getattr(module, name)
    return found


_MESSAGES: Mapping[str, type[Message]] = _messages()

# What identifies something may not be empty, except where a default says that it may.
_IDENTITIES = frozenset(
    {"job_id", "tenant", "offering_id", "command_id", "request_digest", "law_id", "table_id"}
)


# --- any mapped value -------------------------------------------------------------------------


def to_message(value: Any) -> Message:
    """Turn a mapped value into its message."""
    try:
        return mapping_of(type(value)).write(value)
    except (TypeError, ValueError) as error:
        raise InvariantViolation(f"{type(value).__name__} cannot be written: {error}") from error


def from_message(value_type: type[ValueT], message: Message, *, where: str = "") -> ValueT:
    """Turn a message into a value; `where` names it in errors, by default the message's name.

    Raises
    ------
    ContractError
        A field is missing, unspecified, or refused by its type; `where` names the first such
        field, `violations` all of them.
    """
    try:
        value: ValueT = mapping_of(value_type).read(message)
    except _Refused as refused:
        name, first = where or type(message).DESCRIPTOR.name, refused.found[0]
        raise ContractError(
            f"{name} {first.path}".rstrip(),
            first.problem,
            [found.violation for found in refused.found],
        ) from refused
    return value


def digest(value: Any) -> str:
    """SHA-256 of a mapped value's encoding, hexadecimal."""
    return hashlib.sha256(encode_value(value)).hexdigest()


# --- the reflective converter -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    """One breach of the contract: the message it is in, what is wrong, and which field says so."""

    path: str
    problem: str
    at: str = ""

    def inside(self, name: str) -> _Found:
        return _Found(_joined(name, self.path), self.problem, self.at)

    @property
    def violation(self) -> FieldViolation:
        if not self.at:
            return FieldViolation(field=self.path, description=self.problem)
        said = self.problem.partition(" ")[2]
        return FieldViolation(field=_joined(self.path, self.at), description=said)


def _joined(outer: str, inner: str) -> str:
    dot = "." if outer and inner and not inner.startswith("[") else ""
    return f"{outer}{dot}{inner}"


class _Refused(Exception):
    """A value that breaks the contract, in one way or several; paths grow from the inside out."""

    def __init__(self, *found: _Found) -> None:
        super().__init__(found[0].problem)
        self.found = found

    def inside(self, name: str) -> _Refused:
        return _Refused(*(found.inside(name) for found in self.found))


def _refused(path: str, problem: str) -> _Refused:
    return _Refused(_Found(path, problem))


# A message with more mistakes than these is told no more of them.
_MOST_FOUND = 50


def _all_found(reads: Iterable[Callable[[], Any]]) -> _Refused:
    """Read on after a refusal, for all that is wrong."""
    found: list[_Found] = []
    for read in reads:
        try:
            read()
        except _Refused as refused:
            found += refused.found
        if len(found) >= _MOST_FOUND:
            break
    return _Refused(*found[:_MOST_FOUND])


# Whichever implementation of protobuf is loaded brings its own class.
_Descriptor = Any
_Write = Callable[[Any], Any]
_Arguments = dict[str, Any]
_Read = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageMapping:
    """One compiled pair of types.

    `lay` gives what a message is made of, by field name, messages within it as such again: protobuf
    copies a message into another by writing it out and reading it.
    """

    message_type: type[Message]
    lay: Callable[[Any], _Arguments]
    read: Callable[[Message], Any]

    def write(self, value: Any) -> Message:
        """Make the message of a value."""
        return self.message_type(**self.lay(value))


def encode_value(value: Any) -> bytes:
    """Encode a mapped value; equal values give equal bytes."""
    return to_message(value).SerializeToString(deterministic=True)


def decode_value(value_type: type[ValueT], kind: str, payload: bytes) -> ValueT:
    """Decode a mapped value; `ContractError` names `kind`."""
    try:
        message = mapping_of(value_type).message_type.FromString(payload)
    except DecodeError as error:
        name = mapping_of(value_type).message_type.DESCRIPTOR.name
        raise ContractError(kind, f"{len(payload)} bytes that are no {name}") from error
    return from_message(value_type, message, where=kind)


_MAPPINGS: dict[type[Any], MessageMapping] = {}


def mapping_of(value_type: type[Any]) -> MessageMapping:
    """The mapping of a dataclass, compiled on first use."""
    mapping = _MAPPINGS.get(value_type)
    if mapping is None:
        mapping = _MAPPINGS[value_type] = _compile(value_type)
    return mapping


def _compile(value_type: type[Any]) -> MessageMapping:
    """Compile the mapping of a dataclass, or say what does not agree."""
    name = getattr(value_type, "message_name", value_type.__name__)
    if not is_dataclass(value_type) or name not in _MESSAGES:
        raise InvariantViolation(f"{value_type.__name__} has no message in protos/")
    message_type = _MESSAGES[name]
    descriptors = message_type.DESCRIPTOR.fields_by_name
    members = fields(value_type)
    if set(descriptors) != {member.name for member in members}:
        odd = sorted(set(descriptors) ^ {member.name for member in members})
        raise InvariantViolation(f"{value_type.__name__} and its message differ in {odd}")
    hints = get_type_hints(value_type)
    plain: list[tuple[str, _Write | None]] = []
    readers: list[tuple[str, _Read]] = []
    for member in members:
        write, read = _field(member, hints[member.name], descriptors[member.name], name)
        plain.append((member.name, write))
        readers.append((member.name, read))
    return MessageMapping(
        message_type=message_type,
        lay=_writer(plain),
        read=_reader(value_type, readers),
    )


def _writer(writers: Sequence[tuple[str, _Write | None]]) -> Callable[[Any], _Arguments]:
    names = [name for name, _ in writers]
    converted = [(name, write) for name, write in writers if write is not None]
    # Of one name it gives no tuple.
    read = attrgetter(*names) if len(names) > 1 else None

    def lay(value: Any) -> _Arguments:
        if read is None:
            arguments = {name: getattr(value, name) for name in names}
        else:
            arguments = dict(zip(names, read(value), strict=True))
        for name, write in converted:
            arguments[name] = write(arguments[name])
        return arguments

    return lay


def _reader(
    value_type: Callable[..., Any], readers: Sequence[tuple[str, _Read]]
) -> Callable[[Message], Any]:
    names = {name for name, _ in readers}

    def read_message(message: Message) -> Any:
        try:
            arguments = {name: read(message) for name, read in readers}
        except _Refused:
            raise _all_found([partial(read, message) for _, read in readers]) from None
        try:
            return value_type(**arguments)
        except ValueError as error:
            found = [_Found("", said, _field_said(said, names)) for said in problems_of(error)]
            raise _Refused(*found) from error

    return read_message


def _field_said(problem: str, names: Set[str]) -> str:
    """The field that a constructor's sentence begins with, perhaps behind its type's own name."""
    word = problem.partition(" ")[0].rstrip(":")
    for path in (word, word.partition(".")[2]):
        if re.split(r"[.\[]", path)[0] in names:
            return path
    return ""


def _field(
    member: Field[Any], hint: Any, descriptor: _Descriptor, message_name: str
) -> tuple[_Write | None, _Read]:
    """How one field is written (None: as it is) and read."""
    where = f"{message_name}.{member.name}"
    if get_origin(hint) is tuple:
        element, more = get_args(hint)
        if more is not ... or not descriptor.is_repeated:
            raise InvariantViolation(f"{where} must be repeated, and a tuple of any length")
        return _repeated_field(member.name, element, descriptor, where)
    if descriptor.is_repeated:
        raise InvariantViolation(f"{where} is repeated, but not a tuple")
    optional, hint = _optional(hint)
    if _is_mapped(hint):
        return _nested_field(member.name, hint, descriptor, where, optional=optional)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum_field(member.name, hint, descriptor, where, optional=optional)
    _check_scalar(hint, descriptor, where)
    if optional != descriptor.has_presence:
        raise InvariantViolation(
            f"{where} must be optional in the dataclass and in protos/, or not"
        )
    if optional:
        return None, _present(member.name, _scalar_reader(member.name, hint, never_empty=False))
    never_empty = member.name in _IDENTITIES and member.default is MISSING
    return None, _scalar_reader(member.name, hint, never_empty=never_empty)


def _repeated_field(
    name: str, element: Any, descriptor: _Descriptor, where: str
) -> tuple[_Write | None, _Read]:
    if _is_mapped(element):
        mapping = _nested(element, descriptor, where)
        lay, read = mapping.lay, mapping.read

        def read_item(index: int, item: Message) -> Any:
            try:
                return read(item)
            except _Refused as refused:
                raise refused.inside(f"[{index}]").inside(name) from refused.__cause__

        def read_messages(message: Message) -> tuple[Any, ...]:
            items = getattr(message, name)
            try:
                return tuple([read(item) for item in items])
            except _Refused:
                numbered = enumerate(items)
                raise _all_found(
                    partial(read_item, index, item) for index, item in numbered
                ) from None

        return (lambda values: [lay(value) for value in values]), read_messages
    if isinstance(element, type) and issubclass(element, Enum):
        return _repeated_enum_field(name, element, descriptor, where)
    _check_scalar(element, descriptor, where)
    if element is not float:
        return None, lambda message: tuple(getattr(message, name))

    def read_floats(message: Message) -> tuple[float, ...]:
        values = tuple(getattr(message, name))
        if not all(map(math.isfinite, values)):
            raise _refused(name, f"must hold finite numbers, was {values}")
        return values

    return None, read_floats


def _nested_field(
    name: str, hint: type[Any], descriptor: _Descriptor, where: str, *, optional: bool
) -> tuple[_Write, _Read]:
    mapping = _nested(hint, descriptor, where)
    lay, read = mapping.lay, mapping.read

    def read_nested(message: Message) -> Any:
        if not message.HasField(name):
            if optional:
                return None
            raise _refused(name, "is missing")
        try:
            return read(getattr(message, name))
        except _Refused as refused:
            raise refused.inside(name) from refused.__cause__

    if optional:
        return (lambda value: None if value is None else lay(value)), read_nested
    return lay, read_nested


def _enum_field(
    name: str, hint: type[Enum], descriptor: _Descriptor, where: str, *, optional: bool
) -> tuple[_Write, _Read]:
    number_of, value_of, names = _enum_values(hint, descriptor, where)
    if optional:
        number_of[None] = 0
        value_of[0] = None

    def read_enum(message: Message) -> Any:
        number = getattr(message, name)
        try:
            return value_of[number]
        except KeyError:
            raise _no_such_value(name, number, names) from None

    return number_of.__getitem__, read_enum


def _repeated_enum_field(
    name: str, hint: type[Enum], descriptor: _Descriptor, where: str
) -> tuple[_Write, _Read]:
    number_of, value_of, names = _enum_values(hint, descriptor, where)

    def read_item(index: int, number: int) -> Any:
        if number not in value_of:
            raise _no_such_value(f"{name}[{index}]", number, names)
        return value_of[number]

    def read_enums(message: Message) -> tuple[Any, ...]:
        return tuple(
            read_item(index, number) for index, number in enumerate(getattr(message, name))
        )

    return (lambda values: [number_of[value] for value in values]), read_enums


def _enum_values(
    hint: type[Enum], descriptor: _Descriptor, where: str
) -> tuple[dict[Any, int], dict[int, Any], Sequence[str]]:
    """Number by value, value by number, and the names on the wire."""
    if descriptor.enum_type is None or descriptor.enum_type.name != hint.__name__:
        raise InvariantViolation(f"{where} must be the enum {hint.__name__}")
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", hint.__name__).upper()
    names = {f"{prefix}_{value.name}": value for value in hint}
    numbers = {value.name: value.number for value in descriptor.enum_type.values if value.number}
    if set(names) != set(numbers):
        raise InvariantViolation(f"enum {hint.__name__} differs in {set(names) ^ set(numbers)}")
    number_of: dict[Any, int] = {value: numbers[key] for key, value in names.items()}
    return number_of, {number: value for value, number in number_of.items()}, tuple(names)


def _no_such_value(name: str, number: int, names: Sequence[str]) -> _Refused:
    problem = "is unspecified" if number == 0 else f"has the unknown number {number}"
    return _refused(name, f"{problem}; expected one of {', '.join(names)}")


def _present(name: str, read: _Read) -> _Read:
    """Read a scalar that may be absent."""
    return lambda message: read(message) if message.HasField(name) else None


def _scalar_reader(name: str, hint: type[Any], *, never_empty: bool) -> _Read:
    if hint is float:

        def read_float(message: Message) -> float:
            value: float = getattr(message, name)
            if not math.isfinite(value):
                raise _refused(name, f"must be finite, was {value}")
            return value

        return read_float
    if never_empty:

        def read_identity(message: Message) -> str:
            value: str = getattr(message, name)
            if not value:
                raise _refused(name, "must not be empty")
            return value

        return read_identity
    return lambda message: getattr(message, name)


def _nested(hint: type[Any], descriptor: _Descriptor, where: str) -> MessageMapping:
    mapping = mapping_of(hint)
    if descriptor.message_type is not mapping.message_type.DESCRIPTOR:
        raise InvariantViolation(f"{where} must be the message of {hint.__name__}")
    return mapping


def _is_mapped(hint: Any) -> TypeGuard[type[Any]]:
    return isinstance(hint, type) and is_dataclass(hint)


def _optional(hint: Any) -> tuple[bool, Any]:
    if get_origin(hint) in (Union, types.UnionType):
        inner = [argument for argument in get_args(hint) if argument is not types.NoneType]
        if len(inner) == 1:
            return True, inner[0]
    return False, hint


_SCALARS: Mapping[Any, int] = {
    int: FieldDescriptor.TYPE_INT64,
    float: FieldDescriptor.TYPE_DOUBLE,
    str: FieldDescriptor.TYPE_STRING,
    bool: FieldDescriptor.TYPE_BOOL,
    bytes: FieldDescriptor.TYPE_BYTES,
}


def _check_scalar(hint: Any, descriptor: _Descriptor, where: str) -> None:
    if _SCALARS.get(hint) != descriptor.type:
        raise InvariantViolation(f"{where} must be of one type in the dataclass and in protos/")
