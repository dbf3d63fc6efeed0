"""What happens between whet and a server: many requests, broken connections, silence, refusals."""

from __future__ import annotations

import threading

import pytest

from whet.errors import UserError
from whet.model.names import folder_weights
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.server import client
from whet.rollout.engines.server.check import check_server
from whet.rollout.engines.sglang.engine import reports_version
from whet.types import Prompt


def test_requests_at_once_are_bounded(server, open_engine, policy, prompts) -> None:
    engine = open_engine(server, max_num_seqs=3)
    engine.load_weights(lambda: folder_weights(policy), 0)
    server.go_on.clear()
    threading.Timer(0.3, server.go_on.set).start()
    engine.generate(prompts, SamplingParams(n=2, max_tokens=2))
    assert server.most_at_once == 3
    engine.close()


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


def test_a_server_that_is_gone_or_stuck_is_named(server, open_engine, policy, prompts, monkeypatch) -> None:
    monkeypatch.setattr(client, "_WAITS", (0.01, 0.01))
    engine = open_engine(server)
    engine.load_weights(lambda: folder_weights(policy), 0)
    server.go_on.clear()
    engine.client.timeout = 1.0
    with pytest.raises(UserError, match=r"no answer to /generate in 1 seconds.*server_timeout"):
        engine.generate(prompts[:2], SamplingParams(max_tokens=4))
    server.close()
    engine.client.timeout = 20.0
    with pytest.raises(UserError, match=r"worker.rollout.server_address=http://127.*cannot be reached"):
        engine.generate(prompts[:2], SamplingParams(max_tokens=4))
    engine.close()


def test_the_server_is_looked_at_before_work(server) -> None:
    check_server(server.address, None, reports_version)
    with pytest.raises(UserError, match="/v1/models answered 404"):
        check_server(server.address, None)
    server.token = "secret"
    with pytest.raises(UserError, match="WHET_SERVER_TOKEN") as caught:
        check_server(server.address, "wrong", reports_version)
    assert "wrong" not in str(caught.value)
    check_server(server.address, "secret", reports_version)
    with pytest.raises(UserError, match="http://host:port"):
        check_server("localhost:30000", None, reports_version)
