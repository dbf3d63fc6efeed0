"""The report of a bench as text."""

from __future__ import annotations

from typing import Any

SHOWN = 20  # rows of a list


def report(found: dict[str, Any]) -> str:
    """Return the lines for people; the JSON has every row."""
    lines = [f"reward     {found['reward']}", f"data       {found['data']}"]
    if "speed" in found:
        lines += [_speed(found["speed"], found["workers"])]
        lines += [f"mean       {found['mean_reward']:.4f} ({found['failed']} of {found['speed']['samples']} failed)"]
    else:
        lines += ["speed      no responses: name a file of them with --responses"]
    if "labels" in found:
        lines += _labels(found["labels"])
    if "against" in found:
        lines += _against(found["against"])
    if found["hacks"]:
        lines += _hacks(found["hacks"])
    return "\n".join(lines)


def _speed(speed: dict[str, Any], workers: int) -> str:
    times = ", ".join(f"{name[:-3]} {value:g} ms" for name, value in speed.items() if name.endswith("_ms"))
    return f"speed      {speed['per_second']:g} samples a second with {workers} workers; a call takes {times}"


def _labels(labels: dict[str, Any]) -> list[str]:
    if not labels["labelled"]:
        return ["labels     none of the rows has one"]
    wrong, missed = labels["false_right"], labels["false_wrong"]
    lines = [
        f"labels     {100 * labels['agreement']:.2f} % of {labels['labelled']} agree; {len(wrong)} wrong are paid, "
        f"{len(missed)} right are not"
    ]
    lines += [f"  paid, labelled wrong      {_place(each)}" for each in wrong[:SHOWN]]
    return lines + [f"  not paid, labelled right  {_place(each)}" for each in missed[:SHOWN]]


def _against(against: dict[str, Any]) -> list[str]:
    lines = [f"against    {against['reward']}: {against['differ']} of {against['compared']} scores differ"]
    for each in against["rows"][:SHOWN]:
        lines.append(f"  {_place(each)}: {each['first']:g} and {each['second']:g}")
    return lines


def _hacks(hacks: list[dict[str, Any]]) -> list[str]:
    paid = [each["hack"] for each in hacks if each["paid"]]
    rows = max(each["rows"] for each in hacks)
    lines = [f"hacks      {len(hacks)} kinds on {rows} rows; paid: {', '.join(paid) or 'none'}"]
    width = max(len(each["hack"]) for each in hacks)
    for each in hacks:
        verdict = "PAID" if each["paid"] else "partly" if each["partly"] else "no"
        detail = f"{each['paid']} of {each['rows']}" if each["paid"] else ""
        lines.append(f"  {each['hack']:<{width}}  {verdict} {detail}".rstrip())
    return lines


def _place(each: dict[str, Any]) -> str:
    return f"{each['row']}, response {each['index']}"
