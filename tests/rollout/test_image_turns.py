"""Turns with images are token-exact, by the check of tools/image_turn_check.py; and the check finds what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from image_turn_check import check

from whet.rollout.conversation import Conversation

_PART = (
    "{%- if m.content is string %}{{ m.content }}{%- else %}{%- for p in m.content %}{%- if p.type == 'image' %}"
    "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{%- else %}{{ p.text }}{%- endif %}{%- endfor %}{%- endif %}"
)
# As Qwen's: results of one round are one user turn.
TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{%- endif %}{%- for m in messages %}"
    "{%- if m.role == 'tool' %}{%- if messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{%- endif %}"
    "{{ '\n<tool_response>\n' }}" + _PART + "{{ '\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{%- endif %}{%- else %}"
    "{{ '<|im_start|>' + m.role + '\n' }}"
    "{%- if m.reasoning_content %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{%- endif %}"
    + _PART
    + "{%- for c in m.tool_calls or [] %}{{ '\n' if m.content or not loop.first }}"
    '{{ \'<tool_call>\n{"name": "\' + c.function.name + \'", "arguments": \' }}{{ c.function.arguments | tojson }}'
    "{{ '}\n</tool_call>' }}{%- endfor %}{{ '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)


def test_random_conversations_with_images() -> None:
    found, problems = check(TEMPLATE, 12)
    assert not problems, problems[:2]
    assert found["not native"] == 0
    assert found["turns"] > 30
    assert found["images"] > 30


def test_conversations_that_the_template_writes_anew_show_all_images_again() -> None:
    counted = "{{- messages | rejectattr('role', 'eq', 'assistant') | list | length ~ ' asked\n' -}}"
    found, problems = check(counted + TEMPLATE, 6)
    assert not problems, problems[:2]
    assert found["split"] == found["turns"] > 12


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda segment: replace(segment, ids=segment.ids[1:]), "ids differ at"),
        (lambda segment: replace(segment, media=None), "differs from the processor's"),
    ],
)
def test_the_check_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch, damage: Any, said: str) -> None:
    append = Conversation.append
    monkeypatch.setattr(Conversation, "append", lambda self, *given: damage(append(self, *given)))
    _, problems = check(TEMPLATE, 6)
    assert problems
    assert all(said in problem for problem in problems)
