"""What EC2 describes, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spotline.adapters.clouds.aws.api import AwsApi, AwsPlace, Reply
from spotline.adapters.clouds.aws.parse import Shown, shown_in

_PAGE = 1000
# A description of a million instances is none that we could have launched.
_MOST_PAGES = 1000


async def pages(api: AwsApi, place: AwsPlace, filters: Sequence[Any]) -> list[Reply]:
    """All pages of a description of instances; errors as `AwsApi.read`."""
    found: list[Reply] = []
    following: dict[str, str] = {}
    for _ in range(_MOST_PAGES):
        page = await api.read(
            place,
            "ec2",
            "describe_instances",
            Filters=list(filters),
            MaxResults=_PAGE,
            **following,
        )
        found.append(page)
        token = page.get("NextToken")
        if not token:
            break
        following = {"NextToken": token}
    return found


async def described(api: AwsApi, place: AwsPlace, filters: Sequence[Any]) -> list[Shown]:
    """Instances with our tags that EC2 shows now, in launch order."""
    return shown_in(await pages(api, place, filters), place)
