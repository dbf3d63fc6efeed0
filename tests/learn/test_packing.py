from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from learn.samples import sample

from whet.learn.packing import pack, pad
from whet.learn.partition import micro_batches
from whet.types import Prompt, Sample


def _prompt(*ids: int) -> Prompt:
    return Prompt(uid="row", ids=list(ids), text="")


def _packed_size(samples: list[Sample], share_prefix: bool) -> int:
    return len(pack(samples, share_prefix).ids_N)


@st.composite
def _batches(draw: st.DrawFn) -> list[Sample]:
    samples = []
    for _ in range(draw(st.integers(1, 5))):
        prompt = _prompt(*range(draw(st.integers(1, 8))))
        samples += [sample(prompt, list(range(draw(st.integers(0, 9))))) for _ in range(draw(st.integers(1, 4)))]
    return samples


@given(samples=_batches(), share=st.booleans(), budget=st.integers(1, 60))
def test_token_budget(samples: list[Sample], share: bool, budget: int) -> None:
    micros = micro_batches(samples, share, budget, max_samples=1)
    written = [i for i, s in enumerate(samples) if s.ids]
    assert sorted(i for micro in micros for i in micro) == written
    for micro in micros:
        size = _packed_size([samples[i] for i in micro], share)
        assert size <= budget or len(micro) == 1


@given(samples=_batches(), size=st.integers(1, 9))
def test_without_dynamic_batching_samples_are_counted(samples: list[Sample], size: int) -> None:
    micros = micro_batches(samples, True, None, size)
    written = [i for i, s in enumerate(samples) if s.ids]
    assert [i for micro in micros for i in micro] == written
    assert all(len(micro) == size for micro in micros[:-1])


def test_samples_of_a_prompt_stay_together() -> None:
    a, b = _prompt(1, 2, 3), _prompt(1, 2, 3)
    samples = [sample(p, [7, 8]) for p in (a, a, b, b)]
    assert micro_batches(samples, True, 7, 1) == [[0, 1], [2, 3]]
    assert micro_batches(samples, True, 14, 1) == [[0, 1, 2, 3]]
    assert len(micro_batches(samples, False, 7, 1)) == 4


def test_shared_layout_by_hand() -> None:
    a, b = _prompt(10, 11, 12), _prompt(20)
    packed = pack([sample(a, [1, 2, 3]), sample(a, [4]), sample(b, [5, 6]), sample(a, [7, 8])], share_prefix=True)
    #                     prompt a    1  2  (4: nothing)  b   5   a again     7
    assert packed.ids_N.tolist() == [10, 11, 12, 1, 2, 20, 5, 10, 11, 12, 7]
    assert packed.positions_N.tolist() == [0, 1, 2, 3, 4, 0, 1, 0, 1, 2, 3]
    assert packed.targets_M.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert packed.rows_M.tolist() == [2, 3, 4, 2, 5, 6, 9, 10]
    assert packed.shape == (4, 3)
    unpacked = packed.unpack(packed.targets_M)
    assert unpacked.tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0], [7, 8, 0]]


def test_separate_layout_by_hand() -> None:
    a = _prompt(10, 11)
    packed = pack([sample(a, [1, 2]), sample(a, [3])], share_prefix=False)
    assert packed.ids_N.tolist() == [10, 11, 1, 10, 11]
    assert packed.positions_N.tolist() == [0, 1, 2, 0, 1]
    assert packed.rows_M.tolist() == [1, 2, 4]
    assert packed.unpack(packed.targets_M).tolist() == [[1, 2], [3, 0]]


@pytest.mark.parametrize("share", [True, False])
def test_an_aborted_sample_among_others_is_an_empty_row(share: bool) -> None:
    a = _prompt(10, 11)
    packed = pack([sample(a, []), sample(a, [1, 2])], share)
    assert packed.unpack(packed.targets_M).tolist() == [[0, 0], [1, 2]]


def test_equal_prompts_of_two_rows_are_not_shared() -> None:
    packed = pack([sample(_prompt(1, 2), [3, 4]), sample(_prompt(1, 2), [3, 4])], share_prefix=True)
    assert packed.ids_N.tolist() == [1, 2, 3, 1, 2, 3]


def test_unpack_carries_gradient() -> None:
    packed = pack([sample(_prompt(1), [2, 3]), sample(_prompt(1), [4])], share_prefix=True)
    values = torch.arange(3.0, requires_grad=True)
    (packed.unpack(values) * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert values.grad.tolist() == [1.0, 2.0, 3.0]


def test_pad() -> None:
    assert pad([[1, 2], [], [3]]).tolist() == [[1.0, 2.0], [0.0, 0.0], [3.0, 0.0]]
