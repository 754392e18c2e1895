"""How often a process that serves looks for garbage."""

from __future__ import annotations

import gc

# New objects before a look at those alone, such looks before one at all that are younger than the
# last of these, and those before one at everything; Python's own are 700, 10 and 10. A slot of a
# thousand jobs makes a million objects, nearly all of which go without a look, and some 50,000 stay:
# a look at those of many slots takes as long as a slot, at those of two a tenth of that. Every other look
# takes in those of the look before: with more of them between, it is as long as half a slot.
_NEW_OBJECTS = 50_000
_LOOKS_AT_NEW = 0
_LOOKS_AT_YOUNG = 300


def collect_rarely() -> None:
    """Look for garbage rarely from now on, and never among what the process has loaded.

    A look at all that a service knows stops it for a tenth of a second and more. Objects that nothing
    refers to any more go at once as ever; rings of them stay a little longer.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, _LOOKS_AT_NEW, _LOOKS_AT_YOUNG)
