"""Objects between ranks, and bytes that do not carry the job's secret."""

import os
import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from whet.system import sealed
from whet.system.secret import SECRET_VARIABLE


def _rank(rank: int, file: str, secrets: tuple[str, str], folder: str) -> None:
    os.environ[SECRET_VARIABLE] = secrets[rank]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.FileStore(file, 2), rank=rank, world_size=2)
    found: list[object] = []
    for exchange in (sealed.all_gather, sealed.gather, sealed.broadcast):
        try:
            found.append(exchange({"rank": rank, "long": "x" * 10 ** (rank + 1)}))
        except RuntimeError as error:
            found.append(str(error))
    Path(folder, str(rank)).write_bytes(pickle.dumps(found))


def exchanged(tmp_path: Path, secrets: tuple[str, str]) -> list[list]:
    mp.start_processes(_rank, (str(tmp_path / "store"), secrets, str(tmp_path)), nprocs=2, start_method="spawn")
    return [pickle.loads((tmp_path / str(rank)).read_bytes()) for rank in range(2)]


@pytest.mark.slow
def test_objects_reach_those_they_are_for(tmp_path: Path):
    values = [{"rank": rank, "long": "x" * 10 ** (rank + 1)} for rank in range(2)]
    assert exchanged(tmp_path, ("same", "same")) == [[values, values, values[0]], [values, None, values[0]]]


@pytest.mark.slow
def test_ranks_with_other_secrets_are_not_unpickled(tmp_path: Path):
    first, second = exchanged(tmp_path, ("one", "other"))
    assert ["does not carry this job's secret" in str(each) for each in first] == [True, True, False]
    assert ["does not carry this job's secret" in str(each) for each in second] == [True, False, True]


class Bomb:
    def __reduce__(self):
        return os.mkdir, (os.environ["BOMB"],)


@pytest.mark.parametrize("tag", [b"", b"\0" * 32, b"x" * 31])
def test_nothing_is_unpickled_without_the_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: bytes):
    monkeypatch.setenv("BOMB", str(tmp_path / "went off"))
    monkeypatch.setenv(SECRET_VARIABLE, "secret")
    forged = torch.frombuffer(bytearray(tag + pickle.dumps(Bomb())), dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="does not carry this job's secret"):
        sealed._open(forged)
    assert not (tmp_path / "went off").exists()
