"""The store where ranks meet, open at one address only: torch's own listens on every network of the machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import TCPStore

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915  # netdevice(7)
_BACKLOG = 1024


def open_store(address: str, port: int = 0) -> TCPStore:
    """A store that listens at `address`, on a port that is free unless one is named."""
    from torch.distributed import TCPStore

    listener = socket.create_server((address, port), family=_family(address), backlog=_BACKLOG)
    chosen = listener.getsockname()[1]
    # torch takes the descriptor over and closes it.
    return TCPStore(address, chosen, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def keep_to(address: str) -> None:
    """Have gloo and NCCL use the network of this address, where the user chose none."""
    if (name := _interface(address)) is not None:
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(variable, name)


def _family(address: str) -> socket.AddressFamily:
    return socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][0]


def _interface(address: str) -> str | None:
    """The network interface with an address: gloo would ask the host's name, which often stands for another."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None
