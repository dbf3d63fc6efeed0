"""`whet sandbox`, `python -m whet.sandbox`, and the keys `sandbox.*`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whet.config.schema.sandbox import SandboxConfig
from whet.errors import UserError
from whet.sandbox import __main__ as lines
from whet.sandbox import command
from whet.sandbox.limits import Limits
from whet.sandbox.opening import open_sandbox
from whet.sandbox.pool import Sandbox
from whet.sandbox.remote import RemoteSandbox


def test_one_line_of_json(any_sandbox: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, stdin = tmp_path / "program.py", tmp_path / "input.txt"
    program.write_text("import sys\nprint(input() * 2)\nprint('x', file=sys.stderr)\nsys.exit(4)")
    stdin.write_text("ab\n")
    assert command.run([str(program), "--stdin", str(stdin), "--timeout=5", "--memory", "128"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    found = json.loads(printed)
    assert found.pop("seconds") < 5
    assert found == {"status": "error", "exit_code": 4, "stdout": "abab\n", "stderr": "x\n", "refused": []}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.py"], "there is no file missing.py"),
        (["a.py", "b.py"], "name one program"),
        (["a.py", "--timeout", "long"], "write a number"),
        (["a.py", "--timeout"], "needs a value"),
        (["a.py", "--network"], "no option --network"),
        (["a.py", "--timeout", "0"], "sandbox.timeout=0.0"),
        (["/dev/zero"], "there is no file"),
    ],
)
def test_mistakes_are_sentences(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(arguments) == 2
    assert said in capsys.readouterr().err


def test_layers_are_found_by_trying(any_sandbox: Sandbox) -> None:
    found = command.layers()
    assert found["auto"] == any_sandbox.layers
    assert found[any_sandbox.layers]["available"] is True
    assert "python" in found["languages"]


def test_lines_are_answered_in_their_order(any_sandbox: Sandbox) -> None:
    orders: list[object] = [{"program": f"print({at})", "id": at} for at in range(6)]
    orders[2] = {"program": "import time; time.sleep(0.3); print(2)", "id": 2}
    orders += [5, {"id": "a"}, {"program": "1", "x": 1}, {"program": "1", "timeout": "x"}, {"program": "1", "files": 3}]
    given = [json.dumps(order).encode() for order in orders] + [b"{", b"\n"]
    found = list(lines.answers(any_sandbox, given))
    assert [each["stdout"] for each in found[:6]] == [f"{at}\n" for at in range(6)]
    assert [each["id"] for each in found[:6]] == list(range(6))
    assert all("error" in each for each in found[6:])
    assert len(found) == 12


def test_keys_become_a_sandbox(any_sandbox: Sandbox) -> None:
    config = SandboxConfig(timeout=3.0, memory_mb=128, workers=1)
    with open_sandbox(config) as opened:
        assert isinstance(opened, Sandbox)
        assert opened.limits == Limits(timeout=3.0, memory_mb=128)
    assert isinstance(open_sandbox(SandboxConfig(url="http://127.0.0.1:1")), RemoteSandbox)
    with pytest.raises(UserError, match=r"sandbox\.url"):
        open_sandbox(SandboxConfig(url="nowhere"))
