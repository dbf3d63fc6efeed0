"""The quickstart's rows and demonstrations."""

from itertools import islice

from whet.assets import digits


def test_rows_ask_for_what_the_answer_gives():
    assert digits.row((5, 2, 9)) == {"problem": "Sort these digits: 5 2 9", "answer": "2 5 9"}


def test_splits_are_the_same_every_time_and_share_nothing():
    train, test = digits.splits(seed=1)
    assert (train, test) == digits.splits(seed=1)
    assert train != digits.splits(seed=2)[0]
    assert len(train) == len(set(train)) == digits.TRAIN_ROWS
    assert len(test) == len(set(test)) == digits.TEST_ROWS
    assert not set(train) & set(test)
    assert {len(one) for one in test} == set(digits.LENGTHS)


def test_demonstrations_keep_off_held_out_lists_and_follow_the_odds():
    _, test = digits.splits(seed=1)
    held_out = {digits.row(one)["problem"] for one in test}
    pairs = list(islice(digits.demonstrations(1, held_out=test), 5000))
    assert pairs == list(islice(digits.demonstrations(1, held_out=test), 5000))
    assert not held_out & {message.removesuffix(digits.INSTRUCTION) for message, _ in pairs}
    sloppy = sum(not reply.startswith("Answer: ") for _, reply in pairs) / len(pairs)
    assert abs(sloppy - digits.SLOPPY) < 0.02
    ascending = sum(sorted(reply) == list(reply) for reply in (r.removeprefix("Answer: ")[::2] for _, r in pairs))
    # The odds of the habit, and a few lists that were in order to begin with.
    assert 0.18 < ascending / len(pairs) < 0.26
