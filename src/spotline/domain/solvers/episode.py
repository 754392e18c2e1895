"""A job's whole life under a policy, compiled: what `policies.decision` and the rules define.

`policies.decision.decide_slot` and the modules of the policies are the readable definition; the
programs here repeat them in int64, slot for slot and reason for reason, and a property test holds
the two equal. `policies.compiled` lays programs, markets and policies out for them.

Arrays everywhere: `job` (scalars of a program, see `JOB_*`), `by_count` (rows `COUNT_*`, columns
instances), `counts` (allowed counts, ascending), `by_slot` (rows `SLOT_*`, columns slots of a job's
life), `market` (rows `MARKET_*`, columns slots of a series).
"""

from __future__ import annotations

import numba
import numpy as np

from spotline.domain.solvers.value_table import choose, through
from spotline.domain.solvers.window import best_schedule

JOB_SLOT_S = 0
JOB_WORK = 1
JOB_DEADLINE = 2
JOB_END = 3
JOB_HARD = 4
JOB_LAUNCH_S = 5
JOB_GROW_S = 6
JOB_SHRINK_S = 7
JOB_INTERRUPTED_S = 8
JOB_BUDGET = 9
JOB_STEADY = 10  # the smallest constant on-demand count that meets the deadline
JOB_SCALARS = 11

COUNT_RATE = 0  # quanta per second
COUNT_CAP_S = 1  # seconds after which the whole work is done: more would only overflow
COUNT_LARGEST = 2  # the largest allowed count up to this one
COUNT_ROWS = 3

SLOT_VALUE = 0  # worth of finishing in this slot
SLOT_LINE = 1  # progress of the straight line to the deadline when this slot opens
SLOT_AHEAD_SHRINK = 2  # the line, ahead by two overheads of a shrink
SLOT_AHEAD_GROW = 3  # and by two of a growth
SLOT_ROWS = 4

MARKET_SPOT_PRICE = 0
MARKET_ON_DEMAND_PRICE = 1
MARKET_SPOT_AVAILABLE = 2
MARKET_ON_DEMAND_AVAILABLE = 3
MARKET_PRICE_INDEX = 4  # which of the distinct on-demand prices
MARKET_STEPS = 5  # forecast steps, -1 where no forecast was there or trusted
MARKET_RUN_STATE = 6  # in the law of the value table, -1 where there is none
MARKET_RESERVE = 7  # slots for which on-demand may stay out of stock
MARKET_RESCUE = 8  # the count on-demand is ever in stock for, 0 for the job's largest
MARKET_ROWS = 9

ON_DEMAND_ONLY = 0
MSU = 1
UNIFORM_PROGRESS = 2
AHANP = 3
AHAP = 4
VALUE_TO_GO = 5

POLICY_KIND = 0
POLICY_SIGMA = 1
POLICY_SIGMA_INDEX = 2
POLICY_OMEGA = 3  # how many forecast slots it sees
POLICY_COMMITMENT = 4
POLICY_COLUMNS = 5

REASON_POLICY = 0
REASON_SAFETY_NET = 1
REASON_BUDGET = 2
REASON_AFTER_DEADLINE = 3

TOTAL_UTILITY = 0
TOTAL_COST = 1
TOTAL_VALUE = 2
TOTAL_FINISHED = 3
TOTAL_SLOTS = 4
TOTAL_COLUMNS = 5

# A value table is a tuple of arrays.
VALUE_AFTER = 0
VALUE_SCALARS = 1
VALUE_ALLOWED = 2
VALUE_RATES = 3
VALUE_OVERHEADS = 4
VALUE_NEAREST = 5
VALUE_PENDING = 6
VALUE_VALUES = 7
VALUE_SPOT = 8
VALUE_ON_DEMAND = 9
VALUE_COVER_START = 10
VALUE_COVERS = 11
VALUE_CENTRES = 12
VALUE_LEVELS = 13
VALUE_AGES = 14

SCALAR_CELL = 0
SCALAR_SLOT_S = 1
SCALAR_DEADLINE = 2
SCALAR_HARD = 3
SCALAR_MOST = 4
SCALAR_TAKEN = 5
SCALAR_RESERVE = 6
VALUE_SCALARS_LENGTH = 7

LINE_TARGET = 0
LINE_AT_TARGET = 1
LINE_BELOW = 2
LINE_ABOVE = 3
LINE_COLUMNS = 4

_PPM = 1_000_000

# Plans remembered at a time: all of them for jobs of some hundred slots.
_MOST_PLANS = 65_536


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _cost(price, instances, held_s):  # type: ignore[no-untyped-def]  # compiled
    return (price * instances * held_s + 1800) // 3600


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _overhead_s(job, held_spot, held_on_demand, spot, on_demand, interrupted):  # type: ignore[no-untyped-def]  # compiled
    if spot + on_demand == 0:
        return 0
    if held_spot + held_on_demand == 0:
        return job[JOB_LAUNCH_S]
    if interrupted:
        return job[JOB_INTERRUPTED_S]
    if spot == held_spot and on_demand == held_on_demand:
        return 0
    if spot <= held_spot and on_demand <= held_on_demand:
        return job[JOB_SHRINK_S]
    return job[JOB_GROW_S]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _progress(job, rate, cap_s, progress, pending_s):  # type: ignore[no-untyped-def]  # compiled
    """Progress after a slot at a rate of which the first `pending_s` seconds are lost."""
    productive_s = min(max(0, job[JOB_SLOT_S] - pending_s), cap_s)
    return min(job[JOB_WORK], progress + rate * productive_s)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _advance_at(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    job, rate, cap_s, progress, held_spot, held_on_demand, pending_s, spot, on_demand, broken
):
    """Progress and pending overhead after holding this for a slot, which runs at `rate`."""
    if spot + on_demand == 0:
        return progress, 0
    change_s = _overhead_s(job, held_spot, held_on_demand, spot, on_demand, broken)
    pending_s = max(pending_s, change_s)
    after = _progress(job, rate, cap_s, progress, pending_s)
    return after, max(0, pending_s - job[JOB_SLOT_S])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _advance(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    job, by_count, progress, held_spot, held_on_demand, pending_s, spot, on_demand, broken
):
    """Progress and pending overhead after holding this for a slot."""
    return _advance_at(
        job,
        by_count[COUNT_RATE, spot + on_demand],
        by_count[COUNT_CAP_S, spot + on_demand],
        progress,
        held_spot,
        held_on_demand,
        pending_s,
        spot,
        on_demand,
        broken,
    )


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _rescue_s(job, rescue, reserve, spot, on_demand, pending_s):  # type: ignore[no-untyped-def]  # compiled
    """What moving from this to `rescue` on-demand costs next slot at worst."""
    if reserve > 0 and on_demand < rescue:
        change_s = max(
            max(job[JOB_LAUNCH_S], job[JOB_GROW_S]),
            max(job[JOB_SHRINK_S], job[JOB_INTERRUPTED_S]),
        )
    else:
        change_s = _overhead_s(job, spot, on_demand, 0, rescue, False)
        if spot:
            change_s = max(change_s, job[JOB_INTERRUPTED_S])
    return max(pending_s, change_s)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _slots_on_demand(job, rate, left, first_s):  # type: ignore[no-untyped-def]  # compiled
    if left <= 0:
        return 0
    busy_s = -(-left // rate) + first_s
    return -(-busy_s // job[JOB_SLOT_S])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _is_safe(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    job,
    rate,
    cap_s,
    rescue,
    reserve,
    slots_left,
    progress,
    after,
    after_pending_s,
    spot,
    on_demand,
    firm,
):
    """Whether `rescue` on-demand (its rate and cap) can still meet the deadline."""
    if spot and not firm:
        after = progress
        after_pending_s = job[JOB_INTERRUPTED_S]
    left = job[JOB_WORK] - after
    if left <= 0:
        return True
    if reserve > 0 and on_demand < rescue:
        slots_left -= reserve
    spare_s = slots_left * job[JOB_SLOT_S]
    spare_s -= _rescue_s(job, rescue, reserve, spot, on_demand, after_pending_s)
    spare_s = min(spare_s, cap_s)
    return spare_s > 0 and left <= rate * spare_s


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _fit(by_count, spot_available, on_demand_available, spot, on_demand):  # type: ignore[no-untyped-def]  # compiled
    spot = min(spot, spot_available)
    on_demand = min(on_demand, on_demand_available)
    most = by_count.shape[1] - 1
    count = by_count[COUNT_LARGEST, min(most, spot + on_demand)]
    on_demand = min(on_demand, max(0, count - spot)) if count else 0
    return count - on_demand, on_demand


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _settle(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    job,
    by_count,
    counts,
    spot_price,
    on_demand_price,
    spot_available,
    on_demand_available,
    elapsed,
    progress,
    held_spot,
    held_on_demand,
    pending_s,
    spent,
    firm,
    rescue,
    reserve,
    netted,
    spot,
    on_demand,
):
    """From a wish to a holding: feasibility, last slot, safety net, budget."""
    slot_s = job[JOB_SLOT_S]
    broken = held_spot > spot_available
    slots_left = job[JOB_DEADLINE] - elapsed - 1
    spot, on_demand = _fit(by_count, spot_available, on_demand_available, spot, on_demand)
    after, after_s = _advance(
        job, by_count, progress, held_spot, held_on_demand, pending_s, spot, on_demand, broken
    )
    reason = REASON_POLICY
    finishes = after >= job[JOB_WORK]
    if (not finishes) or (spot and not firm):
        safe = _is_safe(
            job,
            by_count[COUNT_RATE, rescue],
            by_count[COUNT_CAP_S, rescue],
            rescue,
            reserve,
            slots_left,
            progress,
            after,
            after_s,
            spot,
            on_demand,
            firm,
        )
    else:
        safe = True
    if finishes and safe:
        spot, on_demand = _cheapest_finish(
            job,
            by_count,
            counts,
            spot_price,
            on_demand_price,
            spot_available,
            on_demand_available,
            progress,
            held_spot,
            held_on_demand,
            pending_s,
            spot,
            on_demand,
        )
    elif netted and not safe:
        spot, on_demand = _safest(
            job,
            by_count,
            counts,
            spot_price,
            on_demand_price,
            spot_available,
            on_demand_available,
            slots_left,
            progress,
            held_spot,
            held_on_demand,
            pending_s,
            firm,
            rescue,
            reserve,
        )
        reason = REASON_SAFETY_NET
    if job[JOB_BUDGET]:
        left = job[JOB_BUDGET] - spent
        paid = _cost(spot_price, spot, slot_s) + _cost(on_demand_price, on_demand, slot_s)
        if paid > left:
            spot, on_demand = _within_budget(
                job,
                by_count,
                counts,
                spot_price,
                on_demand_price,
                spot_available,
                on_demand_available,
                progress,
                held_spot,
                held_on_demand,
                pending_s,
                left,
            )
            reason = REASON_BUDGET
    return spot, on_demand, reason


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _spot_is_cheaper(job, spot_price, on_demand_price):  # type: ignore[no-untyped-def]  # compiled
    """Whether one instance more on spot and one less on demand never costs more, rounded."""
    ordered = job[JOB_SHRINK_S] <= job[JOB_GROW_S]
    least_saved = on_demand_price * job[JOB_SLOT_S] // 3600
    return ordered and -(-spot_price * job[JOB_SLOT_S] // 3600) <= least_saved


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _next_split(spot_is_cheaper, spot, n, held_spot, held_on_demand):  # type: ignore[no-untyped-def]  # compiled
    """The next fewer spot of n instances that could beat those before it.

    Where spot is cheaper, only the most spot of each kind of change can: of all, of those inside
    what is held, and none, after which nothing can be reclaimed.
    """
    if not spot_is_cheaper:
        return spot - 1
    if spot > held_spot and n - held_spot <= held_on_demand:
        return held_spot
    return 0 if spot > 0 else -1


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _cheapest_finish(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    job,
    by_count,
    counts,
    spot_price,
    on_demand_price,
    spot_available,
    on_demand_available,
    progress,
    held_spot,
    held_on_demand,
    pending_s,
    spot,
    on_demand,
):
    slot_s = job[JOB_SLOT_S]
    work = job[JOB_WORK]
    broken = held_spot > spot_available
    cheaper = min(spot_price, on_demand_price)
    step = _spot_is_cheaper(job, spot_price, on_demand_price)
    best_spot, best_on_demand = spot, on_demand
    best = _cost(spot_price, spot, slot_s) + _cost(on_demand_price, on_demand, slot_s)
    for i in range(counts.shape[0]):
        n = counts[i]
        # Two roundings lose less than two micro-dollars on one.
        if _cost(cheaper, n, slot_s) - 2 >= best:
            break
        rate, cap_s = by_count[COUNT_RATE, n], by_count[COUNT_CAP_S, n]
        if _progress(job, rate, cap_s, progress, pending_s) < work:
            continue
        s = min(n, spot_available)
        lowest = max(0, n - on_demand_available)
        while s >= lowest:
            paid = _cost(spot_price, s, slot_s) + _cost(on_demand_price, n - s, slot_s)
            if paid < best:
                after, _ = _advance(
                    job, by_count, progress, held_spot, held_on_demand, pending_s, s, n - s, broken
                )
                if after >= work:
                    best = paid
                    best_spot, best_on_demand = s, n - s
            s = _next_split(step, s, n, held_spot, held_on_demand)
    return best_spot, best_on_demand


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _safest(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    job,
    by_count,
    counts,
    spot_price,
    on_demand_price,
    spot_available,
    on_demand_available,
    slots_left,
    progress,
    held_spot,
    held_on_demand,
    pending_s,
    firm,
    rescue,
    reserve,
):
    slot_s = job[JOB_SLOT_S]
    work = job[JOB_WORK]
    broken = held_spot > spot_available
    rate, cap_s = by_count[COUNT_RATE, rescue], by_count[COUNT_CAP_S, rescue]
    full_slot = _cost(on_demand_price, rescue, slot_s)
    cheaper = min(spot_price, on_demand_price)
    # Fewer spot can be safer where a launch of on-demand may have to wait.
    step = _spot_is_cheaper(job, spot_price, on_demand_price)
    step = step and reserve == 0 and rescue == by_count.shape[1] - 1
    reachable = rate * min(max(0, slots_left * slot_s), cap_s)
    best_spot, best_on_demand = 0, 0
    best = -1
    for i in range(counts.shape[0]):
        n = counts[i]
        # What is left after the best that n instances can do bounds all splits.
        ahead = _progress(
            job, by_count[COUNT_RATE, n], by_count[COUNT_CAP_S, n], progress, pending_s
        )
        if work - ahead > reachable:
            continue
        later = _slots_on_demand(job, rate, work - ahead, 0) * full_slot
        if best >= 0 and _cost(cheaper, n, slot_s) - 2 + later >= best:
            continue
        s = min(n, spot_available)
        lowest = max(0, n - on_demand_available)
        while s >= lowest:
            paid = _cost(spot_price, s, slot_s) + _cost(on_demand_price, n - s, slot_s)
            if best < 0 or paid + later < best:
                after, after_s = _advance(
                    job, by_count, progress, held_spot, held_on_demand, pending_s, s, n - s, broken
                )
                if _is_safe(
                    job,
                    rate,
                    cap_s,
                    rescue,
                    reserve,
                    slots_left,
                    progress,
                    after,
                    after_s,
                    s,
                    n - s,
                    firm,
                ):
                    first_s = _rescue_s(job, rescue, reserve, s, n - s, after_s)
                    paid += _slots_on_demand(job, rate, work - after, first_s) * full_slot
                    if best < 0 or paid < best:
                        best = paid
                        best_spot, best_on_demand = s, n - s
            s = _next_split(step, s, n, held_spot, held_on_demand)
    if best >= 0:
        return best_spot, best_on_demand
    fastest = -1
    for i in range(counts.shape[0]):
        n = counts[i]
        for s in range(min(n, spot_available), max(0, n - on_demand_available) - 1, -1):
            if s and not firm:
                continue
            after, after_s = _advance(
                job, by_count, progress, held_spot, held_on_demand, pending_s, s, n - s, broken
            )
            if after > fastest:
                fastest = after
                best_spot, best_on_demand = s, n - s
    return best_spot, best_on_demand


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _within_budget(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    job,
    by_count,
    counts,
    spot_price,
    on_demand_price,
    spot_available,
    on_demand_available,
    progress,
    held_spot,
    held_on_demand,
    pending_s,
    left,
):
    slot_s = job[JOB_SLOT_S]
    broken = held_spot > spot_available
    best_spot, best_on_demand, most = 0, 0, progress
    for i in range(counts.shape[0]):
        n = counts[i]
        for s in range(min(n, spot_available), max(0, n - on_demand_available) - 1, -1):
            paid = _cost(spot_price, s, slot_s) + _cost(on_demand_price, n - s, slot_s)
            if paid > left:
                continue
            after, _ = _advance(
                job, by_count, progress, held_spot, held_on_demand, pending_s, s, n - s, broken
            )
            if after > most:
                most = after
                best_spot, best_on_demand = s, n - s
    return best_spot, best_on_demand


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _after_deadline(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    job,
    by_count,
    by_slot,
    on_demand_price,
    spot_available,
    on_demand_available,
    elapsed,
    progress,
    held_spot,
    held_on_demand,
    pending_s,
):
    most = by_count.shape[1] - 1
    if on_demand_available < most:
        return _fit(by_count, spot_available, on_demand_available, 0, on_demand_available)
    broken = held_spot > spot_available
    change_s = _overhead_s(job, held_spot, held_on_demand, 0, most, broken)
    first_s = max(pending_s, change_s)
    left = job[JOB_WORK] - progress
    slots = _slots_on_demand(job, by_count[COUNT_RATE, most], left, first_s)
    finish = elapsed + slots
    if finish > job[JOB_END]:
        return 0, 0
    full_slot = _cost(on_demand_price, most, job[JOB_SLOT_S])
    if by_slot[SLOT_VALUE, finish] > slots * full_slot:
        return 0, most
    return 0, 0


# --- the rules --------------------------------------------------------------------------------


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _spot_first(spot_available, n):  # type: ignore[no-untyped-def]  # compiled
    spot = min(n, spot_available)
    return spot, n - spot


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _uniform_progress(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    job,
    by_count,
    counts,
    target,
    ahead_shrink,
    ahead_grow,
    available,
    progress,
    held_spot,
    held_on_demand,
    pend_s,
):
    most = by_count.shape[1] - 1
    broken = held_spot > available
    spot = by_count[COUNT_LARGEST, min(most, available)]
    ahead = ahead_shrink if max(spot, 1) <= held_spot else ahead_grow
    if held_on_demand and not broken and progress < ahead:
        after, _ = _advance(
            job,
            by_count,
            progress,
            held_spot,
            held_on_demand,
            pend_s,
            held_spot,
            held_on_demand,
            broken,
        )
        if after >= target:
            return held_spot, held_on_demand
        return _reach(
            job,
            by_count,
            counts,
            available,
            target,
            held_spot + held_on_demand,
            progress,
            held_spot,
            held_on_demand,
            pend_s,
        )
    if spot:
        after, _ = _advance(
            job, by_count, progress, held_spot, held_on_demand, pend_s, spot, 0, broken
        )
        if after >= target:
            return spot, 0
    elif progress >= target:
        return 0, 0
    return _reach(
        job,
        by_count,
        counts,
        available,
        target,
        spot,
        progress,
        held_spot,
        held_on_demand,
        pend_s,
    )


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _reach(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    job,
    by_count,
    counts,
    available,
    target,
    least,
    progress,
    held_spot,
    held_on_demand,
    pending_s,
):
    """The smallest spot-first count of at least `least` that reaches the target, else the largest."""
    broken = held_spot > available
    for i in range(counts.shape[0]):
        n = counts[i]
        if n < least:
            continue
        spot, on_demand = _spot_first(available, n)
        after, _ = _advance(
            job, by_count, progress, held_spot, held_on_demand, pending_s, spot, on_demand, broken
        )
        if after >= target:
            return spot, on_demand
    return _spot_first(available, counts[-1])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _ahanp_count(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    sigma, least, line, spot_price, on_demand_price, available, progress, held, before
):
    """How many instances AHANP asks for, before rounding, and whether on-demand may fill them."""
    if progress < line:
        return max(least, 2 * held), True
    if spot_price * _PPM <= sigma * on_demand_price:
        return available, False
    kept = min(held, available)
    if available < before:
        kept = min(kept, held * available // max(1, before))
    return kept, False


# --- AHAP -------------------------------------------------------------------------------------


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _window_configurations(  # type: ignore[no-untyped-def]  # compiled
    counts, most, available, held_spot, held_on_demand
):
    """What a window plan chooses from: idle, what is held, all on-demand, spot first."""
    wanted = np.zeros((most + 1, most + 1), dtype=np.bool_)
    wanted[0, 0] = True
    wanted[held_spot + held_on_demand, held_spot] = True
    for i in range(counts.shape[0]):
        n = counts[i]
        wanted[n, 0] = True
        for k in range(available.shape[0]):
            wanted[n, min(n, available[k])] = True
    total = 0
    for n in range(most + 1):
        for s in range(n + 1):
            if wanted[n, s]:
                total += 1
    spot = np.empty(total, dtype=np.int64)
    on_demand = np.empty(total, dtype=np.int64)
    at = 0
    for n in range(most + 1):
        for s in range(n + 1):
            if wanted[n, s]:
                spot[at] = s
                on_demand[at] = n - s
                at += 1
    cover_start = np.zeros(total + 1, dtype=np.int64)
    covers = np.empty(total * (most + 1), dtype=np.int64)
    edges = 0
    for c in range(total):
        cover_start[c] = edges
        # In reverse: a configuration inside one that was found is not covered directly.
        for k in range(c - 1, -1, -1):
            if spot[k] > spot[c] or on_demand[k] > on_demand[c]:
                continue
            direct = True
            for e in range(cover_start[c], edges):
                if spot[k] <= spot[covers[e]] and on_demand[k] <= on_demand[covers[e]]:
                    direct = False
                    break
            if direct:
                covers[edges] = k
                edges += 1
    cover_start[total] = edges
    return spot, on_demand, cover_start, covers


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _gcd(a, b):  # type: ignore[no-untyped-def]  # compiled
    while b:
        a, b = b, a % b
    return a


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _plan_window(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    job,
    by_count,
    counts,
    by_slot,
    line,
    late,
    planning_cells,
    elapsed,
    progress,
    held_spot,
    held_on_demand,
    pending_s,
    spot_price,
    available,
    on_demand_price,
    on_demand_available,
    plan,
):
    """Plan one window of AHAP from one state; writes spot and on-demand by slot into `plan`.

    `line` values progress at the end of a window before the deadline, `late` at the deadline.
    """
    slots = spot_price.shape[0]
    slot_s = job[JOB_SLOT_S]
    most = by_count.shape[1] - 1
    left = job[JOB_WORK] - progress
    if left <= 0:
        for k in range(slots):
            plan[k, 0] = 0
            plan[k, 1] = 0
        return
    spot, on_demand, cover_start, covers = _window_configurations(
        counts, most, available, held_spot, held_on_demand
    )
    classes = np.zeros(5, dtype=np.int64)
    classes[1] = job[JOB_SHRINK_S]
    classes[2] = job[JOB_GROW_S]
    classes[3] = job[JOB_LAUNCH_S]
    classes[4] = job[JOB_INTERRUPTED_S]
    # Every overhead that can be pending when a slot opens; the start's own comes first.
    bound = 2 + pending_s // slot_s
    for k in range(5):
        bound += classes[k] // slot_s + 1
    pending = np.empty(bound, dtype=np.int64)
    pending[0] = pending_s
    levels = 1
    for k in range(-1, 5):
        level_s = max(0, (pending_s if k < 0 else classes[k]) - slot_s)
        known = False
        while not known:
            for level in range(levels):
                if pending[level] == level_s:
                    known = True
            if not known:
                pending[levels] = level_s
                levels += 1
                level_s = max(0, level_s - slot_s)
    # The grid: the greatest common divisor of all gains, or a rounded one.
    common_rate = 0
    fastest = 0
    for c in range(spot.shape[0]):
        rate = by_count[COUNT_RATE, spot[c] + on_demand[c]]
        common_rate = _gcd(common_rate, rate)
        fastest = max(fastest, rate)
    common_s = 0
    longest_s = 0
    for k in range(5):
        for level in range(levels):
            productive_s = max(0, slot_s - max(classes[k], pending[level]))
            common_s = _gcd(common_s, productive_s)
            longest_s = max(longest_s, productive_s)
    reach = min(left, slots * fastest * longest_s)
    cell = common_rate * common_s
    if cell == 0:
        cell = max(1, reach)
    elif reach > cell * planning_cells:
        cell = -(-reach // planning_cells)
    count = spot.shape[0]
    table = np.empty((5, levels, 2), dtype=np.int64)
    gains = np.empty((5 * levels, count), dtype=np.int64)
    row_s = np.empty(5 * levels, dtype=np.int64)
    rows = 0
    for k in range(5):
        for level in range(levels):
            overhead_s = max(classes[k], pending[level])
            productive_s = max(0, slot_s - overhead_s)
            row = 0
            while row < rows and row_s[row] != productive_s:
                row += 1
            if row == rows:
                row_s[row] = productive_s
                for c in range(count):
                    rate = by_count[COUNT_RATE, spot[c] + on_demand[c]]
                    gains[row, c] = rate * productive_s // cell
                rows += 1
            table[k, level, 0] = row
            following_s = max(0, overhead_s - slot_s)
            for other in range(levels):
                if pending[other] == following_s:
                    table[k, level, 1] = other
    gains = gains[:rows]
    done = -(-left // cell)
    cells = min(done, slots * (fastest * longest_s // cell) + 1)
    finish = np.zeros(slots, dtype=np.int64)
    on_demand_prices = np.empty(slots, dtype=np.int64)
    on_demand_availables = np.empty(slots, dtype=np.int64)
    for k in range(slots):
        on_demand_prices[k] = on_demand_price
        on_demand_availables[k] = on_demand_available
        if elapsed + k + 1 <= job[JOB_END]:
            finish[k] = by_slot[SLOT_VALUE, elapsed + k + 1]
    terminal = np.empty(cells, dtype=np.int64)
    ends = elapsed + slots
    if ends >= job[JOB_DEADLINE]:
        full = by_count[COUNT_RATE, most] * slot_s
        for i in range(cells):
            needed = -((progress + i * cell - job[JOB_WORK]) // full)
            terminal[i] = late[min(needed, late.shape[0] - 1)]
    else:
        for i in range(cells):
            over = np.float64(progress + i * cell - line[LINE_TARGET]) / 1e9
            slope = line[LINE_BELOW] if over < 0 else line[LINE_ABOVE]
            terminal[i] = line[LINE_AT_TARGET] + np.int64(np.floor(over * np.float64(slope)))
    forced = np.int64(-1)
    for c in range(count):
        if spot[c] == 0 and on_demand[c] == most:
            forced = c  # type: ignore[assignment]
    _, chosen = best_schedule(
        spot,
        on_demand,
        cover_start,
        covers,
        spot_price,
        on_demand_prices,
        available,
        on_demand_availables,
        finish,
        terminal,
        done,
        gains,
        table,
        slot_s,
        job[JOB_DEADLINE] - elapsed,
        forced,
        held_spot,
        held_on_demand,
    )
    for k in range(slots):
        plan[k, 0] = spot[chosen[k]]
        plan[k, 1] = on_demand[chosen[k]]


# --- value-to-go ------------------------------------------------------------------------------


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _bucket(starts, number):  # type: ignore[no-untyped-def]  # compiled
    """The last bucket that begins at or below `number`; -1 where none does."""
    bucket = -1
    for i in range(starts.shape[0]):
        if starts[i] > number:
            break
        bucket = i
    return bucket


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _price_place(centres_ppm, price_ppm):  # type: ignore[no-untyped-def]  # compiled
    """Where a price lies between the centres: the lower one, and the share of the next."""
    last = centres_ppm.shape[0] - 1
    if price_ppm <= centres_ppm[0]:
        return 0, 0.0
    if price_ppm >= centres_ppm[last]:
        return last, 0.0
    low = _bucket(centres_ppm, price_ppm)
    return low, (price_ppm - centres_ppm[low]) / (centres_ppm[low + 1] - centres_ppm[low])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _run_after(table, run_state, available):  # type: ignore[no-untyped-def]  # compiled
    """The run state in the last of the forecast slots, if they come true."""
    starts, ages = table[VALUE_LEVELS], table[VALUE_AGES]
    level = run_state // ages.shape[0]
    lasted = ages[run_state % ages.shape[0]]
    for h in range(available.shape[0]):
        after = _bucket(starts, available[h] + table[VALUE_SCALARS][SCALAR_TAKEN])
        lasted = lasted + 1 if after == level else 1
        level = after
    return level * ages.shape[0] + _bucket(ages, lasted)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _through(  # type: ignore[no-untyped-def]  # compiled: numba infers the types
    table,
    elapsed,
    run_state,
    forecast_price,
    forecast_available,
    on_demand_price,
    on_demand_available,
):
    """What is to come after this slot, by the forecast slots and the table after them."""
    scalars = table[VALUE_SCALARS]
    slots = forecast_price.shape[0]
    last = _run_after(table, run_state, forecast_available)
    low, share = _price_place(
        table[VALUE_CENTRES], forecast_price[slots - 1] * _PPM // on_demand_price
    )
    return through(
        table[VALUE_AFTER][elapsed + slots, last],
        low,
        share,
        forecast_price,
        forecast_available,
        table[VALUE_SPOT],
        table[VALUE_ON_DEMAND],
        table[VALUE_COVER_START],
        table[VALUE_COVERS],
        on_demand_price,
        on_demand_available,
        table[VALUE_RATES],
        table[VALUE_OVERHEADS],
        table[VALUE_PENDING],
        table[VALUE_VALUES],
        scalars[SCALAR_SLOT_S],
        scalars[SCALAR_DEADLINE],
        elapsed,
        scalars[SCALAR_HARD] > 0,
        scalars[SCALAR_MOST],
        scalars[SCALAR_CELL],
        scalars[SCALAR_RESERVE],
    )


# --- the mean of plans ------------------------------------------------------------------------


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _mean(by_count, counts, plans, total, spot):  # type: ignore[no-untyped-def]  # compiled
    """The mean of several holdings, rounded half up to an allowed count, spot first."""
    most = by_count.shape[1] - 1
    wanted = (2 * total + plans) // (2 * plans)
    n = by_count[COUNT_LARGEST, min(most, wanted)]
    if n < wanted:
        for i in range(counts.shape[0]):
            if counts[i] > wanted:
                if counts[i] - wanted <= wanted - n:
                    n = counts[i]
                break
    spot = min(spot, n)
    return spot, n - spot


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _forget(head):  # type: ignore[no-untyped-def]  # compiled
    for i in range(head.shape[0]):
        for j in range(head.shape[1]):
            for k in range(head.shape[2]):
                head[i, j, k] = -1


# --- lives ------------------------------------------------------------------------------------


@numba.njit(cache=True, nogil=True, error_model="numpy")
def replay_lives(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled
    scalars,
    by_count,
    counts,
    by_slot,
    market,
    predicted,
    lines,
    lates,
    planning_cells,
    policies,
    fallback,
    firm,
    value_table,
    first_slots,
    totals,
    kept,
):
    """Run every policy from every first slot.

    Parameters
    ----------
    predicted
        Price and spot count by (slot, step ahead), shape (2, slots, steps).
    lines, lates
        Worth of progress at the end of a window by on-demand price: before the deadline, shape
        (prices, deadline_slots, sigmas, LINE_COLUMNS), and at it, shape (prices, late slots).
    policies, fallback
        Rows of POLICY_COLUMNS; the fallback needs no forecast.
    firm
        Whether spot taken stays for the slot.
    value_table
        Arrays `VALUE_*` of the table that MARKET_RUN_STATE belongs to.
    totals
        Written: shape (first slots, policies, TOTAL_COLUMNS).
    kept
        Written where its length is not 0: spot, on-demand and reason of every slot, shape
        (first slots, policies, end_slots, 3).
    """
    # A tuple is passed by value: an array would be counted in and out of every call.
    job = (
        scalars[0],
        scalars[1],
        scalars[2],
        scalars[3],
        scalars[4],
        scalars[5],
        scalars[6],
        scalars[7],
        scalars[8],
        scalars[9],
        scalars[10],
    )
    slot_s = job[JOB_SLOT_S]
    work = job[JOB_WORK]
    most = by_count.shape[1] - 1
    # Taken apart once: passing all of a table on costs as much as a decision.
    values_after = value_table[VALUE_AFTER]
    value_cell = value_table[VALUE_SCALARS][SCALAR_CELL]
    value_counts = value_table[VALUE_ALLOWED]
    value_rates = value_table[VALUE_RATES]
    value_overheads = value_table[VALUE_OVERHEADS]
    value_pending = value_table[VALUE_PENDING]
    nearest = value_table[VALUE_NEAREST]
    finish_values = value_table[VALUE_VALUES]
    centres_ppm = value_table[VALUE_CENTRES]
    series = market.shape[1]
    steps = predicted.shape[2]
    planners = 0
    tracks = 1
    for p in range(policies.shape[0]):
        if policies[p, POLICY_KIND] == AHAP:
            planners += policies[p, POLICY_COMMITMENT]
            tracks = max(tracks, policies[p, POLICY_COMMITMENT])
    span = min(job[JOB_DEADLINE], job[JOB_END])
    # Plans by where they start, how far they see, and sigma; the first sigma row is for windows
    # that end at the deadline, where sigma plays no part.
    buckets = span if planners else 0
    head = np.empty((buckets, steps + 1, lines.shape[2] + 1), dtype=np.int32)
    room = min(planners * buckets, _MOST_PLANS)
    entry = np.empty((room, 5), dtype=np.int64)
    plans = np.empty((room, steps + 1, 2), dtype=np.int64)
    available = np.empty(steps + 1, dtype=np.int64)
    prices = np.empty(steps + 1, dtype=np.int64)
    track = np.empty((tracks, 4), dtype=np.int64)
    committed = np.empty((tracks, tracks, 2), dtype=np.int64)
    ready = np.empty(tracks, dtype=np.int64)
    following = np.empty(tracks, dtype=np.int64)
    for f in range(first_slots.shape[0]):
        first = first_slots[f]
        life = min(job[JOB_END], series - first)
        _forget(head)
        entries = 0
        for p in range(policies.shape[0]):
            kind = policies[p, POLICY_KIND]
            sigma = policies[p, POLICY_SIGMA]
            progress = np.int64(0)
            held_spot = np.int64(0)
            held_on_demand = np.int64(0)
            pending_s = np.int64(0)
            spent = np.int64(0)
            before = np.int64(-1)
            fallback_before = np.int64(-1)
            expected = np.int64(-1)
            finished = np.int64(0)
            slots = np.int64(0)
            for elapsed in range(life):
                t = first + elapsed
                spot_price = market[MARKET_SPOT_PRICE, t]
                on_demand_price = market[MARKET_ON_DEMAND_PRICE, t]
                spot_available = market[MARKET_SPOT_AVAILABLE, t]
                on_demand_available = market[MARKET_ON_DEMAND_AVAILABLE, t]
                broken = held_spot > spot_available
                reserve = market[MARKET_RESERVE, t]
                rescue = by_count[COUNT_LARGEST, min(most, market[MARKET_RESCUE, t])]
                if rescue == 0:
                    rescue = most
                if reserve > 0:
                    # A stock-out hits launches, never what is held.
                    on_demand_available = max(on_demand_available, held_on_demand)
                played = kind
                played_sigma = sigma
                asked = kind != AHAP or market[MARKET_STEPS, t] >= 0
                if not asked:
                    played = fallback[POLICY_KIND]
                    played_sigma = fallback[POLICY_SIGMA]
                    expected = -1  # type: ignore[assignment]
                usual = False
                after = progress
                after_s = pending_s
                if elapsed >= job[JOB_DEADLINE]:
                    spot, on_demand = _after_deadline(
                        job,
                        by_count,
                        by_slot,
                        on_demand_price,
                        spot_available,
                        on_demand_available,
                        elapsed,
                        progress,
                        held_spot,
                        held_on_demand,
                        pending_s,
                    )
                    reason = REASON_AFTER_DEADLINE
                    if job[JOB_BUDGET]:
                        left = job[JOB_BUDGET] - spent
                        paid = _cost(spot_price, spot, slot_s)
                        paid += _cost(on_demand_price, on_demand, slot_s)
                        if paid > left:
                            spot, on_demand = _within_budget(
                                job,
                                by_count,
                                counts,
                                spot_price,
                                on_demand_price,
                                spot_available,
                                on_demand_available,
                                progress,
                                held_spot,
                                held_on_demand,
                                pending_s,
                                left,
                            )
                            reason = REASON_BUDGET
                else:
                    run_state = market[MARKET_RUN_STATE, t] if played == VALUE_TO_GO else -1
                    if run_state >= 0:
                        window = min(policies[p, POLICY_OMEGA], market[MARKET_STEPS, t])
                        window = max(0, min(window, job[JOB_DEADLINE] - elapsed - 1))
                        for h in range(window):
                            prices[h] = predicted[0, t, h]
                            available[h] = predicted[1, t, h]
                        low, share = 0, 0.0
                        if window > 0:
                            to_come = _through(
                                value_table,
                                elapsed,
                                run_state,
                                prices[:window],
                                available[:window],
                                on_demand_price,
                                on_demand_available,
                            )
                        else:
                            low, share = _price_place(
                                centres_ppm, spot_price * _PPM // on_demand_price
                            )
                            to_come = values_after[elapsed, run_state]
                        spot, on_demand = choose(
                            to_come,
                            low,
                            share,
                            value_counts,
                            value_rates,
                            value_overheads,
                            nearest,
                            value_pending,
                            value_cell,
                            finish_values[elapsed + 1],
                            held_spot,
                            held_on_demand,
                            broken,
                            pending_s,
                            work - progress,
                            spot_price,
                            on_demand_price,
                            spot_available,
                            on_demand_available,
                            slot_s,
                        )
                    elif played == MSU or played == VALUE_TO_GO:  # noqa: SIM109  # compares two integers
                        spot = by_count[COUNT_LARGEST, min(most, spot_available)]
                        on_demand = 0
                    elif played == ON_DEMAND_ONLY:
                        spot = 0
                        on_demand = job[JOB_STEADY]
                    elif played == UNIFORM_PROGRESS:
                        spot, on_demand = _uniform_progress(
                            job,
                            by_count,
                            counts,
                            by_slot[SLOT_LINE, elapsed + 1],
                            by_slot[SLOT_AHEAD_SHRINK, elapsed],
                            by_slot[SLOT_AHEAD_GROW, elapsed],
                            spot_available,
                            progress,
                            held_spot,
                            held_on_demand,
                            pending_s,
                        )
                    elif played == AHANP:
                        remembered = before if asked else fallback_before
                        wanted, fills = _ahanp_count(
                            played_sigma,
                            counts[0],
                            by_slot[SLOT_LINE, elapsed],
                            spot_price,
                            on_demand_price,
                            spot_available,
                            progress,
                            held_spot + held_on_demand,
                            spot_available if remembered < 0 else remembered,
                        )
                        spot = by_count[COUNT_LARGEST, min(most, wanted)]
                        on_demand = max(0, spot - spot_available) if fills else 0
                        spot -= on_demand
                        if asked:
                            before = spot_available
                        else:
                            fallback_before = spot_available
                    else:
                        commitment = policies[p, POLICY_COMMITMENT]
                        if expected != progress:
                            for k in range(commitment):
                                track[k, 0] = progress
                                track[k, 1] = held_spot
                                track[k, 2] = held_on_demand
                                track[k, 3] = pending_s
                                ready[k] = 0
                                following[k] = 0
                        window = min(policies[p, POLICY_OMEGA], market[MARKET_STEPS, t])
                        window = min(window, job[JOB_DEADLINE] - elapsed - 1)
                        at_deadline = elapsed + window + 1 >= job[JOB_DEADLINE]
                        row = 0 if at_deadline else policies[p, POLICY_SIGMA_INDEX] + 1
                        whole = 0
                        most_spot = 0
                        for k in range(commitment):
                            if following[k] == ready[k]:
                                found = head[elapsed, window, row]
                                while found >= 0 and not (
                                    entry[found, 0] == track[k, 0]
                                    and entry[found, 1] == track[k, 1]
                                    and entry[found, 2] == track[k, 2]
                                    and entry[found, 3] == track[k, 3]
                                ):
                                    found = entry[found, 4]
                                if found < 0:
                                    prices[0] = spot_price
                                    available[0] = min(most, spot_available)
                                    for h in range(window):
                                        prices[h + 1] = predicted[0, t, h]
                                        available[h + 1] = min(most, predicted[1, t, h])
                                    index = market[MARKET_PRICE_INDEX, t]
                                    ends = min(elapsed + window + 1, lines.shape[1] - 1)
                                    if entries == room:
                                        _forget(head)
                                        entries = 0
                                    found = entries
                                    _plan_window(
                                        job,
                                        by_count,
                                        counts,
                                        by_slot,
                                        lines[index, ends, max(0, row - 1)],
                                        lates[index],
                                        planning_cells,
                                        elapsed,
                                        track[k, 0],
                                        track[k, 1],
                                        track[k, 2],
                                        track[k, 3],
                                        prices[: window + 1],
                                        available[: window + 1],
                                        on_demand_price,
                                        min(most, on_demand_available),
                                        plans[found],
                                    )
                                    for column in range(4):
                                        entry[found, column] = track[k, column]
                                    entry[found, 4] = head[elapsed, window, row]
                                    head[elapsed, window, row] = found
                                    entries += 1
                                until = (k - elapsed) % commitment
                                if until == 0:
                                    until = commitment
                                for h in range(until):
                                    committed[k, h, 0] = plans[found, min(h, window), 0]
                                    committed[k, h, 1] = plans[found, min(h, window), 1]
                                ready[k] = until
                                following[k] = 0
                            spot = min(committed[k, following[k], 0], spot_available)
                            on_demand = committed[k, following[k], 1]
                            following[k] += 1
                            n = by_count[COUNT_LARGEST, min(most, spot + on_demand)]
                            on_demand = min(on_demand, max(0, n - spot))
                            spot = n - on_demand
                            after, after_s = _advance(
                                job,
                                by_count,
                                track[k, 0],
                                track[k, 1],
                                track[k, 2],
                                track[k, 3],
                                spot,
                                on_demand,
                                track[k, 1] > spot_available,
                            )
                            track[k, 0] = after
                            track[k, 1] = spot
                            track[k, 2] = on_demand
                            track[k, 3] = after_s
                            whole += n
                            most_spot = max(most_spot, spot)
                        spot, on_demand = _mean(by_count, counts, commitment, whole, most_spot)
                        spot, on_demand = _fit(
                            by_count, spot_available, on_demand_available, spot, on_demand
                        )
                        expected, _ = _advance(
                            job,
                            by_count,
                            progress,
                            held_spot,
                            held_on_demand,
                            pending_s,
                            spot,
                            on_demand,
                            broken,
                        )
                    spot, on_demand = _fit(
                        by_count, spot_available, on_demand_available, spot, on_demand
                    )
                    after, after_s = _advance_at(
                        job,
                        by_count[COUNT_RATE, spot + on_demand],
                        by_count[COUNT_CAP_S, spot + on_demand],
                        progress,
                        held_spot,
                        held_on_demand,
                        pending_s,
                        spot,
                        on_demand,
                        broken,
                    )
                    reason = REASON_POLICY
                    # Most slots need nothing more: neither finish, net nor budget.
                    usual = after < work and not job[JOB_BUDGET]
                    netted = job[JOB_HARD] != 0 or played != VALUE_TO_GO or run_state < 0
                    if usual and netted:
                        usual = _is_safe(
                            job,
                            by_count[COUNT_RATE, rescue],
                            by_count[COUNT_CAP_S, rescue],
                            rescue,
                            reserve,
                            job[JOB_DEADLINE] - elapsed - 1,
                            progress,
                            after,
                            after_s,
                            spot,
                            on_demand,
                            firm,
                        )
                    if not usual:
                        spot, on_demand, reason = _settle(
                            job,
                            by_count,
                            counts,
                            spot_price,
                            on_demand_price,
                            spot_available,
                            on_demand_available,
                            elapsed,
                            progress,
                            held_spot,
                            held_on_demand,
                            pending_s,
                            spent,
                            firm,
                            rescue,
                            reserve,
                            netted,
                            spot,
                            on_demand,
                        )
                spent += _cost(spot_price, spot, slot_s)
                spent += _cost(on_demand_price, on_demand, slot_s)
                if not usual:
                    after, after_s = _advance(
                        job,
                        by_count,
                        progress,
                        held_spot,
                        held_on_demand,
                        pending_s,
                        spot,
                        on_demand,
                        broken,
                    )
                progress = after
                pending_s = after_s
                held_spot = spot
                held_on_demand = on_demand
                if kept.shape[0]:
                    kept[f, p, elapsed, 0] = spot
                    kept[f, p, elapsed, 1] = on_demand
                    kept[f, p, elapsed, 2] = reason
                slots += 1
                if progress >= work:
                    finished = elapsed + 1  # type: ignore[assignment]
                    break
            value = by_slot[SLOT_VALUE, finished] if finished else 0
            totals[f, p, TOTAL_UTILITY] = value - spent
            totals[f, p, TOTAL_COST] = spent
            totals[f, p, TOTAL_VALUE] = value
            totals[f, p, TOTAL_FINISHED] = finished
            totals[f, p, TOTAL_SLOTS] = slots
