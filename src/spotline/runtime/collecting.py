"""How often a process that serves looks for garbage."""

from __future__ import annotations

import gc

# New objects before a look at those alone, and looks before one further on; Python's own are 700
# and 10. A slot of a thousand jobs makes a million objects, nearly all of which go without a look.
_NEW_OBJECTS = 50_000
_LOOKS = 20


def collect_rarely() -> None:
    """Look for garbage rarely from now on, and never among what the process has loaded.

    A look at all that a service knows stops it for a tenth of a second and more. Objects that nothing
    refers to any more go at once as ever; rings of them stay a little longer.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, _LOOKS, _LOOKS)
