"""The first lines of the engine's process, before torch is imported: from here on it ends with its server.

A model takes seconds or minutes to load. Were the socket looked at only afterwards, a server that was ended meanwhile
would leave a process behind that fills a GPU for nobody.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading


def main(descriptor: int) -> None:
    """Run the engine's process on one end of a pair of sockets."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the server decides when to end, also where both are told to
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)  # else processes of the engine's own would keep it open
    threading.Thread(target=end_with, args=(connection,), name="whet-watch", daemon=True).start()

    from whet.serving.process.child import serve_one

    serve_one(connection)


def end_with(connection: socket.socket) -> None:
    """Wait until the other side has gone, and end this process at once: nobody waits for what is being written."""
    hang_up = select.poll()
    hang_up.register(connection, 0)  # which is told of in any case
    hang_up.poll()
    os._exit(0)
