"""A step whose rewards all failed stops the run; the steps before it are saved, as if it had not begun."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from whet.errors import RewardsFailedError

if TYPE_CHECKING:
    from whet.training.components import Rooms
    from whet.training.state import TrainerState


@contextmanager
def saving_steps_before(rooms: Rooms, state: TrainerState) -> Iterator[None]:
    """Run the part of a step that changes no weights; on `RewardsFailedError`, save the end of the step before."""
    position = rooms.loader.state_dict() if rooms.loader else None
    drawn, carried, empty = state.samples_drawn, list(state.carried), state.empty_steps
    generators = torch.get_rng_state(), random.getstate()
    try:
        yield
    except RewardsFailedError as error:
        state.step -= 1
        state.samples_drawn, state.carried, state.empty_steps = drawn, carried, empty
        if rooms.loader is not None and position is not None:
            rooms.loader.load_state_dict(position)
        torch.set_rng_state(generators[0])
        random.setstate(generators[1])
        raise stopped(rooms, state, error) from None


def stopped(rooms: Rooms, state: TrainerState, error: RewardsFailedError) -> RewardsFailedError:
    """Save the state, unless it is saved already, and say in the error how the run continues."""
    if state.step == 0:
        return RewardsFailedError(f"{error} Nothing was trained yet; start the run again.")
    folder = rooms.checkpoints.folder / f"global_step_{state.step}"
    if not folder.exists():
        state.save(rooms)
    return RewardsFailedError(f"{error} The same command goes on from {folder}.")
