"""Files of torch.save, read without running what they pickle and without believing what they say of their storages.

torch's own reader takes the size of a storage from the pickle and its place from the archive. A storage that is said to
be longer than its entry is then read out of whatever follows, and a compressed entry as if its bytes were numbers. Here
every storage is one whole, uncompressed entry whose checksum is right.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._weights_only_unpickler import Unpickler as _SafeUnpickler

from whet.errors import UserError

_PICKLE = "data.pkl"
_MAX_PICKLE = 1 << 28  # bytes; that of a model of a thousand layers has less than a hundredth of it
_LOCAL_HEADER = 30  # bytes of it that do not depend on lengths
_CHUNK = 1 << 24


class PickledCodeError(UserError):
    """A file cannot be read without running code that it names."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Bytes of an entry in the file."""

    start: int
    size: int
    crc: int


def load(file: Path, known: Mapping[str, Any] | None = None, trust_pickles: bool = False, mapped: bool = False) -> Any:
    """Return what a file holds, on the CPU; a `UserError` if it is damaged, or a pickle of anything but tensors.

    `known` says what further pickled names mean. Tensors that are `mapped` stay in the file until they are used.
    """
    archive = _Archive.open(file)
    storages = _Storages(file, archive, mapped)
    content = io.BytesIO(archive.read(_PICKLE))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's, about pickles and storages
            if trust_pickles:
                found = _trusting(content, known or {}, storages.load).load()
            else:
                with _only_known_names(known or {}):
                    found = _Reader(content, storages.load).load()
        storages.check()
    except UserError:
        raise
    except pickle.UnpicklingError as error:
        raise PickledCodeError(_refusal(file, error, known or {})) from None
    except Exception as error:  # what a damaged pickle makes the functions of torch raise can be anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise unreadable(file, reason) from None
    return found


def check(file: Path) -> None:
    """A `UserError` unless `load` can read a file; nothing is kept of it. Files of torch before 1.6 pass unread."""
    if zipfile.is_zipfile(file):
        load(file, mapped=True)


def unreadable(file: Path, reason: str) -> UserError:
    """The error for a file that cannot be read."""
    return UserError(f"{file} could not be read: it is cut short, damaged, or no file of torch.save ({reason})")


class _Archive:
    """Offsets of a file's entries."""

    def __init__(self, file: Path, root: str, spans: dict[str, _Span]) -> None:
        self.file, self.root, self.spans = file, root, spans

    @classmethod
    def open(cls, file: Path) -> _Archive:
        """Read the directory of a file and check all of its entries."""
        try:
            with file.open("rb") as stream, zipfile.ZipFile(stream) as archive:
                entries = archive.infolist()
                spans = {entry.filename: _span(file, stream, entry) for entry in entries}
                length = os.fstat(stream.fileno()).st_size
        except UserError:
            raise
        except Exception as error:  # zipfile raises whatever the fields of a damaged header lead to
            raise unreadable(file, str(error).partition("\n")[0] or type(error).__name__) from None
        if len(spans) != len(entries):
            raise unreadable(file, "two entries have one name")
        end = 0
        for span in sorted(spans.values(), key=lambda span: span.start):
            if span.start < end or span.start + span.size > length:
                raise unreadable(file, "its entries overlap or lie outside of it")
            end = span.start + span.size
        roots = [name.removesuffix(f"/{_PICKLE}") for name in spans if name.endswith(f"/{_PICKLE}")]
        if len(roots) != 1 or "/" in roots[0]:
            raise unreadable(file, f"it has {len(roots)} entries called {_PICKLE}")
        made = cls(file, roots[0], spans)
        made._check_contents()
        return made

    def read(self, name: str) -> bytes:
        """The bytes of a small entry."""
        span = self.span(name)
        if span.size > _MAX_PICKLE:
            raise unreadable(self.file, f"its {name} has {span.size} bytes")
        with self.file.open("rb") as stream:
            stream.seek(span.start)
            return stream.read(span.size)

    def span(self, name: str) -> _Span:
        """Return the offset and size of an entry."""
        try:
            return self.spans[f"{self.root}/{name}"]
        except KeyError:
            raise unreadable(self.file, f"it has no {name}") from None

    def _check_contents(self) -> None:
        order = self.read("byteorder") if f"{self.root}/byteorder" in self.spans else b"little"
        if order != sys.byteorder.encode():
            raise unreadable(self.file, f"its numbers are said to be {order[:20]!r}-endian")
        if not any(span.crc for span in self.spans.values()):
            return  # torch.serialization.set_crc32_options(False) writes no checksums
        with self.file.open("rb") as stream:
            for name, span in self.spans.items():
                if _crc(stream, span) != span.crc:
                    raise unreadable(self.file, f"{name} does not match its checksum")


def _span(file: Path, stream: Any, entry: zipfile.ZipInfo) -> _Span:
    if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
        raise UserError(
            f"{file} was packed again with compression ({entry.filename}), which torch.save never does. Unpack it and "
            "pack it without: unzip FILE -d DIR, then in DIR zip -0 -r FILE ."
        )
    if entry.flag_bits & 0x1:
        raise unreadable(file, f"{entry.filename} is encrypted")
    stream.seek(entry.header_offset)
    header = stream.read(_LOCAL_HEADER)
    if len(header) != _LOCAL_HEADER or header[:4] != b"PK\x03\x04":
        raise unreadable(file, f"{entry.filename} has no header")
    name, extra = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    if stream.read(name) != entry.orig_filename.encode("utf-8" if entry.flag_bits & 0x800 else "cp437"):
        raise unreadable(file, f"{entry.filename} has another name in its header")
    if int.from_bytes(header[8:10], "little") != zipfile.ZIP_STORED:
        raise unreadable(file, f"{entry.filename} is compressed by its header")
    return _Span(entry.header_offset + _LOCAL_HEADER + name + extra, entry.file_size, entry.CRC)


def _crc(stream: Any, span: _Span) -> int:
    stream.seek(span.start)
    crc, left = 0, span.size
    while left:
        chunk = stream.read(min(left, _CHUNK))
        if not chunk:
            return -1
        crc, left = zlib.crc32(chunk, crc), left - len(chunk)
    return crc


class _Storages:
    """The storages of one file, each of which is one entry."""

    def __init__(self, file: Path, archive: _Archive, mapped: bool) -> None:
        self._file, self._archive, self._mapped = file, archive, mapped
        self._whole: Any = None  # the file in memory, read as it is used
        self._made: dict[str, tuple[torch.UntypedStorage, int]] = {}

    def load(self, named: Any) -> Any:
        """Return the storage that a pickle names: ("storage", class, key, device, number of elements)."""
        if not isinstance(named, tuple) or len(named) != 5:
            raise unreadable(self._file, "it names a storage in another way than torch does")
        _, kind, key, _, count = named
        dtype = torch.uint8 if kind is torch.UntypedStorage else kind.dtype
        if not isinstance(key, str) or type(count) is not int or not isinstance(dtype, torch.dtype):
            raise unreadable(self._file, "it names a storage in another way than torch does")
        span = self._archive.span(f"data/{key}")
        if count * dtype.itemsize != span.size:
            raise unreadable(self._file, f"data/{key} has {span.size} bytes, and should have {count * dtype.itemsize}")
        if key not in self._made:
            self._made[key] = (self._read(span, dtype), span.size)
        return torch.storage.TypedStorage(wrap_storage=self._made[key][0], dtype=dtype, _internal=True)

    def check(self) -> None:
        """A `UserError` where a tensor was larger than its storage, and torch has made the storage larger."""
        if any(storage.nbytes() != size for storage, size in self._made.values()):
            raise unreadable(self._file, "a tensor does not fit into its storage")

    def _read(self, span: _Span, dtype: torch.dtype) -> torch.UntypedStorage:
        if not span.size:
            return torch.UntypedStorage(0)
        if self._whole is None:
            length = max(each.start + each.size for each in self._archive.spans.values())
            self._whole = torch.UntypedStorage.from_file(str(self._file), shared=False, nbytes=length)
        part = self._whole[span.start : span.start + span.size]
        return part if self._mapped and span.start % dtype.itemsize == 0 else part.clone()


class _Reader(_SafeUnpickler):
    """torch's reader of pickles that name nothing but tensors, with storages of our own."""

    def __init__(self, content: io.BytesIO, persistent_load: Callable[[Any], Any]) -> None:
        super().__init__(content, encoding="utf-8")
        self._load = persistent_load

    def persistent_load(self, pid: Any) -> Any:
        """Return the storage that a pickle names."""
        return self._load(pid)


@contextmanager
def _only_known_names(known: Mapping[str, Any]) -> Iterator[None]:
    """Our meanings instead of torch's own, which would build process groups and change between versions."""
    before = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals([(meaning, name) for name, meaning in known.items()])
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


def _trusting(content: io.BytesIO, known: Mapping[str, Any], persistent_load: Callable[[Any], Any]) -> pickle.Unpickler:
    """An unpickler that builds everything, but what is known as it is known."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            full = f"{module}.{name}"
            return super().find_class(module, name) if full not in known or module == "builtins" else known[full]

        def persistent_load(self, named: Any) -> Any:
            return persistent_load(named)

    return Unpickler(content)


def _refusal(file: Path, error: Exception, known: Mapping[str, Any]) -> str:
    try:
        with _only_known_names(known):
            unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    except Exception:  # a pickle of another kind: the names in it cannot be listed
        unsafe = []
    if not unsafe:
        return f"{file} could not be read without running what it pickles ({str(error).partition('.')[0]})"
    return f"{file} pickles {', '.join(sorted(unsafe)[:3])}, and reading it would run that code"
