"""The SGLang engine against a stand-in of its HTTP API with a real model behind it."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest
import torch
from patience import PATIENCE, eventually

from whet.errors import UserError
from whet.model.names import folder_weights
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.types import Media, Prompt, Sample, Segment


def test_samples_are_the_learners_with_its_log_probs(engine, server, policy, prompts, ends, full_log_probs) -> None:
    ended: list[int] = []
    params = SamplingParams(n=2, temperature=0.7, max_tokens=16, seed=4)
    samples = engine.generate(prompts, params, progress=ended.append)
    assert [(s.prompt.uid, s.index) for s in samples] == [(p.uid, i) for p in prompts for i in range(2)]
    assert sum(ended) == len(samples)
    assert {s.finish for s in samples} == {"stop", "length"}
    assert {s.version for s in samples} == {3}
    policy.set_attn_implementation("sdpa")
    for sample in samples:
        assert (sample.ids[-1] in ends) == (sample.finish == "stop")
        assert sample.log_probs == pytest.approx(full_log_probs(policy, sample, 0.7), abs=1e-4)
    seeds = [body["sampling_params"]["sampling_seed"] for body in server.bodies("/generate")]
    assert len(set(seeds)) == len(samples)


def test_a_sample_does_not_depend_on_its_batch(engine, prompts) -> None:
    params = SamplingParams(n=2, max_tokens=12, seed=9)
    together = engine.generate(prompts, params, sample_ids=[10 * i for i in range(len(prompts))])
    alone = engine.generate([prompts[3]], params, sample_ids=[30])
    assert [s.ids for s in alone] == [s.ids for s in together[6:8]]
    assert together[6].ids != together[7].ids


def test_greedy_and_stop_strings_end_where_the_native_engine_ends(engine, llama, policy, prompts, ends) -> None:
    native = NativeEngine(policy, llama.tokenizer, frozenset(ends))
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
    engine.load_weights(lambda: folder_weights(policy), 4)
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
    engine.load_weights(lambda: folder_weights(policy), 3)
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
    assert eventually(lambda: server.at_once == len(prompts))
    server.restart()
    server.go_on.set()
    thread.join(20)
    assert "restarted" in str(failed[0])


def test_another_runs_weights_are_refused(engine, server, open_engine, policy, prompts) -> None:
    other = open_engine(server)
    other.load_weights(lambda: folder_weights(policy), 3)  # the same version of another run
    other.close()
    with pytest.raises(UserError, match="somebody else updated it"):
        engine.generate(prompts, SamplingParams(max_tokens=4))


def test_an_engine_without_weights_does_not_sample(server, open_engine, policy, prompts) -> None:
    engine = open_engine(server)
    with pytest.raises(UserError, match="call load_weights first"):
        engine.generate(prompts, SamplingParams(max_tokens=4))
    assert "/generate" not in server.paths()
    engine.close()


def test_an_update_that_failed_leaves_the_engine_unusable(engine, prompts) -> None:
    with pytest.raises(UserError, match=r"did not take the weights.*model_path.*server_folder"):
        engine.load_weights(lambda: iter([("nonsense", torch.zeros(2))]), 4)
    with pytest.raises(UserError, match="call load_weights first"):
        engine.generate(prompts, SamplingParams(max_tokens=4))


def test_memory_is_given_back_and_taken_again(server, open_engine, policy, prompts) -> None:
    engine = open_engine(server, sleeps=True)
    engine.load_weights(lambda: folder_weights(policy), 0)
    for _ in range(2):
        engine.generate(prompts[:1], SamplingParams(max_tokens=2))
        engine.release()
        engine.release()
        assert server.asleep
    engine.load_weights(lambda: folder_weights(policy), 1)
    assert not server.asleep
    engine.release()
    engine.close()
    assert not server.asleep
    assert server.paths().count("/release_memory_occupation") == 3


def test_release_leaves_a_server_of_its_own_alone(engine, server, prompts) -> None:
    engine.generate(prompts[:1], SamplingParams(max_tokens=2))
    engine.release()
    assert "/release_memory_occupation" not in server.paths()


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

    lengths = asyncio.run(asyncio.wait_for(talk(), PATIENCE))
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
    with pytest.raises(UserError, match="row 8: 0 places for images"):
        engine.generate([Prompt("row 8", [5], "", media=Media(images=["a"]))], SamplingParams())
    assert "/generate" not in server.paths()


def test_a_continued_sample_sends_all_of_its_tokens_and_another_seed(engine, server, prompts) -> None:
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    (first,) = engine.generate(prompts[:1], params, [7])
    given = replace(first, segments=[*first.segments, Segment([7, 8], by_model=False)])
    (sample,) = engine.generate([given], params, [7])
    before, after = server.bodies("/generate")
    assert after["input_ids"] == prompts[0].ids + first.ids + [7, 8]
    assert after["sampling_params"]["sampling_seed"] != before["sampling_params"]["sampling_seed"]
    assert [(s.by_model, len(s.ids), s.version) for s in sample.segments] == [(True, 4, 3), (False, 2, 0), (True, 4, 3)]


def test_aborted_samples_come_back_as_they_were_and_a_pause_waits_for_the_others(engine, server, prompts) -> None:
    async def talk() -> list[list[Sample]]:
        server.go_on.clear()
        tasks = [asyncio.create_task(engine.sample(prompts[i], SamplingParams(max_tokens=4), i)) for i in range(3)]
        while server.at_once < 3:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(engine.abort, [1])
        aborted = await tasks[1]
        pausing = asyncio.create_task(asyncio.to_thread(engine.pause().__enter__))
        await asyncio.sleep(0.05)
        assert not pausing.done()
        server.go_on.set()
        await pausing
        return [await tasks[0], aborted, await tasks[2]]

    samples = [sample for (sample,) in asyncio.run(asyncio.wait_for(talk(), PATIENCE))]
    assert [s.finish == "abort" for s in samples] == [False, True, False]
    assert samples[1].ids == []
