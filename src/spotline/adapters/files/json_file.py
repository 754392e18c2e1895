"""Read JSON that anybody may have written, as strictly as our YAML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from spotline.adapters.files.mistake import WHOLE_FILE, bad_file, shown, shown_key
from spotline.adapters.files.yaml_file import LONGEST_NUMBER, ONE_DOCUMENT, Limits, read_text


def read_json(path: Path, limits: Limits = ONE_DOCUMENT) -> Any:
    """Read the one value of a JSON file.

    Raises
    ------
    BadFile
        It cannot be read, is no JSON, gives a field twice, or nests deeper than can be read.
    """
    where = str(path)
    text = read_text(path, limits)

    def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise bad_file(where, shown_key(key), "each field once", "it again")
            found[key] = value
        return found

    def no_number(name: str) -> NoReturn:
        raise bad_file(where, WHOLE_FILE, "finite numbers", name)

    def whole_number(digits: str) -> int:
        if len(digits) > LONGEST_NUMBER:
            expected = f"a number of at most {LONGEST_NUMBER} characters"
            raise bad_file(where, WHOLE_FILE, expected, shown(digits))
        return int(digits)

    try:
        return json.loads(
            text, object_pairs_hook=each_once, parse_constant=no_number, parse_int=whole_number
        )
    except json.JSONDecodeError as error:
        raise bad_file(where, f"line {error.lineno}", "JSON", error.msg) from error
    except RecursionError as error:
        raise bad_file(where, WHOLE_FILE, "fewer levels of lists and objects", "more") from error
