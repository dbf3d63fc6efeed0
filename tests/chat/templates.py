"""Chat templates of our own, each with what one family does between turns, and a tokenizer with their tokens."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

_ARGUMENTS = "{{ c.function.arguments | tojson }}"
_CALL = '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": ' + _ARGUMENTS + "}\n</tool_call>"


def _chatml(said: str, head: str = "<|im_start|>assistant\n", first: str = "") -> str:
    """Return a template of the ChatML kind, in which results of one round are one user turn."""
    return (
        first + "{%- if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{%- endif %}"
        "{%- set ns = namespace(q=0) %}{%- for m in messages %}{%- if m.role == 'user' %}{% set ns.q = loop.index0 %}"
        "{% endif %}{%- endfor %}"
        "{%- for m in messages %}{%- if m.role == 'tool' %}"
        "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{%- endif %}"
        "{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
        "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{%- endif %}"
        "{%- elif m.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}" + said + "{{ '<|im_end|>\n' }}"
        "{%- else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
        "{%- if add_generation_prompt %}{{ '" + head.replace("\n", "\\n") + "' }}{%- endif %}"
    )


_CALLS = "{%- for c in m.tool_calls or [] %}{{ '\n' if m.content or not loop.first }}" + _CALL + "{%- endfor %}"
_THOUGHT = "{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}"
_SAID = "{{ m.content or '' }}" + _CALLS

TEMPLATES = {
    "merged results": _chatml(_SAID),
    "default system": _chatml(_SAID, first="{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}"),
    "text behind calls": _chatml("{%- for c in m.tool_calls or [] %}" + _CALL + "{%- endfor %}{{ m.content or '' }}"),
    "reasoning kept": _chatml("{%- if m.reasoning_content %}" + _THOUGHT + "{%- endif %}" + _SAID),
    "reasoning dropped": _chatml(
        "{%- if m.reasoning_content and loop.index0 > ns.q %}" + _THOUGHT + "{%- endif %}" + _SAID
    ),
    "reasoning never": _chatml(
        "{{ (m.content or '').split('</think>')[-1].lstrip('\n') }}" + _CALLS, head="<|im_start|>assistant\n<think>\n"
    ),
    "thought opened": _chatml(
        "{{ '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' }}" + _SAID,
        head="<|im_start|>assistant\n<think>\n",
    ),
    "empty thought in the last turn": _chatml(
        "{%- if loop.index0 > ns.q and (loop.last or m.reasoning_content) %}"
        "{{ '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' }}{%- endif %}" + _SAID
    ),
    "results of their own": (
        "{{ '<s>' }}{%- for m in messages %}{{ '<|head|>' + m.role + '<|headed|>\n\n' }}"
        "{{ (m.content or '') | trim }}"
        "{%- for c in m.tool_calls or [] %}"
        "{%- if m.tool_calls | length > 1 %}{{ raise_exception('one call only') }}{%- endif %}"
        '{"name": "{{ c.function.name }}", "parameters": ' + _ARGUMENTS + "}{%- endfor %}{{ '<|eot|>' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{ '<|head|>assistant<|headed|>\n\n' }}{%- endif %}"
    ),
    "the next head ends a turn": (
        "{%- for m in messages %}{%- if m.role == 'assistant' %}{{ '<|assistant|>\n' + (m.content or '') }}"
        + _CALLS
        + "{%- elif m.role == 'tool' %}{%- if messages[loop.index0 - 1].role != 'tool' %}{{ '<|observation|>' }}"
        "{%- endif %}{{ '\n' + m.content }}{%- else %}{{ '<|user|>\n' + m.content }}{%- endif %}{%- endfor %}"
        "{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{%- endif %}"
    ),
    "no head behind results": (
        "{{ '<s>' }}{%- for m in messages %}{%- if m.role == 'user' %}{{ '<|user|>' + m.content + '<|assistant|>' }}"
        "{%- elif m.role == 'tool' %}{{ '<|observation|>' + m.content }}"
        "{%- else %}{{ m.content or '' }}{%- for c in m.tool_calls or [] %}"
        "{{ '[TOOL_CALLS]' + c.function.name + '\n' + c.function.arguments }}{%- endfor %}{{ '</s>' }}{%- endif %}"
        "{%- endfor %}"
    ),
    "tools in the last user turn": (
        "{{ '<s>' }}{%- set ns = namespace(q=0) %}{%- for m in messages %}{%- if m.role == 'user' %}"
        "{% set ns.q = loop.index0 %}{% endif %}{%- endfor %}{%- for m in messages %}{%- if m.role == 'user' %}"
        "{%- if tools and loop.index0 == ns.q %}{{ '[TOOLS]' + tools | tojson }}{%- endif %}"
        "{{ '[INST]' + m.content + '[/INST]' }}{%- elif m.role == 'tool' %}"
        "{%- if m.tool_call_id | length != 9 %}{{ raise_exception('ids have 9 characters') }}{%- endif %}"
        "{{ '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}"
        "{%- else %}{{ m.content or '' }}{%- for c in m.tool_calls or [] %}{{ '[TOOL_CALLS]' }}"
        + _CALL
        + "{%- endfor %}"
        "{{ '</s>' }}{%- endif %}{%- endfor %}"
    ),
    "roles alternate, no tools": (
        "{{ '<s>' }}{%- for m in messages %}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{%- endif %}"
        "{{ '<|head|>' + m.role + '\n' + m.content | trim + '<|eot|>\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{ '<|head|>assistant\n' }}{%- endif %}"
    ),
    "parts only": (
        "{%- for m in messages %}{{ '<|head|>' + m.role + '\n' }}{%- for p in m.content %}{%- if p.type == 'text' %}"
        "{{ p.text }}{%- endif %}{%- endfor %}{{ '<|eot|>\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{ '<|head|>assistant\n' }}{%- endif %}"
    ),
    "today's date": _chatml(_SAID, first="{{ '<s>' + strftime_now('%d %B %Y') + '\n' }}"),
}
SPECIAL = [
    "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|head|>", "<|headed|>", "<|eot|>", "<|user|>", "<|assistant|>",
    "<|observation|>", "[INST]", "[/INST]", "[TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
]  # fmt: skip
ENDS = {"results of their own": "<|eot|>", "roles alternate, no tools": "<|eot|>", "parts only": "<|eot|>"}


def tokenizer_of(name: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes, with special tokens, for a template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [("Ċ", "Ċ"), ("Ġ", "a"), ("o", "l"), ("<", "t"), ("e", "r")]  # merges that reach over boundaries of text
    vocabulary = {piece: i for i, piece in enumerate([*alphabet, *("".join(pair) for pair in pairs)])}
    bpe = Tokenizer(models.BPE(vocabulary, pairs))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in SPECIAL])
    is_chatml = TEMPLATES[name].count("<|im_end|>") > 0
    end = ENDS.get(name, "<|im_end|>" if is_chatml else "<|user|>" if "next head" in name else "</s>")
    made = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=end, bos_token="<s>")
    made.chat_template = TEMPLATES[name]
    return made
