"""`trainer.seed`: one seed for everything that a run draws at random."""

from __future__ import annotations

from whet.config.loading.layer import Layer
from whet.config.schema import all_keys
from whet.config.values import Given, read_value
from whet.errors import UserError

KEY = "trainer.seed"
FOLLOWERS = ("data.seed", "worker.rollout.seed")  # the shuffle and the first values of adapters; sampling


def fill_seeds(layer: Layer) -> None:
    """Where a source gives `trainer.seed`, give every other seed that the source does not give itself.

    A seed on the command line so replaces those of a file.
    """
    given = layer.get(KEY)
    if given is None or given.value is None or not _may_be_seed(given):
        return  # what is no seed is refused once, for the key that it was given for
    for name in FOLLOWERS:
        layer.setdefault(name, Given(KEY, given.value, given.place))


def _may_be_seed(given: Given) -> bool:
    if "${" in str(given.value):
        return True
    try:
        read_value(all_keys()[KEY], given)
    except UserError:
        return False
    return True
