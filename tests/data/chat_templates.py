"""Chat templates of the kinds there are, and a tokenizer that merges wherever it can."""

from __future__ import annotations

from transformers import PreTrainedTokenizerFast

from whet.assets.tokenizer import learn_tokens

SPECIAL = ["<|pad|>", "<|eos|>", "<|start|>", "<|stop|>", "<|bos|>", "<think>", "</think>"]

PLAIN = (
    "{%- for m in messages -%}{{ '<|start|>' + m.role + '\n' + m.content + '<|stop|>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|start|>assistant\n' }}{%- endif -%}"
)
MARKED = (
    "{%- for m in messages -%}{%- if m.role == 'assistant' -%}{{ '<|start|>assistant\n' }}"
    "{%- generation -%}{{ m.content + '<|stop|>' }}{%- endgeneration -%}{{ '\n' }}"
    "{%- else -%}{{ '<|start|>' + m.role + '\n' + m.content + '<|stop|>\n' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|start|>assistant\n' }}{%- endif -%}"
)
# With a head before the first turn, contents trimmed, and nothing behind the end of a turn.
HEADED = (
    "{{ '<|bos|>' }}{%- for m in messages -%}"
    "{{ '<|start|>' + m.role + '<|start|>\n\n' + m.content | trim + '<|stop|>' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|start|>assistant<|start|>\n\n' }}{%- endif -%}"
)
# Thoughts stay until the user speaks again; the latest turn has a place for them even when it has none.
THINKING = (
    "{%- set ns = namespace(asked=0) -%}"
    "{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.asked = loop.index0 -%}{%- endif -%}{%- endfor -%}"
    "{%- for m in messages -%}{%- if m.role == 'assistant' -%}"
    "{%- set said = m.content.split('</think>')[-1].lstrip('\n') -%}"
    "{%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\n')"
    " if '</think>' in m.content else '' -%}"
    "{{ '<|start|>assistant\n' }}"
    "{%- if loop.index0 > ns.asked and (loop.last or thought) -%}"
    "{{ '<think>\n' + thought + '\n</think>\n\n' }}{%- endif -%}{{ said + '<|stop|>\n' }}"
    "{%- else -%}{{ '<|start|>' + m.role + '\n' + m.content + '<|stop|>\n' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|start|>assistant\n' }}{%- endif -%}"
)
# The model begins inside of its thoughts, which no turn that is written down has.
OPENED = (
    "{%- for m in messages -%}"
    "{{ '<|start|>' + m.role + '\n' + m.content.split('</think>')[-1] + '<|stop|>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|start|>assistant\n<think>\n' }}{%- endif -%}"
)
TOOLS = (
    "{%- if tools -%}{{ '<|start|>system\n' }}{%- for t in tools -%}{{ t | tojson + '\n' }}{%- endfor -%}"
    "{{ '<|stop|>\n' }}{%- endif -%}"
    "{%- for m in messages -%}{{ '<|start|>' + m.role + '\n' }}"
    "{%- if m.content -%}{{ m.content }}{%- endif -%}"
    "{%- for c in m.tool_calls or [] -%}{%- set f = c.function or c -%}"
    "{{ '<call>{\"name\": \"' + f.name + '\", \"arguments\": ' + f.arguments | tojson + '}</call>' }}{%- endfor -%}"
    "{{ '<|stop|>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|start|>assistant\n' }}{%- endif -%}"
)
TOOLS_OF_TEXT = TOOLS.replace("f.arguments | tojson +", "f.arguments +")

WORDS = "What is two plus three? It is five.\n\nAnd\n\n\n more: user assistant system tool\n\n  Good day, I say. "


def merging_tokenizer(template: str | None) -> PreTrainedTokenizerFast:
    """Byte-level BPE that has seen a few words and many line breaks, with the special tokens of the templates."""
    return PreTrainedTokenizerFast(
        tokenizer_object=learn_tokens([WORDS * 3], 400, SPECIAL),
        pad_token="<|pad|>",
        eos_token="<|eos|>",
        bos_token="<|bos|>",
        additional_special_tokens=["<|start|>", "<|stop|>", "<think>", "</think>"],
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )
