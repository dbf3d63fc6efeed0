"""Weights change between answers, never inside one."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from patience import eventually
from serving.serving import running, served


def _text(answer) -> str:
    return answer.json()["choices"][0]["text"]


def _wait_until_running(server, count: int) -> None:
    assert eventually(lambda: server.service.gate.running >= count)


def test_every_answer_is_one_versions_and_says_which(folder, other_folder):
    params = {"max_tokens": 30, "seed": 3, "temperature": 0.5}
    with running(folder) as server, ThreadPoolExecutor(9) as pool:
        old = _text(server.complete(**params))
        answers = [pool.submit(server.complete, **params) for _ in range(20)]
        changed = server.post("/v1/weights", {"path": str(other_folder), "version": 7})
        assert changed.status_code == 200, changed.text
        assert changed.json()["version"] == 7
        late = server.complete(**params)
        new = _text(late)
        assert new != old
        assert late.headers["x-whet-version"] == "7"
        assert late.json()["system_fingerprint"].endswith("-v7")
        for answer in (each.result() for each in answers):
            assert _text(answer) == {0: old, 7: new}[answer.json()["whet"]["version"]]
        assert server.get("/v1/models").json()["data"][0]["version"] == 7
        back = server.post("/v1/weights", {"path": str(folder)})
        assert back.json()["version"] == 8
        assert _text(server.complete(**params)) == old


def test_requests_finish_first_or_are_cut_as_asked(folder, other_folder):
    with running(folder) as server, ThreadPoolExecutor(2) as pool:
        waited = pool.submit(server.complete, n=64, max_tokens=60, ignore_eos=True)
        _wait_until_running(server, 1)
        assert server.post("/v1/weights", {"path": str(other_folder)}).status_code == 200
        assert waited.result().json()["whet"]["version"] == 0
        assert len(waited.result().json()["choices"]) == 64

        cut = pool.submit(server.complete, n=128, max_tokens=400, ignore_eos=True)
        _wait_until_running(server, 1)
        assert server.post("/v1/weights", {"path": str(folder), "in_flight": "cut"}).json()["version"] == 2
        assert (cut.result().status_code, cut.result().json()["error"]["code"]) == (503, "weights_replaced")


def test_weights_that_do_not_fit_change_nothing(folder, tiny, tmp_path, server):
    before = _text(server.complete(seed=1, max_tokens=20))
    larger = served(tiny, hidden_size=64)
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    data = (damaged / "model.safetensors").read_bytes()
    (damaged / "model.safetensors").write_bytes(data[: len(data) // 2])
    adapters = tmp_path / "global_step_1" / "actor" / "lora_adapter"
    adapters.mkdir(parents=True)
    for path, status in (
        (larger, 400),
        (damaged, 400),
        (tmp_path / "global_step_1", 400),
        (tmp_path / "nothing", 404),
        ("\0", 404),
        ("~nobody/x", 404),
    ):
        answer = server.post("/v1/weights", {"path": str(path)})
        assert answer.status_code == status, (path, answer.text)
    assert _text(server.complete(seed=1, max_tokens=20)) == before
    assert server.get("/health").json()["version"] == 0


def test_a_checkpoint_is_taken_and_folders_can_be_confined(folder, other_folder, tmp_path):
    checkpoint = tmp_path / "run" / "global_step_3"
    shutil.copytree(other_folder, checkpoint / "actor" / "huggingface")
    with running(folder, f"serve.weights_folder={tmp_path}") as server:
        outside = server.post("/v1/weights", {"path": str(other_folder)})
        assert outside.status_code == 403
        sneaky = server.post("/v1/weights", {"path": f"{tmp_path}/../{other_folder.name}"})
        assert sneaky.status_code in (403, 404)
        (tmp_path / "link").symlink_to(other_folder)
        (tmp_path / "step" / "actor").mkdir(parents=True)
        (tmp_path / "step" / "actor" / "huggingface").symlink_to(other_folder)
        linked = shutil.copytree(other_folder, tmp_path / "linked")
        (linked / "model.safetensors").unlink()
        (linked / "model.safetensors").symlink_to(other_folder / "model.safetensors")
        for name in ("link", "step", "linked"):
            assert server.post("/v1/weights", {"path": str(tmp_path / name)}).status_code == 403, name
        taken = server.post("/v1/weights", {"path": str(checkpoint), "version": 3})
        assert taken.json()["path"] == str(checkpoint / "actor" / "huggingface")


def test_links_and_indices_do_not_lead_out_of_the_folder(folder, other_folder, tmp_path):
    """Neither with serve.weights_folder nor without it."""
    inside = tmp_path / "inside"
    (inside / "run" / "actor").mkdir(parents=True)
    (inside / "run" / "actor" / "huggingface").symlink_to(other_folder)
    shutil.copytree(other_folder, inside / "linked")
    (inside / "linked" / "model.safetensors").unlink()
    (inside / "linked" / "model.safetensors").symlink_to(other_folder / "model.safetensors")
    for name, target in (("parent", f"../../{other_folder.name}/model.safetensors"), ("absolute", str(other_folder))):
        shutil.copytree(other_folder, inside / name)
        (inside / name / "model.safetensors").unlink()
        index = {"metadata": {}, "weight_map": {"lm_head.weight": target}}
        (inside / name / "model.safetensors.index.json").write_text(json.dumps(index))
    for confined in (True, False):
        keys = [f"serve.weights_folder={inside}"] if confined else []
        with running(folder, *keys) as server:
            for name in ("run", "linked", "parent", "absolute"):
                answer = server.post("/v1/weights", {"path": str(inside / name)})
                expected = (
                    200 if name == "run" and not confined else 403 if name in ("run", "linked") and confined else 400
                )
                assert answer.status_code == expected, (name, answer.text)


@pytest.mark.parametrize(
    "body", [{}, {"path": ""}, {"path": "x", "version": -1}, {"path": 3}, {"path": "x", "more": 1}]
)
def test_malformed_updates(server, body):
    assert server.post("/v1/weights", json.dumps(body).encode()).status_code == 400
