"""Learner, critic and reference on the ranks of a group, generated from their protocols in `learn/protocol.py`.

`remote` makes an object with a protocol's methods, each of which calls the same method on every rank; `answer` is the
other side, on the rank. Both read the methods' `@on_ranks` declarations, so that a method has no code here.
"""

# mypy: disable-error-code="type-abstract"
# Protocols are passed to be read, and never instantiated.

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import NoneType, new_class
from typing import Any, TypeVar, get_origin, get_type_hints

from whet.distributed import Group
from whet.learn.protocol import Critic, Learner, RankCall, Reference, rank_calls

P = TypeVar("P")
PROTOCOLS: dict[str, type] = {"learner": Learner, "critic": Critic, "reference": Reference}  # parts of a rank


def remote_learner(group: Group) -> Learner:
    """Return the policy's learner on all ranks of a group."""
    return remote(Learner, "learner", group)


def remote_critic(group: Group) -> Critic:
    """Return the critic on all ranks of a group."""
    return remote(Critic, "critic", group)


def remote_reference(group: Group) -> Reference:
    """Return the frozen reference on all ranks of a group."""
    return remote(Reference, "reference", group)


class RemotePart:
    """Base of the generated classes."""

    def __init__(self, group: Group) -> None:
        self.group = group


def remote(protocol: type[P], part: str, group: Group) -> P:
    """Return an implementation of a protocol by `part` of every rank.

    Methods without a declaration keep the protocol's own body, which holds for ranks.
    """
    methods = {name: _remote_method(getattr(protocol, name), part, call) for name, call in rank_calls(protocol).items()}
    bases: tuple[type, ...] = (RemotePart, protocol)
    made = new_class(f"Remote{protocol.__name__}", bases, exec_body=lambda namespace: namespace.update(methods))
    found: P = made(group)
    return found


def _remote_method(declared: Callable[..., Any], part: str, call: RankCall) -> Callable[..., Any]:
    """Return a method that sends its arguments to all ranks and combines their answers as declared."""
    signature, returns = inspect.signature(declared), get_type_hints(declared)["return"]
    name, not_sent = declared.__name__, {"self", *call.own, *call.local}

    @wraps(declared)
    def ask(self: RemotePart, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs).arguments
        sent = {key: value for key, value in given.items() if key not in not_sent}
        answers = self.group.call("answer", part, name, sent)
        return _checked(_combined(answers, call, f"{part}.{name}"), returns, f"{part}.{name}")

    return ask


def _combined(answers: Sequence[Any], call: RankCall, name: str) -> Any:
    if call.answer == "same":
        for rank, each in enumerate(answers):
            if each != answers[0]:
                raise RuntimeError(f"{name}: rank {rank} answered {each!r}, rank 0 {answers[0]!r}")
    return answers[0]


def _checked(answer: Any, hint: Any, name: str) -> Any:
    """Return an answer that has the class of the protocol's annotation; another one is an error of the rank."""
    expected = get_origin(hint) or hint
    if not isinstance(answer, expected):
        wanted = "None" if expected is NoneType else expected.__name__
        raise TypeError(f"{name}: a rank answered with {type(answer).__name__} instead of {wanted}")
    return answer


def answer(
    parts: Mapping[str, object], own: Mapping[str, object], part: str, name: str, sent: Mapping[str, Any], first: bool
) -> Any:
    """Call a method of one of a rank's parts; `own` holds its objects for parameters that are not sent.

    Ranks other than the first return None unless every rank is asked for its answer.
    """
    call = rank_calls(PROTOCOLS[part]).get(name)
    if call is None or part not in parts:
        raise LookupError(f"this rank has no {part}.{name} to be called by others")
    found = getattr(parts[part], name)(**sent, **{key: own[key] for key in call.own})
    return found if first or call.answer == "same" else None
