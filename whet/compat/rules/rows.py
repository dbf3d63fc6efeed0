"""Rules of data: how many rows are read, and what the chat template is told."""

from __future__ import annotations

from whet.compat.rules.rule import rule
from whet.compat.translation import Here, There

_ARGS = "data.apply_chat_template_kwargs"


@rule("rows")
def _rows(there: There, here: Here) -> None:
    """At most so many rows; -1 is all of them."""
    for name, ours in (("train_max_samples", "data.max_train_rows"), ("val_max_samples", "data.max_val_rows")):
        if (count := there.count(f"data.{name}", -1)) > 0:
            here.set(ours, count, f"data.{name}")


@rule("chat_template_args")
def _chat_template_args(there: There, here: Here) -> None:
    """Variables of the chat template, given as a mapping or one by one."""
    given = {name: value for name, value in there.below(_ARGS).items() if "." not in name}
    whole = there.get(_ARGS)
    made = (whole if isinstance(whole, dict) else {}) | given
    if made:
        here.set("data.chat_template_args", made, _ARGS, *(f"{_ARGS}.{name}" for name in given))


@rule("rejection")
def _rejection(there: There, here: Here) -> None:
    """Groups without differences are dropped, from a batch that is larger by a factor."""
    key = "trainer.rejection_sample"
    if not there.on(key):
        here.idle(f"{key}_multiplier", "counts only with rejection_sample=True")
        return
    here.set(key, True, key)
    if (factor := there.count(f"{key}_multiplier", 1)) != 1:
        here.set(f"{key}_multiplier", factor, f"{key}_multiplier")
