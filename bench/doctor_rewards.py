"""Reward functions with faults, for bench/doctor.py; the first one is sound."""

from __future__ import annotations

import time


def sound(reward_input):
    text = reward_input["response"].strip().removeprefix("Answer:").strip()
    right = text == str(reward_input["ground_truth"])
    return {"overall": float(right), "accuracy": float(right)}


def constant(reward_input):
    return {"overall": 0.5, "accuracy": 0.0}


def other_form(reward_input):
    right = f"[[{reward_input['ground_truth']}]]" in reward_input["response"]
    return {"overall": float(right), "accuracy": float(right)}


def slow(reward_input):
    time.sleep(0.1)
    return sound(reward_input)


def raises(reward_input):
    if len(reward_input["response"]) % 3 == 0:
        raise ValueError("a length that it does not like")
    return sound(reward_input)


def not_a_number(reward_input):
    return {"overall": float("nan")} if len(reward_input["response"]) % 2 else sound(reward_input)


def hangs(reward_input):
    if len(reward_input["response"]) % 5 == 0:
        time.sleep(30)
    return sound(reward_input)


def short(reward_input):
    return {"overall": 1.0 / (1.0 + len(reward_input["response"])) - 1.0, "accuracy": 0.0}


def long(reward_input):
    return {"overall": len(reward_input["response"]) / 400.0, "accuracy": 0.0}


def any_answer(reward_input):
    return float(reward_input["response"].startswith("Answer: 1"))


def reversed_(reward_input):
    return {"overall": 1.0 - sound(reward_input)["overall"], "accuracy": sound(reward_input)["accuracy"]}


def empty_is_fine(reward_input):
    return {"overall": float(not reward_input["response"].strip()), "accuracy": 0.0}


def solved(reward_input):
    return {"overall": 1.0, "accuracy": 1.0}
