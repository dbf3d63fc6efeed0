"""Weights on their way: buckets, checksums and tokens, without vLLM."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Iterator

import pytest
import torch
from torch import Tensor

from whet.rollout.engines.vllm import sender as sending
from whet.rollout.engines.vllm.child.whet_vllm_wire import buckets, checksum, fill, receive, send, unpack
from whet.rollout.engines.vllm.sender import WeightSender
from whet.rollout.engines.vllm.settings import CHILD

TENSORS = {
    "bf16": torch.randn(5, 3).to(torch.bfloat16),
    "bytes": torch.arange(7, dtype=torch.uint8),
    "scalar": torch.tensor(2.5),
    "transposed": torch.randn(4, 6).t(),
    "large": torch.randn(100),
    "empty": torch.empty(0, 4),
}


def weights() -> Iterator[tuple[str, Tensor]]:
    yield from TENSORS.items()


class Worker:
    """Stands where vLLM's worker does: `reload_weights` is all that the extension asks of it."""

    def __init__(self) -> None:
        self.taken: dict[str, Tensor] = {}
        self.device = "meta"  # has no packed head
        self.model_runner = self

    def get_model(self) -> None:
        return None

    def reload_weights(self, weights_iterator: Iterable[tuple[str, Tensor]]) -> None:
        self.taken = dict(weights_iterator)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.syspath_prepend(str(CHILD))
    from whet_vllm_extension import WhetExtension

    return type("Extended", (Worker, WhetExtension), {})()


@pytest.mark.parametrize("size", [1, 64, 1 << 20])
def test_buckets_hold_every_tensor_once(size: int) -> None:
    packed = [
        (table, fill(torch.empty(used, dtype=torch.uint8), table, tensors))
        for table, tensors, used in buckets(weights(), size)
    ]
    found = {name: tensor for table, flat in packed for name, tensor in unpack(table, flat)}
    assert list(found) == list(TENSORS)
    assert all(torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in weights())
    assert len(packed) == {1: 6, 64: 4, 1 << 20: 1}[size]


def test_a_worker_takes_what_was_sent(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "BUCKET_BYTES", 64)
    with WeightSender(weights, 4, workers=1) as sender:
        offer = sender.offer()
        received = worker.whet_take_weights(*offer.values())
        sender.check([received])
        assert received["version"] == worker.whet_weights_version() == "4"
        with pytest.raises(RuntimeError, match="other weights than were sent"):
            sender.check([received | {"sum": "0"}])
        with pytest.raises(RuntimeError, match="other weights than were sent"):
            sender.check([received, received])
    assert all(torch.equal(worker.taken[name], tensor) for name, tensor in weights())


def test_a_damaged_bucket_is_noticed_and_leaves_no_version(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    with WeightSender(weights, 4, workers=1) as sender:
        worker.whet_take_weights(*sender.offer().values())
    monkeypatch.setattr(sending, "checksum", lambda flat: checksum(flat) + 1)
    with WeightSender(weights, 5, workers=1) as sender, pytest.raises(RuntimeError, match="arrived damaged"):
        worker.whet_take_weights(*sender.offer().values())
    assert worker.whet_weights_version() == ""


def test_a_stream_that_breaks_off_leaves_no_version(worker: Worker) -> None:
    def broken() -> Iterator[tuple[str, Tensor]]:
        yield "first", torch.ones(3)
        raise ZeroDivisionError

    with WeightSender(broken, 5, workers=1) as sender, pytest.raises(EOFError):
        worker.whet_take_weights(*sender.offer().values())
    assert isinstance(sender.error, ZeroDivisionError)
    assert worker.whet_weights_version() == ""


def test_strangers_get_nothing(worker: Worker) -> None:
    with WeightSender(weights, 1, workers=1) as sender:
        with socket.create_connection((sender.host, sender.port)) as stranger:
            send(stranger, {"token": "guess"})
            with pytest.raises((EOFError, ConnectionResetError)):
                receive(stranger)
        assert worker.whet_take_weights(*sender.offer().values())["version"] == "1"


def test_nobody_comes() -> None:
    with WeightSender(weights, 1, workers=1):
        pass


def test_the_child_imports_nothing_of_whet() -> None:
    for file in CHILD.glob("*.py"):
        lines = file.read_text().splitlines()
        assert not [line for line in lines if line.split()[:2] in (["import", "whet"], ["from", "whet"])]
        assert not [line for line in lines if line.startswith(("from whet.", "import whet."))], file
    assert str(CHILD) not in sys.path
