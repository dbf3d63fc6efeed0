"""Groups that a step takes so that none gets older than `trainer.max_staleness`; no imports, for the simulator too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def choose(count: int, ages: Mapping[int, int], ready: Sequence[int], bound: int, per_step: int) -> list[int] | None:
    """Choose `count` groups of those that are ready, in this order, or None to wait for older ones.

    `ages` are the updates since each group was handed in, by number, of all that were not taken yet. Groups of age 0
    may be taken now or by the next `bound` steps. A step takes `per_step` groups. If more than j times as many were to
    stay that have at most j steps left, some of them could not be taken in time: the excess of each age has to be among
    those that are taken now.
    """
    taken = dict[int, None]()
    for least in range(bound, -1, -1):  # the oldest first
        steps_left = bound - least  # that a group of this age has after this one
        excess = sum(each >= least for each in ages.values()) - steps_left * per_step
        chosen = sum(ages[number] >= least for number in taken)
        for number in ready:
            if chosen >= excess:
                break
            if ages[number] >= least and number not in taken:
                taken[number] = None
                chosen += 1
        if chosen < min(excess, count):
            return None
    return [*taken, *(number for number in ready if number not in taken)][:count]
