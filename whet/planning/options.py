"""Options of `whet plan` and `whet plan simulate`: words beginning with --, apart from the keys of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whet.config.options import read_options
from whet.config.texts import printable
from whet.errors import UserError

if TYPE_CHECKING:
    from whet.config import Config

_SAMPLES = 8  # of a prompt, where only a model is named


@dataclass
class Options:
    """Arguments of a command, by kind."""

    command: str
    values: dict[str, str] = field(default_factory=dict)
    switches: set[str] = field(default_factory=set)
    rest: list[str] = field(default_factory=list)  # a model or a file, and keys

    def number(self, name: str, least: float, most: float = float("inf")) -> float | None:
        """Return the value of an option as a number, None where it is not given."""
        given = self.values.get(name)
        return None if given is None else self._number(name, given, least, most)

    def whole(self, name: str, least: int, most: int) -> int | None:
        """Return the value of an option as a whole number."""
        value = self.number(name, least, most)
        if value is not None and value != int(value):
            raise UserError(f"{name} {printable(self.values[name])}: must be a whole number")
        return None if value is None else int(value)

    def numbers(self, name: str, counts: Sequence[int], least: float) -> list[float] | None:
        """Return the value of an option as numbers with commas between; `counts` says how many there may be."""
        given = self.values.get(name)
        if given is None:
            return None
        found = [self._number(name, part, least, float("inf")) for part in given.split(",")]
        if counts and len(found) not in counts:
            wanted = " or ".join(map(str, counts))
            raise UserError(f"{name} {printable(given)}: give {wanted} numbers with commas between")
        return found

    @staticmethod
    def _number(name: str, given: str, least: float, most: float) -> float:
        try:
            value = float(given)
        except ValueError:
            value = float("nan")
        if not least <= value <= most or value == float("inf"):
            limit = f"of at least {least:g}" if most == float("inf") else f"from {least:g} to {most:g}"
            raise UserError(f"{name} {printable(given)}: must be a number {limit}")
        return value

    def config(self) -> Config:
        """Return the config of the run that is planned, checked like one of `whet train` but for data and rewards."""
        from whet.config.jobs import problems_of
        from whet.config.loading.load import load
        from whet.config.problems import raise_problems
        from whet.planning.advice import PLAN_CHECKS
        from whet.planning.planned import MODEL

        arguments = list(self.rest)
        if "=" not in arguments[0] and not arguments[0].endswith((".yaml", ".yml")):
            arguments[0] = f"{MODEL}={arguments[0]}"
            if not any(argument.startswith(("config=", "worker.rollout.n=")) for argument in arguments):
                arguments.append(f"worker.rollout.n={_SAMPLES}")
        for option, key in (("--gpus", "trainer.n_gpus_per_node"), ("--nodes", "trainer.nnodes")):
            count = self.whole(option, 1, 100_000)
            if count is not None:
                arguments.append(f"{key}={count}")
        loaded = load(arguments)
        raise_problems(problems_of(loaded, PLAN_CHECKS, lambda config: config))
        return loaded.config


def parse(command: str, arguments: Sequence[str], values: Sequence[str], switches: Sequence[str]) -> Options:
    """Divide arguments into options, switches and the rest; a `UserError` for an option that does not exist."""
    read = read_options(command.removeprefix("whet "), arguments, values, switches)
    if not read.words and not read.switches & {"--models", "--measured"}:
        raise UserError(f"{command} takes a model or a config: {command} Qwen2.5-7B --gpus 8")
    return Options(command, {name: given[-1] for name, given in read.values.items()}, read.switches, read.words)
