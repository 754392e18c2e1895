"""How often a process that serves looks for garbage."""

from __future__ import annotations

import gc

# New objects before a look at those alone, such looks before one at all that are younger than the
# last of these, and those before one at everything; Python's own are 700, 10 and 10. A slot of a
# thousand jobs holds 60,000 objects at once while it is cleared, of which 5,000 stay; rings, which only
# a look finds, are some 400 of them. So a look comes in one of thirty such slots, where 50,000 brought
# one to each, in the midst of it and at all that it held. Every other look takes in those of the look
# before: with more of them between, it is as long as half a slot.
_NEW_OBJECTS = 200_000
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
