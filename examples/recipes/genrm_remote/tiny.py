"""Train against a judge over HTTP, with a stand-in for it: `python tiny.py [key=value ...]`.

The stand-in speaks the API of chat completions. It reads the right answer and the response out of the question, as a
model would, and writes a score; training knows nothing but its address.
"""

import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TRUTH = re.compile(r"The right answer is: (.*)")
RESPONSE = re.compile(r"\[BEGIN RESPONSE[^\]]*\]\n(.*?)\n\[END RESPONSE", re.DOTALL)


def opinion(question: str) -> str:
    """Return what a judge might write: 10 for the right digits, less the fewer are in their places."""
    truth = TRUTH.search(question)[1].split()
    said = RESPONSE.search(question)[1].removeprefix("Answer:").split()
    places = sum(one == other for one, other in zip(said, truth)) / max(len(said), len(truth), 1)
    return f"{places:.0%} of the digits are in their places.\nScore: {round(10 * places)}"


class Judge(BaseHTTPRequestHandler):
    """The two addresses that a client of chat completions asks for."""

    def do_GET(self) -> None:
        """List the one model."""
        self.reply({"data": [{"id": "stand-in"}]})

    def do_POST(self) -> None:
        """Answer the last message."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = opinion(body["messages"][-1]["content"])
        self.reply({"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]})

    def reply(self, value: dict) -> None:
        """Send JSON."""
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


def main() -> int:
    """Serve on a free port while `whet train` runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"worker.reward.judge.base_url=http://127.0.0.1:{server.server_address[1]}/v1"
    command = [sys.executable, "-m", "whet", "train", "config=tiny.yaml", address, *sys.argv[1:]]
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
