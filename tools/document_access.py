"""Write docs/access.md from the table of access.

python -m tools.document_access            write it
python -m tools.document_access --check    exit 1 where it is not as written
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from spotline.contracts.access import (
    ANY_CALLER,
    GRPC_ACTIONS,
    HTTP_ACTIONS,
    OPEN,
    ROLE_MEANINGS,
    Action,
    Reach,
    Role,
)
from tools.documented import write_or_check

DOCUMENT = Path(__file__).parents[1] / "docs" / "access.md"
_PACKAGE = "/spotline.api.v1."
_HEAD = """# Who may do what

This page is made by `python -m tools.document_access` from the table that the servers check
([access.py](../src/spotline/contracts/access.py)); a test asks for every cell of it at real servers
([test_access.py](../tests/integration/test_access.py)). How a caller proves who he is:
[identity.md](identity.md), [ADR 0043](adr/0043-identity-on-every-door.md).

Without a good token the answer is `UNAUTHENTICATED` (HTTP 401); where the role may not, or another
tenant is named, `PERMISSION_DENIED` (403). A tenant that a request leaves out is the token's. What
another tenant has is `NOT_FOUND` (404), in the words for what never was, and lists and watches leave
it out. Of one's own tenant alone see an owner, and a viewer that is bound to one.
"""


def page() -> str:
    """The whole page."""
    roles = [f"| {role.value} | {ROLE_MEANINGS[role]} |" for role in Role]
    reaches = [f"| {reach.name.lower()} | {reach.value} |" for reach in Reach]
    columns = " | ".join(role.value for role in Role)
    lines = "|---" * (3 + len(Role)) + "|"
    head = (f"| action | does | reach | {columns} |", lines)
    opened = [f"| `{name}` | {why} |" for name, why in OPEN.items()]
    any_caller = [f"| `{name}` | {why} |" for name, why in ANY_CALLER.items()]
    parts = (
        _HEAD,
        _table("Roles", ("| role | is |", "|---|---|"), roles),
        _table("What an action reaches", ("| reach | whose things |", "|---|---|"), reaches),
        _table("gRPC", head, map(_row, GRPC_ACTIONS.values())),
        _JOIN,
        _table("HTTP", head, map(_row, HTTP_ACTIONS.values())),
        _table("Open to anybody", ("| what | tells |", "|---|---|"), opened),
        _table(
            "Open to every caller with a good token", ("| what | tells |", "|---|---|"), any_caller
        ),
    )
    return "\n".join(parts)


_JOIN = """`AgentService` has a port of its own. `Join` asks for no role but for the token that an instance was
started with, which is good once; all else there asks for the session that it is traded for.
"""


def _table(title: str, head: Iterable[str], rows: Iterable[str]) -> str:
    return "\n".join((f"## {title}", "", *head, *rows, ""))


def _row(action: Action) -> str:
    cells = " | ".join("yes" if role in action.roles else "" for role in Role)
    name = action.name.removeprefix(_PACKAGE)
    return f"| `{name}` | {action.does.value} | {action.reach.name.lower()} | {cells} |"


def main() -> int:
    """Write or check the page."""
    return write_or_check(DOCUMENT, lambda _: page(), str(__doc__))


if __name__ == "__main__":
    raise SystemExit(main())
