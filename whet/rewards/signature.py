"""How a reward function wants to be called, read from its parameters.

Nine forms are known: EasyR1's (a dict, or a list of dicts), EasyR1's older one (predict, ground_truth), verl's
(data_source, solution_str, ground_truth, extra_info) and the plain one (response, answer), each for one sample or, with
plural names, for a whole batch; and TRL's (completions), for a batch (`trl.py`).

Pictures and turns are given to functions that ask for them: by a parameter `images`, `videos` or `turns` (in a batch
form a list with an entry for each sample), or by their names in `REWARD_NEEDS` of the file, which puts them into the
dicts.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from whet.errors import UserError
from whet.rewards.function import KEY, KWARGS_KEY, RewardSource
from whet.rewards.trl import NOT_GIVEN, adapted
from whet.rewards.wire import ASKED

RewardInput = dict[str, Any]
Parameters = dict[str, inspect.Parameter]

TYPE_KEY = "worker.reward.reward_type"
TYPES = ("batch", "sequential")


@dataclass(frozen=True, slots=True)
class CallForm:
    """One accepted signature: the parameters it must have, those it may have, and what a call scores."""

    batch: bool
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    verl: bool = False

    def __str__(self) -> str:
        return f"f({', '.join((*self.required, *self.optional))}, ...)"


BATCH = CallForm(True, ("reward_inputs",))
SEQUENTIAL = CallForm(False, ("reward_input",))
TRL = CallForm(True, ("completions",), ("prompts",))
FORMS = (
    BATCH,
    SEQUENTIAL,
    CallForm(False, ("solution_str", "ground_truth"), ("data_source", "extra_info"), verl=True),
    CallForm(True, ("solution_strs", "ground_truths"), ("data_sources", "extra_infos"), verl=True),
    CallForm(False, ("predict", "ground_truth")),
    CallForm(True, ("predicts", "ground_truths")),
    CallForm(False, ("response", "answer"), ("prompt",)),
    CallForm(True, ("responses", "answers"), ("prompts",)),
    TRL,
)


def _extra_info(row: RewardInput) -> dict[str, Any]:
    """Every column of the row; those nested in a column `extra_info`, as verl's files have it, come to the top."""
    nested = row.get("extra_info")
    return {**row, **nested} if isinstance(nested, dict) else dict(row)


# What a parameter of that name receives for one sample; a batch form has the plural name and receives a list.
ARGUMENTS: dict[str, Callable[[RewardInput], Any]] = {
    "predict": lambda row: row["response"],
    "solution_str": lambda row: row["response"],
    "ground_truth": lambda row: row["ground_truth"],
    "data_source": lambda row: row.get("data_source"),
    "extra_info": _extra_info,
    "response": lambda row: row["response"],
    "answer": lambda row: row["ground_truth"],
    "prompt": lambda row: row["prompt"],
}


@dataclass(frozen=True, slots=True)
class RewardFunction:
    """A user's function together with the way to call it."""

    function: Callable[..., Any]
    form: CallForm
    arguments: tuple[str, ...]  # the parameters, beyond the options, that the function has
    options: dict[str, Any]
    asked: tuple[str, ...] = ()  # parameters that receive pictures and turns
    wanted: frozenset[str] = frozenset()  # these, and what its file asks for

    def __call__(self, inputs: list[RewardInput]) -> Any:
        """Score the inputs; a sequential function is given exactly one. Returns what the user's code returned."""
        options = self.options | {
            name: [row[name] for row in inputs] if self.form.batch else inputs[0][name] for name in self.asked
        }
        if self.form is BATCH:
            result = self.function(inputs, **options)
        elif self.form is SEQUENTIAL:
            result = self.function(inputs[0], **options)
        elif self.form.batch:
            columns = {name: [ARGUMENTS[name[:-1]](row) for row in inputs] for name in self.arguments}
            result = self.function(**columns, **options)
        else:
            result = self.function(**{name: ARGUMENTS[name](inputs[0]) for name in self.arguments}, **options)
        return asyncio.run(result) if inspect.iscoroutine(result) else result


def bind(
    function: Callable[..., Any],
    source: RewardSource,
    declared: str | None,
    options: dict[str, Any],
    needs: Any = (),
) -> RewardFunction:
    """Choose the form that the function's parameters fit. `declared` ("batch", "sequential") overrules its names.

    `needs` is REWARD_NEEDS of the file: what its dicts should hold besides the row.
    """
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError) as error:
        raise UserError(f"{KEY}: {source.function} in {source.path} has no readable signature: {error}") from error
    if declared is not None and declared not in TYPES:
        raise UserError(f"{TYPE_KEY}: {declared!r} is not one of {', '.join(TYPES)} (REWARD_TYPE in {source.path})")
    asked = _asked(parameters, options)
    form = _match({name: each for name, each in parameters.items() if name not in asked}, declared, options)
    if form is None:
        raise UserError(_wrong_signature(parameters, declared, source))
    arguments = tuple(name for name in (*form.required, *form.optional) if name in parameters)
    if form is TRL:  # every other parameter is a column, which only the rows can show
        function, form = adapted(function, [n for n, each in parameters.items() if _is_needed(each)]), BATCH
        arguments += tuple(n for n in parameters if n not in (*arguments, *asked, *options, *NOT_GIVEN))
    elif form in (BATCH, SEQUENTIAL):
        arguments = (next(iter(parameters)),)
        if arguments[0] in asked:
            raise UserError(f"{KEY}: {source.function} in {source.path} takes {arguments[0]} first; put the row there")
    _check_options(parameters, (*arguments, *asked), options, source)
    return RewardFunction(function, form, arguments, options, asked, _needs(needs, source) | frozenset(asked))


def _asked(parameters: Parameters, options: dict[str, Any]) -> tuple[str, ...]:
    """Parameters that receive pictures and turns; one that the config sets is an option like any other."""
    named = (parameter for name, parameter in parameters.items() if name in ASKED and name not in options)
    return tuple(each.name for each in named if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY))


def _needs(needs: Any, source: RewardSource) -> frozenset[str]:
    """What REWARD_NEEDS names."""
    names = [needs] if isinstance(needs, str) else needs
    if not isinstance(names, (list, tuple, set, frozenset)) or any(name not in ASKED for name in names):
        raise UserError(f"REWARD_NEEDS in {source.path} is {needs!r}: write a list of names from {', '.join(ASKED)}")
    return frozenset(names)


def _match(parameters: Parameters, declared: str | None, options: dict[str, Any]) -> CallForm | None:
    named = [form for form in FORMS if all(name in parameters for name in form.required)]
    pairs = [form for form in named if form not in (BATCH, SEQUENTIAL)]
    if pairs:
        fitting = [form for form in pairs if declared is None or form.batch == (declared == "batch")]
        return fitting[0] if fitting else None
    needed = [name for name, parameter in parameters.items() if _is_needed(parameter) and name not in options]
    if not parameters:
        return None
    first = next(iter(parameters.values()))
    takes_one = first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD)
    if not takes_one or any(name != first.name for name in needed):
        return None
    if declared is not None:
        return BATCH if declared == "batch" else SEQUENTIAL
    return next((form for form in (BATCH, SEQUENTIAL) if form.required == (first.name,)), None)


def _is_needed(parameter: inspect.Parameter) -> bool:
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not variadic


def _wrong_signature(parameters: Parameters, declared: str | None, source: RewardSource) -> str:
    takes = ", ".join(str(parameter) for parameter in parameters.values()) or "nothing"
    forms = [form for form in FORMS if declared is None or form.batch == (declared == "batch")]
    forms.sort(key=lambda form: "response" not in form.required and "responses" not in form.required)  # simplest first
    as_type = f" as a {declared} function" if declared else ""
    return (
        f"{KEY}: {source.function} in {source.path} takes ({takes}), which cannot be called{as_type}. Accepted: "
        + ", ".join(str(form) for form in forms)
        + f". A single parameter of another name is fine when {TYPE_KEY} or REWARD_TYPE in the file says "
        f'"batch" or "sequential"; further parameters need a default or a value in {KWARGS_KEY}.'
    )


def _check_options(
    parameters: Parameters, arguments: tuple[str, ...], options: dict[str, Any], source: RewardSource
) -> None:
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    by_name = [
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and name not in arguments
    ]
    for name in options:
        if name in arguments:
            raise UserError(f"{KWARGS_KEY}.{name}: {source.function} receives {name} from the sample; remove the key")
        if name not in by_name and not open_ended:
            near = difflib.get_close_matches(str(name), by_name, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(by_name) or 'no options'}"
            raise UserError(f"{KWARGS_KEY}.{name}: {source.function} in {source.path} has no parameter {name}; {hint}")
    for name, parameter in parameters.items():
        if _is_needed(parameter) and name not in (*arguments, *options):
            raise UserError(
                f"{KEY}: {source.function} in {source.path} needs {name}, which no sample provides; "
                f"give it a default or a value in {KWARGS_KEY}.{name}"
            )
