"""The files of examples/cluster: what can run here runs, the rest is read."""

import os
import re
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from distributed.processes import gone, nothing_left

from whet.config import load_config

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "cluster"
TESTS = str(ROOT / "tests")

DRIVER = f"""
import sys
sys.path.insert(0, {TESTS!r})
from distributed.workers import Worker
from whet.distributed import Placement, open_ray
group = open_ray(Worker, Placement(per_node=1, nodes=2, device="cpu"))
print("sum", group.call("all_reduce", 1.0), len({{member.node for member in group.members}}), flush=True)
group.close()
"""


def free_port() -> int:
    with socket.create_server(("", 0)) as probe:
        return probe.getsockname()[1]


@pytest.mark.slow
def test_the_script_runs_a_command_on_two_machines_and_leaves_nothing():
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'whet[ray]'")
    address = ray.util.get_node_ip_address()
    environment = {
        **os.environ,
        "RAY_PORT": str(free_port()),
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_ARGS": "--num-cpus=1 --object-store-memory=100000000",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    script = str(EXAMPLES / "on_every_machine.sh")
    with nothing_left():
        both = [
            subprocess.Popen(
                [script, address, str(rank), "2", sys.executable, "-c", DRIVER],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in (0, 1)
        ]
        try:
            text = both[0].communicate(timeout=150)[0]
            assert both[0].returncode == 0, text
            assert "sum [3.0, 3.0] 2" in text
            both[1].communicate(timeout=120)
            assert both[1].returncode == 0
        finally:
            for each in both:
                each.terminate()
        assert all(gone(each.pid) for each in both)


def test_the_script_says_how_it_is_called():
    run = subprocess.run([EXAMPLES / "on_every_machine.sh", "a", "0"], capture_output=True, text=True)
    assert run.returncode == 2
    assert "HEAD_ADDRESS RANK MACHINES COMMAND" in run.stderr


def test_the_script_starts_no_cluster_that_is_open_to_all():
    environment = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_TOKEN"}
    command = [EXAMPLES / "on_every_machine.sh", "127.0.0.1", "0", "1", "true"]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 2
    assert "set RAY_AUTH_TOKEN" in run.stderr


@pytest.mark.parametrize("name", ["on_every_machine.sh", "slurm.sbatch"])
def test_scripts_are_bash(name: str):
    subprocess.run(["bash", "-n", EXAMPLES / name], check=True)


def test_commands_name_keys_that_exist_and_the_script_that_is_there():
    task = yaml.safe_load((EXAMPLES / "skypilot.yaml").read_text())
    assert task["num_nodes"] == 2
    subprocess.run(["bash", "-n"], input=task["run"] + task["setup"], text=True, check=True)
    for text in (task["run"], (EXAMPLES / "slurm.sbatch").read_text(), (EXAMPLES / "README.md").read_text()):
        assert "examples/cluster/on_every_machine.sh" in text
        keys = re.findall(r"(trainer\.\w+)=", text)
        assert {"trainer.nnodes", "trainer.n_gpus_per_node"} <= set(keys)
        load_config([f"{key}=/a" if key.endswith("path") else f"{key}=2" for key in keys])


def test_the_image_installs_extras_that_exist():
    extras = re.search(r"/src\[(.*)\]", (EXAMPLES / "Dockerfile").read_text()).group(1).split(",")
    declared = (ROOT / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in declared for extra in extras)
