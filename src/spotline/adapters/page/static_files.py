"""What pages load: files of this package, and nothing else that there is."""

from __future__ import annotations

from os import PathLike, stat_result
from typing import Any

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

_FOLDER = "vendor"
# Their names have their versions: what is behind a name never changes.
_FOR_GOOD = "public, max-age=31536000, immutable"
# Asked about each time, by the ETag, and sent again only where it is another.
_ASKED = "no-cache"


class PageFiles(StaticFiles):
    """The page's own files, with what browsers may keep of them."""

    def __init__(self) -> None:
        super().__init__(packages=[("spotline.adapters.page", "static")])

    def file_response(
        self,
        full_path: str | PathLike[str],
        stat_result: stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """A file, or that it is still the one that the browser has."""
        response: Any = super().file_response(full_path, stat_result, scope, status_code)
        kept = f"/{_FOLDER}/" in str(full_path).replace("\\", "/")
        response.headers["Cache-Control"] = _FOR_GOOD if kept else _ASKED
        answer: Response = response
        return answer
