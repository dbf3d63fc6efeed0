"""Files and processes of the benchmarks beside peers at large sizes: prompts, packed attention, steps read, ending."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoTokenizer, Qwen2Config

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def test_made_words_are_one_token_each_in_a_qwens_folder(tmp_path: Path) -> None:
    import made_words

    Qwen2Config(vocab_size=20_000).save_pretrained(tmp_path)
    made_words.write_tokenizer(tmp_path, 20_000)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    known = made_words.words(20_000)
    assert len(set(known)) == len(known) == 20_000 - made_words.FIRST
    assert tokenizer("".join(known))["input_ids"] == list(range(made_words.FIRST, 20_000))
    messages = [{"role": "user", "content": known[7] + known[-1]}]
    spelt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert tokenizer(spelt)["input_ids"] == [made_words.FIRST + 7, 19_999]
    assert tokenizer.encode("\n") == [2]


def test_attention_stays_within_the_samples_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.nn.attention.varlen as varlen
    import verl_plugins

    def varlen_attn(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        offsets: Tensor,
        _: Tensor,
        longest: int,
        __: int,
        *,
        scale: float,
        **keys: object,
    ) -> Tensor:
        assert keys == {"window_size": (-1, 0)}
        assert q.shape == k.shape == v.shape
        samples = zip(*(x.transpose(0, 1).split(offsets.diff().tolist(), 1) for x in (q, k, v)), strict=True)
        done = [scaled_dot_product_attention(*sample, is_causal=True, scale=scale) for sample in samples]
        assert longest == max(each.shape[1] for each in done)
        return torch.cat(done, 1).transpose(0, 1)

    monkeypatch.setattr(varlen, "varlen_attn", varlen_attn)
    lengths = [5, 1, 3]
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    torch.manual_seed(0)
    query, key, value = torch.randn(1, 4, 9, 8), torch.randn(1, 2, 9, 8), torch.randn(1, 2, 9, 8)
    got, _ = verl_plugins.attend(torch.nn.Module(), query, key, value, None, positions, scaling=0.3)
    row = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))
    seen = (row[:, None] == row) & torch.ones(9, 9, dtype=torch.bool).tril()
    want = scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=0.3, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(got, want)


def test_steps_are_read_while_a_line_is_being_written(tmp_path: Path) -> None:
    import gpu_large_verl

    assert gpu_large_verl.read_steps(tmp_path, 512) == []
    data = {
        "timing_s/step": 60.0,
        "timing_s/gen": 12.0,
        "response_length/mean": 320.5,
        "response_length/clip_ratio": 0.375,
        "perf/total_num_tokens": 241_224,
    }
    line = json.dumps({"step": 1, "data": data})
    (tmp_path / "steps.jsonl").write_text(f"{line}\n{line[:30]}")
    (step,) = gpu_large_verl.read_steps(tmp_path, 512)
    assert (step["seconds"], step["gen"], step["tokens"], step["update_actor"]) == (60.0, 12.0, 164_096, None)


def test_a_program_ends_with_what_left_its_session() -> None:
    # The child starts a process in a session of its own and loses it, as Ray does with its daemons.
    lost = "import time; time.sleep(60)"
    child = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {lost!r}], start_new_session=True)"
    program = f"""
import subprocess, sys, time, psutil
from process_tree import adopt_orphans, end_all
adopt_orphans()
program = subprocess.Popen([sys.executable, "-c", "import subprocess, sys, time; "
    "subprocess.run([sys.executable, '-c', " + repr({child!r}) + "]); time.sleep(60)"])
while len(psutil.Process().children(recursive=True)) < 2 or not [
    p for p in psutil.Process().children() if p.pid != program.pid
]:
    time.sleep(0.01)
left = psutil.Process().children(recursive=True)
end_all(program)
print(sum(p.is_running() for p in left), len(left))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(BENCH)}, capture_output=True, text=True, timeout=50
    )
    assert done.stdout.split() == ["0", "2"], done.stderr
