"""Device addresses that stay while the memory behind them comes and goes.

A captured CUDA graph holds addresses. Memory lent from the sampler's cache to training and back must return to the same
ones, which an allocator does not promise. CUDA's virtual memory management keeps the two apart: a range of addresses is
reserved once, and physical memory is put behind it and taken away as often as one likes. The driver is called through
ctypes: nine functions of libcuda.so.1, which is there wherever torch finds a GPU, against a package more to install.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint64, c_ushort, c_void_p
from functools import cache
from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor

OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED: the only type there is, not host memory
ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
RECOMMENDED = 1  # CU_MEM_ALLOC_GRANULARITY_RECOMMENDED


class Location(ctypes.Structure):
    """CUmemLocation of cuda.h."""

    _fields_: ClassVar = [("type", c_int), ("id", c_int)]


class AllocationFlags(ctypes.Structure):
    """CUmemAllocationProp.allocFlags of cuda.h."""

    _fields_: ClassVar = [
        ("compression_type", c_ubyte),
        ("gpu_direct_rdma_capable", c_ubyte),
        ("usage", c_ushort),
        ("reserved", c_ubyte * 4),
    ]


class AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp of cuda.h."""

    _fields_: ClassVar = [
        ("type", c_int),
        ("requested_handle_types", c_int),
        ("location", Location),
        ("win32_handle_metadata", c_void_p),
        ("flags", AllocationFlags),
    ]


class Access(ctypes.Structure):
    """CUmemAccessDesc of cuda.h."""

    _fields_: ClassVar = [("location", Location), ("flags", c_int)]


class DriverError(RuntimeError):
    """A driver call that failed, in the driver's words."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Driver:
    """The calls of libcuda, raising where they fail. Arguments are ctypes values: sizes and addresses have 64 bits."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def __call__(self, function: str, *args: Any) -> None:
        """Call a function of the driver by name."""
        code = getattr(self._library, function)(*args)
        if code:
            text = c_char_p()
            self._library.cuGetErrorString(c_int(code), byref(text))
            said = text.value.decode() if text.value else "an error it has no text for"
            raise DriverError(code, f"the CUDA driver failed in {function}: {said} (error {code})")


@cache
def _driver() -> Driver:
    return Driver(ctypes.CDLL("libcuda.so.1"))


class _Range:
    """The reserved addresses and the memory behind them. Apart from DeviceMemory, so that it can outlive it.

    The range is `rows` rows of `row` bytes, a multiple of the driver's grain. The first `mapped` bytes of each row have
    memory, in one piece for each call of `map`: a piece is mapped and unmapped as a whole.
    """

    def __init__(self, driver: Driver, device: torch.device, nbytes: int, rows: int) -> None:
        self._driver, self._device = driver, device
        here = Location(type=ON_DEVICE, id=device.index)
        self._properties = AllocationProperties(type=PINNED, location=here)
        self._access = Access(location=here, flags=READ_WRITE)
        grain = c_size_t()
        driver("cuMemGetAllocationGranularity", byref(grain), byref(self._properties), c_int(RECOMMENDED))
        self.grain = grain.value
        self.row, self.rows = self.whole(nbytes), rows
        address = c_uint64()
        reserved = c_size_t(self.row * rows)
        driver("cuMemAddressReserve", byref(address), reserved, c_size_t(0), c_uint64(0), c_uint64(0))
        self.address, self.mapped = address.value, 0
        self._pieces: list[tuple[int, int]] = []  # (address, bytes)

    def whole(self, nbytes: int) -> int:
        """`nbytes` rounded up to whole grains."""
        return -(-nbytes // self.grain) * self.grain

    def map(self, nbytes: int) -> None:
        """Put new physical memory behind the first `nbytes` of every row, where there is none; all rows or none."""
        before = len(self._pieces)
        try:
            for row in range(self.rows):
                self._map_piece(self.address + row * self.row + self.mapped, nbytes - self.mapped)
        except DriverError:
            self._unmap_pieces(before)
            raise
        self.mapped = nbytes

    def _map_piece(self, at: int, nbytes: int) -> None:
        address, size, handle = c_uint64(at), c_size_t(nbytes), c_uint64()
        self._driver("cuMemCreate", byref(handle), size, byref(self._properties), c_uint64(0))
        try:
            self._driver("cuMemMap", address, size, c_size_t(0), handle, c_uint64(0))
        finally:
            self._driver("cuMemRelease", handle)  # from here on the mapping alone keeps the memory
        try:
            self._driver("cuMemSetAccess", address, size, byref(self._access), c_size_t(1))
        except DriverError:
            self._driver("cuMemUnmap", address, size)
            raise
        self._pieces.append((at, nbytes))

    def _unmap_pieces(self, keep: int) -> None:
        while len(self._pieces) > keep:
            address, size = self._pieces.pop()
            self._driver("cuMemUnmap", c_uint64(address), c_size_t(size))

    def unmap(self) -> None:
        """Give the physical memory back, once no kernel can be using it."""
        if self._pieces:
            torch.cuda.synchronize(self._device)
            self._unmap_pieces(0)
            self.mapped = 0

    def free(self) -> None:
        """Give the addresses back too."""
        self.unmap()
        self._driver("cuMemAddressFree", c_uint64(self.address), c_size_t(self.row * self.rows))


class _Bytes:
    """Expose reserved addresses to torch as a tensor of bytes, and keep them reserved while it exists."""

    def __init__(self, owner: DeviceMemory, address: int, nbytes: int) -> None:
        self._owner = owner
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 2,
        }


class DeviceMemory:
    """Addresses on a CUDA device: `rows` rows of `nbytes`. Tensors in it keep their addresses through map and unmap.

    Memory is mapped behind the first part of every row, and the part can be enlarged: a tensor whose outer dimensions
    are the rows can grow in its inner one without being moved. What is not mapped must not be touched: a kernel that
    does fails with an illegal address.
    """

    def __init__(self, device: torch.device | str, nbytes: int, driver: Driver | None = None, rows: int = 1) -> None:
        """Reserve the addresses; no memory is taken before `map`."""
        if nbytes <= 0 or rows <= 0:
            raise ValueError(f"nbytes and rows must be positive, not {nbytes} and {rows}")
        device = torch.device(device)
        if device.type != "cuda":
            raise ValueError(f"DeviceMemory needs a CUDA device, not {device}")
        torch.cuda.init()
        self.device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        torch.cuda.synchronize(self.device)  # makes the device's context, which the driver's calls need
        self._range = _Range(driver or _driver(), self.device, nbytes, rows)
        self.row_bytes = self._range.row  # from the start of one row to that of the next
        self.nbytes = nbytes if rows == 1 else self.row_bytes * rows  # of a tensor that spans all rows
        self._free = weakref.finalize(self, self._range.free)
        self._free.atexit = False  # the driver itself may be gone by then, and frees everything

    @property
    def mapped(self) -> bool:
        """True if there is memory behind the first addresses of every row."""
        return self._range.mapped > 0

    def map(self, nbytes: int | None = None) -> None:
        """Put memory behind the first `nbytes` of every row (None: all), filled with zeros and ready for every stream.

        What is mapped already keeps its contents; nothing happens where it is enough.
        """
        self._check_open()
        before, wanted = self._range.mapped, self._range.whole(self.row_bytes if nbytes is None else nbytes)
        if wanted > self.row_bytes:
            raise ValueError(f"{nbytes} bytes do not fit into rows of {self.row_bytes}")
        if wanted <= before:
            return
        try:
            self._range.map(wanted)
        except DriverError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            torch.cuda.empty_cache()  # what torch keeps of freed tensors may be all that is missing
            self._map_or_say_what_is_missing(wanted)
        for row in range(self._range.rows):
            here = row * self.row_bytes
            end = min(here + wanted, self.nbytes)
            self.tensor((end - here - before,), torch.uint8, here + before).zero_()
        torch.cuda.synchronize(self.device)

    def unmap(self) -> None:
        """Wait for the device, then give the memory back; what was in it is lost. Nothing if there is none."""
        self._check_open()
        self._range.unmap()

    def tensor(self, shape: Sequence[int], dtype: torch.dtype, offset: int = 0) -> Tensor:
        """A tensor of the memory, `offset` bytes in, without a copy. Make it while mapped, then keep it."""
        self._check_open()
        if not self.mapped:
            raise RuntimeError("tensors can be made of device memory only while it is mapped")
        nbytes = prod(shape) * dtype.itemsize
        if offset % dtype.itemsize or offset < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"{tuple(shape)} of {dtype} at byte {offset} does not fit {self.nbytes} bytes of memory")
        if nbytes == 0:
            return torch.empty(tuple(shape), dtype=dtype, device=self.device)
        data = _Bytes(self, self._range.address + offset, nbytes)
        return torch.as_tensor(data, device=self.device).view(dtype).view(tuple(shape))

    def close(self) -> None:
        """Give memory and addresses back. Tensors of it must not be used any more."""
        self._free()

    def _check_open(self) -> None:
        if not self._free.alive:
            raise RuntimeError("this device memory is closed")

    def _map_or_say_what_is_missing(self, wanted: int) -> None:
        try:
            self._range.map(wanted)
        except DriverError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            free, total = (n / 2**30 for n in torch.cuda.mem_get_info(self.device))
            missing = (wanted - self._range.mapped) * self._range.rows / 2**30
            raise torch.OutOfMemoryError(
                f"{missing:.2f} GiB wanted on {self.device}, {free:.2f} of {total:.2f} GiB are free"
            ) from error
