"""Addresses stay while memory comes and goes. Without a GPU: the order of the driver's calls, and cuda.h's layouts."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import pytest
import torch

from whet.kernels.device_memory import Access, AllocationProperties, DeviceMemory, Driver

GRAIN = 2 << 20
ADDRESS = 0x7F0000000000
OPENED = ["cuMemGetAllocationGranularity", "cuMemAddressReserve"]
MAPPED = ["cuMemCreate", "cuMemMap", "cuMemRelease", "cuMemSetAccess", "zero", "synchronize"]


class FakeLibrary:
    """libcuda that only writes down what it is asked, and fails as often as it is told to."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.args: dict[str, tuple[Any, ...]] = {}
        self.failures: dict[str, list[int]] = {}

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> int:
            if name == "cuGetErrorString":
                args[1]._obj.value = b"out of memory" if args[0].value == 2 else b"invalid argument"
                return 0
            self.calls.append(name)
            self.args[name] = args
            code = self.failures[name].pop(0) if self.failures.get(name) else 0
            if code == 0 and name in ("cuMemGetAllocationGranularity", "cuMemAddressReserve", "cuMemCreate"):
                args[0]._obj.value = {"cuMemGetAllocationGranularity": GRAIN, "cuMemCreate": 7}.get(name, ADDRESS)
            return code

        return call


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    """A fake driver, with torch's part of the work written down among its calls."""
    library = FakeLibrary()

    class Zeroed:
        def zero_(self) -> None:
            library.calls.append("zero")

    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: library.calls.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: library.calls.append("empty_cache"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 30, 2 << 30))
    monkeypatch.setattr(DeviceMemory, "tensor", lambda *_: Zeroed())
    return library


def _opened(library: FakeLibrary, nbytes: int = GRAIN + 1) -> DeviceMemory:
    memory = DeviceMemory("cuda", nbytes, Driver(library))
    assert library.calls == ["synchronize", *OPENED]
    library.calls.clear()
    return memory


def test_memory_comes_and_goes_behind_one_reservation(library: FakeLibrary) -> None:
    memory = _opened(library)
    assert not memory.mapped
    for _ in range(2):
        memory.map()
        memory.map()
        assert memory.mapped
        memory.unmap()
        memory.unmap()
        assert not memory.mapped
        assert library.calls == [*MAPPED, "synchronize", "cuMemUnmap"]
        library.calls.clear()
    memory.close()
    memory.close()
    assert library.calls == ["cuMemAddressFree"]
    with pytest.raises(RuntimeError, match="closed"):
        memory.map()


def test_the_driver_gets_whole_grains_the_device_and_64_bits(library: FakeLibrary) -> None:
    memory = _opened(library)
    memory.map()
    properties = library.args["cuMemCreate"][2]._obj
    access = library.args["cuMemSetAccess"][2]._obj
    assert [arg.value for arg in library.args["cuMemMap"]] == [ADDRESS, 2 * GRAIN, 0, 7, 0]
    assert (properties.type, properties.location.type, properties.location.id) == (1, 1, 0)
    assert (properties.requested_handle_types, properties.win32_handle_metadata, properties.flags.usage) == (0, None, 0)
    assert (access.location.type, access.location.id, access.flags) == (1, 0, 3)
    assert [library.args["cuMemSetAccess"][i].value for i in (0, 1, 3)] == [ADDRESS, 2 * GRAIN, 1]
    assert all(ctypes.sizeof(arg) == 8 for arg in library.args["cuMemMap"])


def test_layouts_are_those_of_cuda_h() -> None:
    assert (ctypes.sizeof(AllocationProperties), ctypes.sizeof(Access)) == (32, 12)
    fields = ("type", "requested_handle_types", "location", "win32_handle_metadata", "flags")
    assert [getattr(AllocationProperties, name).offset for name in fields] == [0, 4, 8, 16, 24]
    assert (Access.location.offset, Access.flags.offset) == (0, 8)


def test_out_of_memory_is_tried_once_more_without_torchs_cache(library: FakeLibrary) -> None:
    memory = _opened(library)
    library.failures["cuMemCreate"] = [2]
    memory.map()
    assert library.calls == ["cuMemCreate", "empty_cache", *MAPPED]
    memory.unmap()
    library.failures["cuMemCreate"] = [2, 2]
    with pytest.raises(torch.OutOfMemoryError, match=r"0\.00 GiB wanted on cuda:0, 1\.00 of 2\.00 GiB are free"):
        memory.map()
    assert not memory.mapped


@pytest.mark.parametrize(
    ("fails", "calls"),
    [
        ("cuMemCreate", ["cuMemCreate"]),
        ("cuMemMap", ["cuMemCreate", "cuMemMap", "cuMemRelease"]),
        ("cuMemSetAccess", ["cuMemCreate", "cuMemMap", "cuMemRelease", "cuMemSetAccess", "cuMemUnmap"]),
    ],
)
def test_a_failed_map_leaves_nothing_behind(library: FakeLibrary, fails: str, calls: list[str]) -> None:
    memory = _opened(library)
    library.failures[fails] = [1]
    with pytest.raises(RuntimeError, match=f"{fails}: invalid argument \\(error 1\\)"):
        memory.map()
    assert library.calls == calls
    assert not memory.mapped


def test_memory_is_given_back_with_the_object(library: FakeLibrary) -> None:
    memory = _opened(library)
    memory.map()
    library.calls.clear()
    del memory
    gc.collect()
    assert library.calls == ["synchronize", "cuMemUnmap", "cuMemAddressFree"]


def test_rows_grow_in_place_and_are_given_back_together(library: FakeLibrary) -> None:
    memory = DeviceMemory("cuda", 5 * GRAIN - 1, Driver(library), rows=2)
    assert (memory.row_bytes, memory.nbytes) == (5 * GRAIN, 10 * GRAIN)
    pieces = []
    for nbytes in (GRAIN + 1, 2 * GRAIN, 3 * GRAIN):  # the second is mapped already
        library.calls.clear()
        memory.map(nbytes)
        pieces.append(library.calls.count("cuMemMap"))
    assert pieces == [2, 0, 2]
    assert [arg.value for arg in library.args["cuMemMap"][:2]] == [ADDRESS + 7 * GRAIN, GRAIN]
    library.calls.clear()
    memory.unmap()
    assert library.calls == ["synchronize", *["cuMemUnmap"] * 4]
    assert not memory.mapped
    with pytest.raises(ValueError, match="do not fit"):
        memory.map(5 * GRAIN + 1)


def test_a_growth_that_fails_in_one_row_is_undone_in_all(library: FakeLibrary) -> None:
    memory = DeviceMemory("cuda", 4 * GRAIN, Driver(library), rows=3)
    memory.map(GRAIN)
    library.calls.clear()
    library.failures["cuMemCreate"] = [0, 2, 0, 0, 2]  # the second row, and the third when it is tried once more
    with pytest.raises(torch.OutOfMemoryError, match="GiB wanted"):
        memory.map(3 * GRAIN)
    assert library.calls.count("cuMemUnmap") == 1 + 2
    library.calls.clear()
    memory.unmap()
    assert library.calls.count("cuMemUnmap") == 3  # what was there before


def test_what_it_refuses(library: FakeLibrary) -> None:
    with pytest.raises(ValueError, match="positive"):
        DeviceMemory("cuda", 0, Driver(library))
    with pytest.raises(ValueError, match="not cpu"):
        DeviceMemory("cpu", 1, Driver(library))


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.cuda
@needs_cuda
def test_tensors_keep_their_addresses_and_come_back_as_zeros() -> None:
    memory = DeviceMemory("cuda", 256 << 20)
    with pytest.raises(RuntimeError, match="while it is mapped"):
        memory.tensor((1,), torch.float32)
    memory.map()
    x = memory.tensor((1000, 1000), torch.bfloat16, offset=4096)
    whole = memory.tensor((256 << 20,), torch.uint8)
    assert x.data_ptr() == whole.data_ptr() + 4096
    assert not whole.any()
    x.fill_(2)
    assert x.sum(dtype=torch.float32) == 2_000_000
    free = torch.cuda.mem_get_info()[0]
    memory.unmap()
    assert torch.cuda.mem_get_info()[0] - free >= 256 << 20
    memory.map()
    assert not x.any()
    with pytest.raises(ValueError, match="does not fit"):
        memory.tensor((256 << 20,), torch.int16)
    memory.close()


@pytest.mark.cuda
@needs_cuda
def test_a_captured_graph_reads_what_came_back() -> None:
    memory = DeviceMemory("cuda", 64 << 20)
    memory.map()
    x = memory.tensor((1024,), torch.float32)
    y = torch.zeros(1024, device="cuda")
    y.copy_(x + 1)  # warm up outside the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.copy_(x + 1)
    memory.unmap()
    other = torch.full((64 << 18,), 9.0, device="cuda")  # takes memory in between
    memory.map()
    x.fill_(4)
    graph.replay()
    assert (y == 5).all()
    assert (other == 9).all()
    memory.close()


@pytest.mark.cuda
@needs_cuda
def test_more_than_the_device_has() -> None:
    total = torch.cuda.mem_get_info()[1]
    memory = DeviceMemory("cuda", 2 * total)
    with pytest.raises(torch.OutOfMemoryError, match="GiB wanted"):
        memory.map()
    assert not memory.mapped
    memory.close()


@pytest.mark.cuda
@needs_cuda
def test_rows_keep_their_contents_and_addresses_as_they_grow() -> None:
    memory = DeviceMemory("cuda", 64 << 20, rows=4)
    memory.map(8 << 20)
    flat = memory.tensor((memory.nbytes,), torch.uint8).view(torch.float32)
    x = flat.as_strided((4, 16 << 20), (memory.row_bytes // 4, 1))
    x[:, : 2 << 20] = torch.arange(1.0, 5.0, device="cuda")[:, None]
    free = torch.cuda.mem_get_info()[0]
    memory.map(64 << 20)
    assert free - torch.cuda.mem_get_info()[0] >= 4 * (56 << 20)
    assert x[:, : 2 << 20].sum(dim=1).tolist() == [n * (2 << 20) for n in (1.0, 2.0, 3.0, 4.0)]
    assert not x[:, 2 << 20 :].any()
    memory.unmap()
    assert torch.cuda.mem_get_info()[0] >= free
    memory.close()
