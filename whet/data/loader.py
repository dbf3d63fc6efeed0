"""Batches of prompts, in an order that can be taken up again anywhere.

The order of epoch e is a function of (seed, e) alone, so a position is two numbers: the epoch, and how many of its
rows have been handed out. A run that resumes with another batch size goes on at the same row.

A row whose image cannot be read any more when its turn comes costs no step: another row stands in for it in training,
and validation goes on without it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from whet.data.rows import BadRow
from whet.errors import UserError
from whet.types import Media

MOST_STAND_INS = 20  # rows tried in place of one: when as many are bad, it is not about one row


Row = TypeVar("Row")  # what a row becomes: a prompt, or demonstrations
Row_co = TypeVar("Row_co", covariant=True)


class Rows(Protocol[Row_co]):
    """Source of a loader's batches; `take` raises `BadRow` for rows that cannot be read any more."""

    def __len__(self) -> int: ...

    def take(self, indices: Sequence[int]) -> Sequence[Row_co]: ...


class PromptLoader(Generic[Row]):
    """Endless training batches by `next_batch`, or one whole pass by iteration."""

    def __init__(
        self,
        dataset: Rows[Row],
        batch_size: int,
        shuffle: bool,
        seed: int,
        drop_last: bool = True,
        warn: Callable[[str], None] = print,
    ) -> None:
        """`batch_size` -1 means all rows at once; with `drop_last` an epoch's last rows that fill no batch are left."""
        rows = len(dataset)
        if rows == 0:
            raise UserError("The dataset has no rows.")
        if batch_size == -1:
            batch_size = rows
        if batch_size < 1:
            raise UserError(f"A batch needs at least one row; the batch size is {batch_size}.")
        self._dataset = dataset
        if drop_last:
            self.check_size(batch_size)
        self._batch_size = batch_size
        self._shuffle = shuffle
        self._seed = seed
        self._drop_last = drop_last
        self._warn = warn
        self._position = 0
        # Chooses so many rows in place of the next ones in order; position and epoch still count what was handed out.
        self.choose: Callable[[int], list[int]] | None = None
        # Makes fitted images readable for the model, for samples that are read back; None for a text model.
        self.media: Callable[[list[Any]], Media] | None = None
        self._enter(epoch=0)

    def __len__(self) -> int:
        """Rows of the data."""
        return len(self._dataset)

    @property
    def epoch(self) -> int:
        """The pass that the latest batch came from, counted from 0."""
        return self._epoch

    @property
    def steps_per_epoch(self) -> int:
        """Return the number of batches of one pass."""
        full, rest = divmod(len(self._dataset), self._batch_size)
        return full if self._drop_last or rest == 0 else full + 1

    def next_batch(self) -> list[Row]:
        """The next prompts in order; when the epoch has too few left, the first of the next one."""
        return self.prompts(self.next_rows())

    @property
    def batch_size(self) -> int:
        """Rows of a whole batch."""
        return self._batch_size

    def next_rows(self, most: int | None = None) -> list[int]:
        """Return the indices of the next batch's rows, or `most` if that is less; `prompts` reads them."""
        size = self._batch_size if most is None else min(most, self._batch_size)
        needed = size if self._drop_last else 1
        if len(self._order) - self._position < needed:
            self._enter(self._epoch + 1)
        indices = self._order[self._position : self._position + size]
        self._position += len(indices)
        return indices if self.choose is None else self.choose(len(indices))

    def prompts(self, rows: Sequence[int]) -> list[Row]:
        """The prompts of some rows, one for each: where a row cannot be read any more, that of a row near it."""
        return [
            self._stand_in(row, rows) if prompt is None else prompt for row, prompt in zip(rows, self._readable(rows))
        ]

    def resize(self, batch_size: int) -> None:
        """Go on from the same row in batches of another size."""
        self.check_size(batch_size)
        self._batch_size = batch_size

    def check_size(self, batch_size: int) -> None:
        """Refuse batches of more rows than there are."""
        rows = len(self._dataset)
        if rows < batch_size:
            raise UserError(
                f"data.rollout_batch_size={batch_size} is more than the {rows} rows of the training data: "
                f"set it to {rows} or less."
            )

    def __iter__(self) -> Iterator[list[Row]]:
        """One pass over all rows, the last batch as short as it comes; the training position stays where it is."""
        order = self._order_of(epoch=0)
        for start in range(0, len(order), self._batch_size):
            prompts = self._readable(order[start : start + self._batch_size])
            readable = [prompt for prompt in prompts if prompt is not None]
            if readable:
                yield readable

    def _readable(self, rows: Sequence[int]) -> list[Row | None]:
        """The prompts of rows; None, and a warning, for one that cannot be read."""
        try:
            return list(self._dataset.take(rows))
        except BadRow as error:
            if len(rows) == 1:
                self._warn(f"left out: {error}")
                return [None]
            return [prompt for row in rows for prompt in self._readable([row])]

    def _stand_in(self, row: int, batch: Sequence[int]) -> Row:
        """The prompt of the next row that can be read and is not in the batch, if there is another."""
        total = len(self._dataset)
        others = [(row + away) % total for away in range(1, min(total, MOST_STAND_INS + len(batch)))]
        fresh = [each for each in others if each not in set(batch)]
        for other in (fresh + [each for each in others if each not in fresh])[:MOST_STAND_INS]:
            (prompt,) = self._readable([other])
            if prompt is not None:
                return prompt
        raise UserError(
            "The images or videos of too many rows can be read no more; the warnings above say why. Is their folder "
            "still there (data.image_dir)?"
        )

    def state_dict(self) -> dict[str, Any]:
        """The position, and what it is a position in."""
        return {"epoch": self._epoch, "position": self._position, "batch_size": self._batch_size, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was saved; refuses a position in other data or in another order."""
        for name, here in self._identity().items():
            if state[name] != here:
                raise UserError(_other_data(name, state[name], here))
        self._enter(state["epoch"])
        self._position = state["position"]

    def _identity(self) -> dict[str, Any]:
        return {"rows": len(self._dataset), "seed": self._seed, "shuffle": self._shuffle}

    def _enter(self, epoch: int) -> None:
        self._epoch = epoch
        self._position = 0
        self._order = self._order_of(epoch)

    def _order_of(self, epoch: int) -> list[int]:
        order = list(range(len(self._dataset)))
        if self._shuffle:
            # A string seed is hashed with SHA-512, so neighbouring seeds and epochs have unrelated orders.
            random.Random(f"{self._seed}/{epoch}").shuffle(order)
        return order


def _other_data(name: str, saved: Any, here: Any) -> str:
    if name == "rows":
        return (
            f"The checkpoint was made with {saved} rows of training data and there are {here} now, so its place in "
            "them means nothing. Restore data.train_files, data.max_prompt_length, data.format_prompt and the model's "
            "tokenizer as they were, or start a new run from its weights (worker.actor.model.model_path)."
        )
    return (
        f"The checkpoint was made with data.{name}={saved} and the config says {here}, which orders the rows "
        f"differently: some would come twice. Set data.{name}={saved} to resume."
    )
