"""Print what a command of another system is here: settings, differences, keys without effect, and problems."""

from __future__ import annotations

from collections.abc import Iterator

from whet.compat.systems import SYSTEMS
from whet.compat.translation import Remark, Setting, Translation
from whet.config.secrets import masked
from whet.config.values import show

_MOST_IDLE = 12  # keys of one sentence that are listed


def report_lines(made: Translation, full: bool = True) -> Iterator[str]:
    """Yield the report; without `full` only what a run should show: defaults, differences and keys without effect."""
    title = SYSTEMS[made.system].title
    if full:
        yield from _block(
            f"understood, as `whet {made.job}`", map(_setting, filter(lambda s: s.given, made.settings.values()))
        )
    defaults = [setting for setting in made.settings.values() if not setting.given]
    yield from _block(f"{title}'s default where whet's differs", map(_setting, defaults))
    yield from remark_lines(made)


def remark_lines(made: Translation) -> Iterator[str]:
    """Yield what became of keys that set nothing here."""
    title = SYSTEMS[made.system].title
    yield from _block("no effect here", _idle(made.no_effect))
    yield from _block("different here", made.notes)
    yield from _block("not on this machine", made.missing)
    yield from _block(f"refused by {title} too", made.original)
    yield from _block("not here", map(str, made.refused))


def _block(title: str, lines: Iterator[str] | map[str] | list[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield f"{title}:"
        yield from (f"  {line}" for line in found)


def _setting(setting: Setting) -> str:
    value = show(masked(setting.value, setting.key))
    origin = ", ".join(source for source in setting.sources if source != setting.key)
    return f"{setting.key}={value}" + (f"  ({origin})" if origin else "")


def _idle(remarks: list[Remark]) -> Iterator[str]:
    """Yield each sentence once, with the keys it is about."""
    by_sentence: dict[str, list[str]] = {}
    for remark in remarks:
        by_sentence.setdefault(remark.says, []).append(remark.key)
    for says, keys in by_sentence.items():
        unique = list(dict.fromkeys(keys))
        more = f" and {len(unique) - _MOST_IDLE} more" if len(unique) > _MOST_IDLE else ""
        yield f"{', '.join(unique[:_MOST_IDLE])}{more}: {says}"
