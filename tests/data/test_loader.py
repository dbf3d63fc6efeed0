from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.data.loader import PromptLoader
from whet.errors import UserError
from whet.types import Prompt


class Rows:
    """As many prompts as asked for; a prompt's one token is its row."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    def take(self, indices: Sequence[int]) -> list[Prompt]:
        return [Prompt(uid=str(row), ids=[row], text="") for row in indices]


def loader(rows: int, batch_size: int, shuffle: bool = True, seed: int = 1, drop_last: bool = True) -> PromptLoader:
    return PromptLoader(Rows(rows), batch_size, shuffle, seed, drop_last)


def numbers(batch: list[Prompt]) -> list[int]:
    return [prompt.ids[0] for prompt in batch]


def take(source: PromptLoader, batches: int) -> list[list[int]]:
    return [numbers(source.next_batch()) for _ in range(batches)]


@st.composite
def shapes(draw):
    rows = draw(st.integers(1, 40))
    return {
        "rows": rows,
        "batch_size": draw(st.integers(1, rows)),
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**40)),
        "drop_last": draw(st.booleans()),
    }


@settings(deadline=None)
@given(shapes(), st.integers(0, 100))
def test_resuming_anywhere_gives_the_same_continuation(shape, steps):
    straight = loader(**shape)
    take(straight, steps)
    saved = json.loads(json.dumps(straight.state_dict()))
    resumed = loader(**shape)
    take(resumed, steps % 3)
    resumed.load_state_dict(saved)
    assert resumed.epoch == straight.epoch
    assert resumed.state_dict() == straight.state_dict()
    ahead = 2 * straight.steps_per_epoch + 1
    assert take(resumed, ahead) == take(straight, ahead)
    assert resumed.state_dict() == straight.state_dict()


@settings(deadline=None)
@given(shapes())
def test_each_epoch_is_a_permutation(shape):
    source = loader(**shape | {"drop_last": False})
    for epoch in range(3):
        seen = [row for batch in take(source, source.steps_per_epoch) for row in batch]
        assert source.epoch == epoch
        assert sorted(seen) == list(range(shape["rows"]))


@settings(deadline=None)
@given(shapes())
def test_training_batches_are_full_and_never_repeat_a_row_within_an_epoch(shape):
    source = loader(**shape | {"drop_last": True})
    for epoch in range(3):
        batches = take(source, source.steps_per_epoch)
        assert source.epoch == epoch
        assert all(len(batch) == shape["batch_size"] for batch in batches)
        seen = [row for batch in batches for row in batch]
        assert len(set(seen)) == len(seen) > shape["rows"] - shape["batch_size"]


@settings(deadline=None)
@given(shapes(), st.integers(0, 20))
def test_one_pass_has_every_row_and_leaves_the_position_alone(shape, steps):
    source = loader(**shape)
    first = [numbers(batch) for batch in source]
    take(source, steps)
    before = source.state_dict()
    assert [numbers(batch) for batch in source] == first
    assert source.state_dict() == before
    assert sorted(row for batch in first for row in batch) == list(range(shape["rows"]))


@settings(deadline=None)
@given(shapes(), st.integers(0, 20), st.data())
def test_another_batch_size_goes_on_at_the_same_row(shape, steps, data):
    shape |= {"drop_last": False}
    straight = loader(**shape)
    take(straight, steps)
    other = loader(**shape | {"batch_size": data.draw(st.integers(1, shape["rows"]))})
    other.load_state_dict(straight.state_dict())
    enough = 2 * shape["rows"]
    rest = [row for batch in take(straight, enough) for row in batch]
    again = [row for batch in take(other, enough) for row in batch]
    common = min(len(rest), len(again))
    assert rest[:common] == again[:common]


def test_without_shuffling_rows_come_in_order():
    assert take(loader(5, 2, shuffle=False), 4) == [[0, 1], [2, 3], [0, 1], [2, 3]]
    assert take(loader(5, 2, shuffle=False, drop_last=False), 4) == [[0, 1], [2, 3], [4], [0, 1]]


def test_the_order_depends_on_seed_and_epoch_and_nothing_else():
    first, again, other = loader(50, 50), loader(50, 25), loader(50, 50, seed=2)
    epochs = [batch[0] for batch in (take(first, 1), take(first, 1))]
    assert epochs[0] != epochs[1]
    assert epochs[0] == [row for batch in take(again, 2) for row in batch]
    assert epochs[0] != take(other, 1)[0]
    # Pinned, so that a checkpoint of today is taken up in the same order tomorrow.
    assert take(loader(8, 8), 2) == [[1, 5, 4, 2, 7, 0, 3, 6], [1, 5, 2, 3, 6, 4, 0, 7]]


def test_the_epoch_turns_with_its_first_batch():
    source = loader(6, 3)
    epochs = []
    for _ in range(5):
        source.next_batch()
        epochs.append(source.epoch)
    assert epochs == [0, 0, 1, 1, 2]
    assert source.steps_per_epoch == 2


def test_all_rows_at_once():
    assert [len(batch) for batch in loader(7, -1, drop_last=False)] == [7]


def test_validation_batch_may_be_larger_than_the_dataset():
    assert [numbers(batch) for batch in loader(3, 8, shuffle=False, drop_last=False)] == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("rows", "batch_size", "message"),
    [(3, 4, r"data\.rollout_batch_size=4 .* 3 rows"), (3, 0, "at least one row"), (0, 1, "no rows")],
)
def test_impossible_batches(rows, batch_size, message):
    with pytest.raises(UserError, match=message):
        loader(rows, batch_size)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 11}, "made with 10 rows of training data and there are 11 now"),
        ({"seed": 2}, r"made with data\.seed=1 and the config says 2"),
        ({"shuffle": False}, r"Set data\.shuffle=True to resume"),
    ],
)
def test_a_position_in_other_data_is_refused(change, message):
    saved = loader(10, 2).state_dict()
    other = loader(**{"rows": 10, "batch_size": 2} | change)
    with pytest.raises(UserError, match=message):
        other.load_state_dict(saved)
