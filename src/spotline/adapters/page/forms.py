"""What a browser posts: read within bounds, and taken only from pages of this very server."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request

from spotline.application.read_model.ports import InputProblem, ViewRefused, refused_input
from spotline.contracts.reasons import Reason

CSRF_FIELD = "csrf"
_MOST_FIELDS = 40


async def posted(request: Request) -> Mapping[str, str]:
    """The fields of a form, each once; its size was bounded before.

    Raises
    ------
    ViewRefused
        It is none, or has a field twice.
    """
    body = await request.body()
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=_MOST_FIELDS,
        )
    except ValueError as error:
        raise refused_input(
            InputProblem(
                field="", expected=f"a form of at most {_MOST_FIELDS} fields", found=str(error)[:80]
            )
        ) from error
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise refused_input(
            InputProblem(field="", expected="every field once", found="one twice or more")
        )
    return fields


def check_origin(request: Request) -> None:
    """Refuse what no page of this server has sent.

    Raises
    ------
    ViewRefused
        A page of another origin sent it, or nobody says which.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        own = site == "same-origin"
    elif origin is not None:
        stated = urlsplit(origin)
        own = (stated.scheme, stated.netloc.lower()) == (
            request.url.scheme,
            request.headers.get("host", "").lower(),
        )
    else:
        own = False
    if not own:
        raise ViewRefused(
            Reason.ROLE_DENIED,
            "the form was not sent by a page of this server: open the page here, and send it again",
        )
