"""Log-probs and entropies that an update records of a few rows: those of its own forward passes, row by row."""

from __future__ import annotations

import torch
from learn.samples import batch
from learn.test_learner import _config, _learner, _likelihood

from whet.learn.scoring import score_all


def test_recorded_rows_are_those_of_the_forward_pass_before_their_update() -> None:
    samples, learner = batch(), _learner(_config(lr=1e-9))
    rows = [0, 7, 11]
    expected = learner.log_probs(samples)
    entropies = score_all(learner.model, samples, 1.0, learner.config, 80, lambda scored: scored.entropy_BT)
    learner.update(samples, _likelihood(samples), step=1, mini_batch=5, recorded=rows)
    recorded = learner.recorded()
    assert recorded.shape == (3, 3, max(len(samples[row].ids) for row in rows))
    for place, row in enumerate(rows):
        length = len(samples[row].ids)
        torch.testing.assert_close(recorded[0, place, :length], expected[row, :length], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(recorded[1, place, :length], entropies[row, :length], atol=1e-5, rtol=1e-5)
        assert not recorded[:2, place, length:].any()
    assert recorded[2].bool().all()


def test_recording_changes_no_bit_of_the_update_and_nothing_is_recorded_unasked() -> None:
    samples, plain, recording = batch(), _learner(_config()), _learner(_config())
    first = plain.update(samples, _likelihood(samples), step=1, mini_batch=5)
    assert recording.update(samples, _likelihood(samples), step=1, mini_batch=5, recorded=[3, 4]) == first
    assert all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), recording.model.parameters()))
    assert plain.recorded().shape == (3, 0, 0)
