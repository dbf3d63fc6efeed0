"""A small MCP server for tests: over standard input and output, or with a port as its argument over HTTP."""

from __future__ import annotations

import os
import signal
import sys
import time

from mcp.server import MCPServer

server = MCPServer("tests")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def process() -> str:
    """Return the server's process id."""
    return str(os.getpid())


@server.tool()
def fail(how: str) -> str:
    """Raise, end the process, be killed, hang, stop the whole server, or write what is no JSON before the answer."""
    if how == "die":
        os._exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "garbage":
        os.write(1, b'{"jsonrpc": \n\xff\xfe\x00 no text\n[1, 2]\n')
        return "written"
    if how == "hang":
        time.sleep(600)
    raise ValueError("no such luck")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
