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
    """The reserved addresses and whether memory is behind them. Apart from DeviceMemory, so that it can outlive it."""

    def __init__(self, driver: Driver, device: torch.device, nbytes: int) -> None:
        self._driver, self._device = driver, device
        here = Location(type=ON_DEVICE, id=device.index)
        self._properties = AllocationProperties(type=PINNED, location=here)
        self._access = Access(location=here, flags=READ_WRITE)
        grain = c_size_t()
        driver("cuMemGetAllocationGranularity", byref(grain), byref(self._properties), c_int(RECOMMENDED))
        self.size = -(-nbytes // grain.value) * grain.value
        address = c_uint64()
        driver("cuMemAddressReserve", byref(address), c_size_t(self.size), c_size_t(0), c_uint64(0), c_uint64(0))
        self.address, self.mapped = address.value, False

    def map(self) -> None:
        """Put new physical memory behind the addresses."""
        address, size, handle = c_uint64(self.address), c_size_t(self.size), c_uint64()
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
        self.mapped = True

    def unmap(self) -> None:
        """Give the physical memory back, once no kernel can be using it."""
        if self.mapped:
            torch.cuda.synchronize(self._device)
            self._driver("cuMemUnmap", c_uint64(self.address), c_size_t(self.size))
            self.mapped = False

    def free(self) -> None:
        """Give the addresses back too."""
        self.unmap()
        self._driver("cuMemAddressFree", c_uint64(self.address), c_size_t(self.size))


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
    """`nbytes` of addresses on a CUDA device. Tensors in it keep their addresses through every unmap and map.

    While unmapped, a tensor of it must not be touched: a kernel that does fails with an illegal address.
    """

    def __init__(self, device: torch.device | str, nbytes: int, driver: Driver | None = None) -> None:
        """Reserve the addresses; no memory is taken before `map`."""
        if nbytes <= 0:
            raise ValueError(f"nbytes must be positive, not {nbytes}")
        device = torch.device(device)
        if device.type != "cuda":
            raise ValueError(f"DeviceMemory needs a CUDA device, not {device}")
        torch.cuda.init()
        self.device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        torch.cuda.synchronize(self.device)  # makes the device's context, which the driver's calls need
        self.nbytes = nbytes
        self._range = _Range(driver or _driver(), self.device, nbytes)
        self._free = weakref.finalize(self, self._range.free)
        self._free.atexit = False  # the driver itself may be gone by then, and frees everything

    @property
    def mapped(self) -> bool:
        """True if memory is mapped at the addresses."""
        return self._range.mapped

    def map(self) -> None:
        """Put memory behind the addresses, filled with zeros and ready for every stream; nothing if it is there."""
        self._check_open()
        if self.mapped:
            return
        try:
            self._range.map()
        except DriverError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            torch.cuda.empty_cache()  # what torch keeps of freed tensors may be all that is missing
            self._map_or_say_what_is_missing()
        self.tensor((self.nbytes,), torch.uint8).zero_()
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

    def _map_or_say_what_is_missing(self) -> None:
        try:
            self._range.map()
        except DriverError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            free, total = (n / 2**30 for n in torch.cuda.mem_get_info(self.device))
            raise torch.OutOfMemoryError(
                f"{self._range.size / 2**30:.2f} GiB wanted on {self.device}, {free:.2f} of {total:.2f} GiB are free"
            ) from error
