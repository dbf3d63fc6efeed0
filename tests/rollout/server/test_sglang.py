"""The SGLang engine against a stand-in of its HTTP API with a real model behind it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rollout.server.stand_in import SGLangStandIn
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from whet.errors import UserError
from whet.model import attention
from whet.model.names import folder_weights
from whet.rollout.engine import SamplingParams
from whet.rollout.server import Client, SGLangEngine, check_server
from whet.types import Media, Prompt

ENDS = tuple(range(16, 320, 24))
SIZES = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.fixture
def server(llama) -> Iterator[SGLangStandIn]:
    stand_in = SGLangStandIn(llama.model(), llama.tokenizer)
    yield stand_in
    stand_in.close()


@pytest.fixture
def policy(llama) -> PreTrainedModel:
    """The learner's weights, which are not those that the server was started with."""
    model = llama.model()
    torch.manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return model


@pytest.fixture
def engine(server, llama, policy, tmp_path) -> Iterator[SGLangEngine]:
    made = _engine(server, llama, policy, folder=tmp_path)
    made.load(lambda: folder_weights(policy), 3)
    yield made
    made.close()


def _engine(server, llama, policy, token: str | None = None, timeout: float = 20.0, **options) -> SGLangEngine:
    client = Client(server.address, token, timeout)
    return SGLangEngine(client, llama.tokenizer, frozenset(ENDS), policy.config, **options)


def test_samples_are_the_learners_with_its_log_probs(engine, server, policy, prompts, full_log_probs) -> None:
    ended: list[int] = []
    params = SamplingParams(n=2, temperature=0.7, max_tokens=16, seed=4)
    samples = engine.generate(prompts, params, progress=ended.append)
    assert [(s.prompt.uid, s.index) for s in samples] == [(p.uid, i) for p in prompts for i in range(2)]
    assert sum(ended) == len(samples)
    assert {s.finish for s in samples} == {"stop", "length"}
    assert {s.version for s in samples} == {3}
    policy.set_attn_implementation("sdpa")
    for sample in samples:
        assert (sample.ids[-1] in ENDS) == (sample.finish == "stop")
        assert sample.log_probs == pytest.approx(full_log_probs(policy, sample, 0.7), abs=1e-4)
    seeds = [body["sampling_params"]["sampling_seed"] for body in server.bodies("/generate")]
    assert len(set(seeds)) == len(samples)


def test_a_sample_does_not_depend_on_its_batch(engine, prompts) -> None:
    params = SamplingParams(n=2, max_tokens=12, seed=9)
    together = engine.generate(prompts, params, sample_ids=[10 * i for i in range(len(prompts))])
    alone = engine.generate([prompts[3]], params, sample_ids=[30])
    assert [s.ids for s in alone] == [s.ids for s in together[6:8]]
    assert together[6].ids != together[7].ids


def test_greedy_and_stop_strings_end_where_the_native_engine_ends(engine, llama, policy, prompts) -> None:
    from whet.rollout.native import NativeEngine

    native = NativeEngine(policy, llama.tokenizer, frozenset(ENDS))
    free = native.generate(prompts, SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True))
    stops = tuple(llama.tokenizer.decode(s.ids)[8:10] for s in free[:3])
    for params in (
        SamplingParams(temperature=0.0, max_tokens=20),
        SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True, stop=stops),
    ):
        expected = native.generate(prompts, params)
        assert "stop" in {s.finish for s in expected}
        assert [(s.ids, s.finish) for s in engine.generate(prompts, params)] == [(s.ids, s.finish) for s in expected]


def test_new_weights_change_what_is_written_and_leave_no_files(
    engine, server, llama, policy, prompts, tmp_path
) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=20)
    before = [s.ids for s in engine.generate(prompts, params)]
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.5)
    engine.load(lambda: folder_weights(policy), 4)
    after = engine.generate(prompts, params)
    assert [s.ids for s in after] != before
    assert {s.version for s in after} == {4}
    for name, tensor in server.model.state_dict().items():
        assert torch.equal(tensor, policy.state_dict()[name])
    (own,) = tmp_path.iterdir()
    assert [folder.name for folder in own.iterdir()] == ["version-4"]
    engine.close()
    assert not list(tmp_path.iterdir())


def test_a_server_that_restarted_is_refused_until_it_has_the_weights(engine, server, policy, prompts) -> None:
    params = SamplingParams(max_tokens=4)
    engine.generate(prompts, params)
    server.restart()
    with pytest.raises(UserError, match=r"server_address=.* 'default' instead of 'whet-.*-3'.*restarted"):
        engine.generate(prompts, params)
    engine.load(lambda: folder_weights(policy), 3)
    engine.generate(prompts, params)


def test_a_restart_between_two_answers_is_noticed_too(engine, server, prompts) -> None:
    server.go_on.clear()
    failed: list[BaseException] = []

    def call() -> None:
        try:
            engine.generate(prompts, SamplingParams(max_tokens=4))
        except UserError as error:
            failed.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    _until(lambda: server.at_once == len(prompts))
    server.restart()
    server.go_on.set()
    thread.join(20)
    assert "restarted" in str(failed[0])


def test_another_runs_weights_are_refused(engine, server, llama, policy, prompts) -> None:
    other = _engine(server, llama, policy)
    other.load(lambda: folder_weights(policy), 3)  # the same version of another run
    other.close()
    with pytest.raises(UserError, match="somebody else updated it"):
        engine.generate(prompts, SamplingParams(max_tokens=4))


def test_an_engine_without_weights_does_not_sample(server, llama, policy, prompts) -> None:
    engine = _engine(server, llama, policy)
    with pytest.raises(UserError, match="call load first"):
        engine.generate(prompts, SamplingParams(max_tokens=4))
    assert "/generate" not in server.paths()
    engine.close()


def test_an_update_that_failed_leaves_the_engine_unusable(engine, prompts) -> None:
    with pytest.raises(UserError, match=r"did not take the weights.*model_path.*server_folder"):
        engine.load(lambda: iter([("nonsense", torch.zeros(2))]), 4)
    with pytest.raises(UserError, match="call load first"):
        engine.generate(prompts, SamplingParams(max_tokens=4))


def test_memory_is_given_back_and_taken_again(server, llama, policy, prompts) -> None:
    engine = _engine(server, llama, policy, sleeps=True)
    engine.load(lambda: folder_weights(policy), 0)
    for _ in range(2):
        engine.generate(prompts[:1], SamplingParams(max_tokens=2))
        engine.release()
        engine.release()
        assert server.asleep
    engine.load(lambda: folder_weights(policy), 1)
    assert not server.asleep
    engine.release()
    engine.close()
    assert not server.asleep
    assert server.paths().count("/release_memory_occupation") == 3


def test_release_leaves_a_server_of_its_own_alone(engine, server, prompts) -> None:
    engine.generate(prompts[:1], SamplingParams(max_tokens=2))
    engine.release()
    assert "/release_memory_occupation" not in server.paths()


def test_requests_at_once_are_bounded(server, llama, policy, prompts) -> None:
    engine = _engine(server, llama, policy, max_num_seqs=3)
    engine.load(lambda: folder_weights(policy), 0)
    server.go_on.clear()
    threading.Timer(0.3, server.go_on.set).start()
    engine.generate(prompts, SamplingParams(n=2, max_tokens=2))
    assert server.most_at_once == 3
    engine.close()


def test_sample_joins_and_a_cancelled_one_is_aborted(engine, server, prompts) -> None:
    async def talk() -> list[int]:
        server.go_on.clear()
        leaving = asyncio.create_task(engine.sample(prompts[0], SamplingParams(max_tokens=4), 1))
        staying = asyncio.create_task(engine.sample(prompts[1], SamplingParams(n=2, max_tokens=4), 2))
        while server.at_once < 3:
            await asyncio.sleep(0.01)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        while "/abort_request" not in server.paths():
            await asyncio.sleep(0.01)
        server.go_on.set()
        return [len(s.ids) for s in await staying]

    lengths = asyncio.run(asyncio.wait_for(talk(), 20))
    assert len(lengths) == 2
    (aborted,) = server.bodies("/abort_request")
    (left,) = [body for body in server.bodies("/generate") if body["rid"] == aborted["rid"]]
    assert left["input_ids"] == prompts[0].ids


def test_one_bad_request_of_sample_is_one_sentence(engine) -> None:
    with pytest.raises(UserError, match=r"/generate answered 400: .*vocab size"):
        asyncio.run(engine.sample(Prompt("bad", [100_000], ""), SamplingParams(n=2, max_tokens=4)))


def test_prompts_that_cannot_be_sent_are_refused_here(engine, server) -> None:
    with pytest.raises(UserError, match="row 7: a prompt is one or more token ids"):
        engine.generate([Prompt("row 7", [], "")], SamplingParams())
    with pytest.raises(UserError, match="row 8: images"):
        engine.generate([Prompt("row 8", [5], "", media=Media(images=["a"]))], SamplingParams())
    assert "/generate" not in server.paths()


def test_a_broken_connection_is_tried_again_and_a_refusal_is_not(engine, server, prompts) -> None:
    expected = engine.generate(prompts[:1], SamplingParams(max_tokens=4))
    server.calls.clear()
    server.broken_answers = 1
    again = engine.generate(prompts[:1], SamplingParams(max_tokens=4))
    assert [s.ids for s in again] == [s.ids for s in expected]
    assert server.paths().count("/model_info") == 2
    server.calls.clear()
    with pytest.raises(UserError, match="answered 400"):
        engine.generate([Prompt("bad", [100_000], "")], SamplingParams(max_tokens=4))
    assert server.paths().count("/generate") == 1


def test_a_server_that_is_gone_or_stuck_is_named(server, llama, policy, prompts) -> None:
    engine = _engine(server, llama, policy, timeout=1.0)
    engine.load(lambda: folder_weights(policy), 0)
    server.go_on.clear()
    with pytest.raises(UserError, match=r"no answer to /generate in 1 seconds.*server_timeout"):
        engine.generate(prompts[:2], SamplingParams(max_tokens=4))
    server.close()
    engine.client.timeout = 20.0
    with pytest.raises(UserError, match=r"worker.rollout.server_address=http://127.*cannot be reached"):
        engine.generate(prompts[:2], SamplingParams(max_tokens=4))
    engine.close()


def test_the_server_is_looked_at_before_work(server, llama) -> None:
    check_server(server.address, None, "sglang")
    with pytest.raises(UserError, match="/v1/models answered 404"):
        check_server(server.address, None, "openai")
    server.token = "secret"
    with pytest.raises(UserError, match="WHET_SERVER_TOKEN") as caught:
        check_server(server.address, "wrong", "sglang")
    assert "wrong" not in str(caught.value)
    check_server(server.address, "secret", "sglang")
    with pytest.raises(UserError, match="http://host:port"):
        check_server("localhost:30000", None, "sglang")


def test_weights_cross_in_buckets_and_in_the_dtype_that_was_asked_for(policy, tmp_path) -> None:
    from safetensors.torch import load_file

    from whet.rollout.server.weight_files import WeightFiles

    files = WeightFiles(tmp_path, policy.config, torch.bfloat16)
    folder = files.write(lambda: folder_weights(policy), 2, bucket_bytes=20_000)
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 2
    read = {name: tensor for shard in shards for name, tensor in load_file(shard).items()}
    assert read.keys() == dict(folder_weights(policy)).keys()
    for name, tensor in folder_weights(policy):
        assert torch.equal(read[name], tensor.bfloat16())
    files.close()
    with pytest.raises(UserError, match=r"worker\.rollout\.server_folder"):
        WeightFiles(Path("/proc/nowhere"), policy.config).write(lambda: folder_weights(policy), 0)


def test_tied_weights_cross_once(llama, prompts) -> None:
    torch.manual_seed(2)
    first, policy = (AutoModelForCausalLM.from_config(LlamaConfig(**SIZES, tie_word_embeddings=True)) for _ in range(2))
    server = SGLangStandIn(first.eval(), llama.tokenizer)
    first.set_attn_implementation(attention.NAME)
    engine = _engine(server, llama, policy)
    engine.load(lambda: folder_weights(policy), 1)
    assert len(engine.generate(prompts[:1], SamplingParams(max_tokens=4))) == 1
    assert torch.equal(server.model.lm_head.weight, policy.model.embed_tokens.weight)
    engine.close()
    server.close()


def _until(true) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)
