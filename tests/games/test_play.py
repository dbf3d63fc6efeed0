"""The play command: a model on the simulated device, and on a phone behind a fake adb server."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from games.fake_adb_server import FakePhone, adb_server
from games.rows import row
from phone.task import PhoneTask
from PIL import Image
from play import main

GAMES = Path(__file__).parents[2] / "examples" / "games"
TINY = """
extends: {games}/phone.yaml
data: {{max_pixels: 50176, max_prompt_length: 400, max_response_length: 500}}
worker:
  rollout:
    env_args: {{turns: 2, longest: 84, settle: 0.0}}
    max_turn_tokens: 8
  actor: {{model: {{model_path: whet/vision}}}}
"""
needs_adb = pytest.mark.skipif(
    shutil.which("adb") is None and find_spec("adbutils") is None, reason="needs adb: pip install adbutils"
)


@needs_adb
def test_a_model_plays_on_a_device_and_one_that_goes_costs_its_episodes(
    whet_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The phone leaves before the second episode: the first one is played, the other named."""
    (tmp_path / "tiny.yaml").write_text(TINY.format(games=GAMES))
    phone = FakePhone()
    with adb_server(phone) as port:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        command = ["--device", phone.serial, "--config", str(tmp_path / "tiny.yaml"), "--app", "org.game"]
        phone.fail_after = 1
        code = main([*command, "--episodes", "2", "--replay", str(tmp_path / "replays")])
        said = "".join(capfd.readouterr())
        assert code == 0, said
        assert said.count("out of turns, 2 turns") == 1
        assert "emulator-5554: start: adb ended with code 1: error: device 'emulator-5554' not found" in said
        assert "it failed: env raised" in said
        assert phone.commands[1] == ["am", "force-stop", "org.game"]
        (replay,) = (tmp_path / "replays").iterdir()
        with Image.open(replay) as shown:
            assert shown.n_frames >= 1  # type: ignore[attr-defined]
        assert main(command) == 2  # it is gone before the model is loaded
        assert "--device=emulator-5554: size: " in "".join(capfd.readouterr())


@needs_adb
def test_a_task_on_a_phone_is_played_by_its_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    phone = FakePhone(size=(1080, 2400))
    with adb_server(phone) as port:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        env = PhoneTask(phone.serial, settle=0.0)
        (first,) = env.reset(row(1, "Buy milk."))
        image, text = first["content"]
        assert image["image"].size == (336, 784)
        assert text["text"].startswith("Buy milk.\nWrite one action: tap(x, y)")
        assert not env.step("tap(168, 392)")[2]
        assert phone.taps == [(541, 1201)]  # the middle of what the pixel covers
        assert not env.step('text("oat milk")')[2]
        assert phone.commands[-2] == ["input", "text", "oat%smilk"]
        other = PhoneTask(phone.serial, settle=0.0, patience=0.05)
        with pytest.raises(Exception, match=r"emulator-5554: open: another episode has had the device"):
            other.reset(row(2))
        other.close()
        assert env.step("done()")[3]["end"] == "done"
        env.close()
        other.reset(row(2))  # the device is free again
        other.close()


def test_bad_arguments_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--simulated", "number_game", "--config", "/no/such.yaml"]) == 2
    assert "there is no file /no/such.yaml" in capsys.readouterr().err
    assert main(["--simulated", "number_game", "--episodes", "0"]) == 2
    with pytest.raises(SystemExit):
        main([])
