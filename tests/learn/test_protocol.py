"""The local classes have the methods of their protocols, as they are declared."""

from __future__ import annotations

import inspect

import pytest

from whet.learn.critic import LocalCritic
from whet.learn.learner import LocalLearner
from whet.learn.protocol import Critic, Learner, Reference, rank_calls
from whet.learn.reference import LocalReference

PAIRS = [(Learner, LocalLearner), (Critic, LocalCritic), (Reference, LocalReference)]


@pytest.mark.parametrize(("protocol", "local"), PAIRS)
def test_local_methods_take_what_the_protocol_says(protocol: type, local: type) -> None:
    declared = rank_calls(protocol)
    assert "log_probs" in declared or "values" in declared
    for name, call in declared.items():
        wanted, found = (inspect.signature(getattr(each, name)).parameters for each in (protocol, local))
        assert [(p.name, p.kind, p.default) for p in found.values()] == [
            (p.name, p.kind, p.default) for p in wanted.values()
        ], name
        assert getattr(local, name) is not getattr(protocol, name), f"{local.__name__} does not define {name}"
        assert {*call.own, *call.local} <= wanted.keys()
        assert all(wanted[each].default is not inspect.Parameter.empty for each in call.local)


@pytest.mark.parametrize(("protocol", "local"), PAIRS)
def test_every_public_method_is_called_on_ranks_or_has_a_body(protocol: type, local: type) -> None:
    public = {name for name, each in vars(protocol).items() if inspect.isfunction(each) and not name.startswith("_")}
    assert public - rank_calls(protocol).keys() <= {"engine_weights"}
