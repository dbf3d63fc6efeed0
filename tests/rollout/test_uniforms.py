"""The random numbers: uniform, independent across seeds, samples and positions, and a function of nothing else."""

from __future__ import annotations

import torch

from whet.rollout.uniforms import stream_keys, uniforms

_MASK = 2**64 - 1


def _splitmix_finaliser(x: int) -> int:
    """The published function in plain unsigned arithmetic."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _draw(seed: int, sample: int, positions: int) -> torch.Tensor:
    keys = stream_keys(seed, torch.tensor([sample])).expand(positions)
    return uniforms(keys, torch.arange(positions))


def test_they_are_splitmix64_of_the_key_and_the_position() -> None:
    for key in (0, 1, -1, 2**63 - 1, -(2**63), 123456789):
        for position in (0, 1, 7, 100_000):
            bits = _splitmix_finaliser((key + (position + 1) * 0x9E3779B97F4A7C15) & _MASK)
            drawn = uniforms(torch.tensor([key]), torch.tensor([position]))
            assert drawn.item() == (bits >> 11) * 2.0**-53


def test_they_are_in_the_half_open_unit_interval_and_uniform() -> None:
    u = torch.cat([_draw(0, sample, 2000) for sample in range(100)])
    n = len(u)
    assert u.dtype == torch.float64
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 5 * (1 / 12 / n) ** 0.5
    assert abs(u.var() - 1 / 12) < 5 * (1 / 180 / n) ** 0.5
    counts = torch.histc(u, bins=100, min=0, max=1)
    chi_square = ((counts - n / 100) ** 2 / (n / 100)).sum()
    assert abs(chi_square - 99) < 5 * (2 * 99) ** 0.5


def _correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


def test_neighbours_are_uncorrelated_in_every_direction() -> None:
    n = 50_000
    one = _draw(3, 17, n)
    bound = 5 / n**0.5
    assert abs(_correlation(one[1:], one[:-1])) < bound  # the next position
    assert abs(_correlation(one, _draw(3, 18, n))) < bound  # the next sample
    assert abs(_correlation(one, _draw(4, 17, n))) < bound  # the next seed
    first = uniforms(stream_keys(3, torch.arange(n)), torch.zeros(n, dtype=torch.int64))
    assert abs(_correlation(first[1:], first[:-1])) < bound  # first tokens of samples in a row


def test_no_two_of_seed_sample_and_position_share_a_number() -> None:
    seeds = (0, 1, 2, -1, -2, 2**31, 2**63 - 1)
    drawn = torch.cat([_draw(seed, sample, 50) for seed in seeds for sample in range(50)])
    assert len(drawn.unique()) == len(drawn)


def test_any_python_integer_is_a_seed() -> None:
    for seed in (0, -1, 2**63, 2**64 - 5, -(2**63), 10**30, -(10**30)):
        u = _draw(seed, 0, 3)
        assert ((u >= 0) & (u < 1)).all()
    assert _draw(-1, 0, 3).tolist() == _draw(2**64 - 1, 0, 3).tolist()  # a seed counts modulo 2**64
    assert _draw(1, 0, 3).tolist() != _draw(-1, 0, 3).tolist()


def test_a_sample_id_gives_the_same_key_alone_and_among_others() -> None:
    together = stream_keys(9, torch.tensor([4, 5, 6]))
    assert [int(stream_keys(9, torch.tensor([i]))) for i in (4, 5, 6)] == together.tolist()
