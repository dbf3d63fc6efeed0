"""What devices a config asks for, and whether machines have them."""

import pytest

from whet.config import check_config, load_config
from whet.distributed import Placement
from whet.distributed.placement import check_processes, check_room, choose_device
from whet.errors import UserError


def machine(name: str, **resources: float) -> dict[str, object]:
    return {"NodeID": f"{name}0123456789", "NodeManagerHostname": name, "Resources": resources}


def test_the_config_says_how_many_and_how_long():
    trainer = load_config(["trainer.n_gpus_per_node=4", "trainer.nnodes=2", "trainer.worker_timeout=-1"]).trainer
    placement = Placement.of(trainer)
    assert (placement.size, placement.timeout) == (8, None)
    assert placement.pools == {"colocated": range(8)}
    assert [placement.place(device) for device in (0, 3, 4, 7)] == [(0, 0), (0, 3), (1, 0), (1, 3)]


def test_pools_split_the_devices_in_order():
    trainer = load_config(["trainer.n_gpus_per_node=4", "trainer.placement={rollout: 3, learn: 1}"]).trainer
    assert Placement.of(trainer).pools == {"learn": range(1), "rollout": range(1, 4)}


@pytest.mark.parametrize(
    ("pools", "sentence"),
    [
        ("{rollout: 1, learn: 2}", "trainer.placement.rollout=1 and trainer.placement.learn=2 do not add up to the 2"),
        ("{rollout: 1}", "trainer.placement.learn is not set"),
        ("{learn: 1}", "trainer.placement.rollout is not set"),
    ],
)
def test_pools_that_do_not_add_up_are_refused(pools: str, sentence: str):
    with pytest.raises(UserError, match=sentence):
        check_config(load_config(["trainer.n_gpus_per_node=2", f"trainer.placement={pools}"]))


def test_an_unknown_placement_is_refused():
    with pytest.raises(UserError, match="colocated"):
        load_config(["trainer.placement=apart"])


def test_gpus_are_taken_where_there_are_any():
    mixed = [machine("a", CPU=8), machine("b", CPU=8, GPU=2)]
    assert choose_device(Placement(), mixed) == "cuda"
    assert choose_device(Placement(), mixed[:1]) == "cpu"
    assert choose_device(Placement(device="cpu"), mixed) == "cpu"


def test_every_machine_must_have_its_share():
    nodes = [machine("a", GPU=8), machine("b", GPU=4)]
    check_room(Placement(per_node=4, nodes=2), "cuda", nodes, "Ray")
    check_room(Placement(per_node=8, nodes=1), "cuda", nodes, "Ray")
    with pytest.raises(UserError) as caught:
        check_room(Placement(per_node=8, nodes=2), "cuda", nodes, "the Ray cluster at x:1")
    text = str(caught.value)
    assert "trainer.n_gpus_per_node=8, trainer.nnodes=2" in text
    assert "2 machines with 8 GPUs each, but the Ray cluster at x:1 has 2: a (a01234) 8 GPUs, b (b01234) 4 GPUs" in text


def test_a_cluster_without_gpus_says_how_to_train_without():
    with pytest.raises(UserError, match=r"trainer\.device=cpu"):
        check_room(Placement(device="cuda"), "cuda", [machine("a", CPU=8)], "this machine")


def test_more_processes_than_processors_can_take_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    check_processes(Placement(per_node=16), "cpu")
    check_processes(Placement(per_node=64), "cuda")
    with pytest.raises(UserError, match=r"trainer\.n_gpus_per_node=17, trainer\.nnodes=1: .* 2 processors can take 16"):
        check_processes(Placement(per_node=17), "cpu")
