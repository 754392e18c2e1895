"""What calls have in common: filters, pages, dry runs, times and names."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from spotline.domain.units import NS_PER_S, ns_from_datetime
from spotline.rehearsal.aws.service import AwsCall, AwsError

Item = TypeVar("Item")
Params = Mapping[str, Any]
Fields = Mapping[str, Callable[[Item], Iterable[str]]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANCE_ID = re.compile(r"i-[0-9a-f]{8}(?:[0-9a-f]{9})?")


def moment(at_ns: int) -> datetime:
    """A market time as AWS says it: to the second."""
    return _EPOCH + timedelta(seconds=at_ns // NS_PER_S)


def ns_of(said: datetime) -> int:
    """A time that was sent; one without a zone is in UTC."""
    return ns_from_datetime(said if said.tzinfo else said.replace(tzinfo=UTC))


def wrong(message: str) -> AwsError:
    """A parameter that cannot be so."""
    return AwsError("InvalidParameterValue", message)


def missing(name: str) -> AwsError:
    """A parameter that has to be there."""
    return AwsError("MissingParameter", f"The request must contain the parameter {name}")


def unsupported(message: str) -> AwsError:
    """AWS can, the rehearsal cannot: said aloud rather than answered wrongly."""
    return AwsError("UnsupportedOperation", f"{message} (not in this rehearsal)")


def dry_run(call: AwsCall) -> None:
    """End a dry run: who got here has the right."""
    if call.params.get("DryRun"):
        raise AwsError(
            "DryRunOperation",
            "Request would have succeeded, but DryRun flag is set.",
            status=412,
        )


def filtered(items: Iterable[Item], params: Params, fields: Fields[Item]) -> list[Item]:
    """Those that all `Filters` let through; each is met by any of its values, `*` and `?` in them.

    Raises
    ------
    AwsError
        A filter is none of `fields`; `tag:<key>` is there where `tag:` is.
    """
    kept = list(items)
    for one in params.get("Filters", ()):
        name, values = one.get("Name", ""), one.get("Values", ())
        read = _reader(name, fields)
        patterns = [re.compile(_pattern(value)) for value in values]
        kept = [
            item
            for item in kept
            if any(pattern.fullmatch(said) for said in read(item) for pattern in patterns)
        ]
    return kept


def _reader(name: str, fields: Fields[Item]) -> Callable[[Item], Iterable[str]]:
    if name in fields and name != "tag:":
        return fields[name]
    if name.startswith("tag:") and "tag:" in fields:
        tagged = fields["tag:"]
        start = f"{name.removeprefix('tag:')}="
        return lambda item: [said[len(start) :] for said in tagged(item) if said.startswith(start)]
    raise wrong(f"The filter '{name}' is invalid")


def _pattern(value: str) -> str:
    # AWS knows * and ? only, and \ before either of them means itself.
    literal = re.sub(r"\\([*?\\])", lambda found: f"[{found[1]}]", value)
    return fnmatch.translate(literal)


def paged(
    items: Sequence[Item], params: Params, key: Callable[[Item], str], least: int, most: int
) -> tuple[list[Item], str | None]:
    """A page of items, and the token of the next one; `key` ascends and names an item for good.

    Without `MaxResults` and `NextToken` a page holds `most`.

    Raises
    ------
    AwsError
        `MaxResults` is not between `least` and `most`, or nobody gave such a token.
    """
    size = params.get("MaxResults", most)
    if not least <= size <= most:
        raise wrong(
            f"Value ( {size} ) for parameter maxResults is invalid. Expecting {least}-{most}."
        )
    after = _after(params.get("NextToken"))
    rest = [item for item in items if key(item) > after] if after else list(items)
    page = rest[:size]
    if len(rest) <= size:
        return page, None
    return page, base64.urlsafe_b64encode(json.dumps({"after": key(page[-1])}).encode()).decode()


def _after(token: str | None) -> str:
    if not token:
        return ""
    try:
        return str(json.loads(base64.urlsafe_b64decode(token))["after"])
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise wrong("Unable to parse pagination token") from error


def with_token(name: str, page: list[Any], token: str | None) -> dict[str, Any]:
    """A page as it is answered."""
    return {name: page, **({"NextToken": token} if token else {})}


def check_instance_id(instance_id: str) -> None:
    """Refuse what is no id of an instance."""
    if not _INSTANCE_ID.fullmatch(instance_id):
        raise AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{instance_id}"')


def tags_of(params: Params, *kinds: str) -> dict[str, str]:
    """The tags that are to be on what is made, of those kinds of resources.

    Raises
    ------
    AwsError
        A resource type cannot be tagged here, or a key is AWS's own.
    """
    tags: dict[str, str] = {}
    for specification in params.get("TagSpecifications", ()):
        kind = specification.get("ResourceType", "")
        if kind not in (*kinds, "fleet", "volume", "network-interface", "spot-instances-request"):
            raise wrong(f"'{kind}' is not a valid taggable resource type for this operation.")
        if kind in kinds:
            tags.update(checked_tags(specification.get("Tags", ())))
    return tags


def checked_tags(said: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Tags by key; raises AwsError if one may not be set."""
    tags = {tag.get("Key", ""): tag.get("Value", "") for tag in said}
    for key in tags:
        if not key or len(key) > 127 or key.lower().startswith("aws:"):
            raise wrong(f"Tag keys starting with 'aws:' are reserved, and none is empty: '{key}'")
    return tags


def tag_set(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as AWS writes them."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
