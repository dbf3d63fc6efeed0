"""AndroidDevice through the real `adb` program against a server of our own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from games.fake_adb_server import FakePhone, adb_server
from phone import adb
from phone.adb import AndroidDevice
from phone.device import DeviceError, Unreachable

from whet.errors import UserError

pytestmark = pytest.mark.skipif(
    shutil.which("adb") is None and find_spec("adbutils") is None, reason="needs adb: pip install adbutils"
)


@pytest.fixture
def phone(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePhone]:
    phone = FakePhone()
    with adb_server(phone) as port:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        yield phone


@pytest.fixture
def device(phone: FakePhone) -> AndroidDevice:
    return AndroidDevice(phone.serial, seconds=20, pause=0.01)


def test_a_screen_is_seen_and_touched(phone: FakePhone, device: AndroidDevice) -> None:
    assert device.size() == (108, 240)
    assert device.screenshot().getpixel((10, 20)) == (90, 120, 160)
    device.tap(10, 20)
    assert device.screenshot().getpixel((10, 20)) == (250, 250, 0)
    device.swipe(1, 2, 3, 4, 0.25)
    device.key("back")
    device.start("org.game/.Main")
    device.start("org.game")
    assert phone.commands[-6:] == [
        ["input", "swipe", "1", "2", "3", "4", "250"],
        ["input", "keyevent", "KEYCODE_BACK"],
        ["am", "force-stop", "org.game"],
        ["am", "start", "-n", "org.game/.Main"],
        ["am", "force-stop", "org.game"],
        ["monkey", "-p", "org.game", "1"],
    ]


@pytest.mark.parametrize("text", ["a b", "$(reboot); `id` && x > /sdcard/y", "100%s", 'it\'s "so"', "-n", "%%s s"])
def test_what_is_typed_arrives_as_it_is(text: str, phone: FakePhone, device: AndroidDevice) -> None:
    device.text(text)
    assert all(words[:2] == ["input", "text"] and len(words) == 3 for words in phone.commands)
    assert "".join(words[2].replace("%s", " ") for words in phone.commands) == text


def test_input_that_is_no_input_is_refused_before_the_device(phone: FakePhone, device: AndroidDevice) -> None:
    device.screenshot()
    for call in (
        lambda: device.tap(108, 0),
        lambda: device.tap(-1, 0),
        lambda: device.swipe(0, 0, 0, 240),
        lambda: device.text("\u00e9"),
        lambda: device.text("a\nb"),
        lambda: device.key("KEYCODE_POWER; reboot"),
    ):
        with pytest.raises(DeviceError, match=r"^emulator-5554: "):
            call()
    for app in ("a;b", "org.game/.Main;reboot", "-n", "a b"):
        with pytest.raises(UserError, match="is no app"):
            device.start(app)
    for serial in ("", "a b", "emulator-5554;reboot", "$(x)"):
        with pytest.raises(UserError, match="is no serial number"):
            AndroidDevice(serial)
    assert phone.commands == [["screencap", "-p"]]


def test_a_call_that_did_not_arrive_is_repeated(phone: FakePhone, device: AndroidDevice) -> None:
    device.size()
    phone.lost_calls = 2
    device.tap(1, 2)
    assert phone.taps == [(1, 2)]


def test_a_device_that_is_gone_is_named(phone: FakePhone, device: AndroidDevice) -> None:
    device.size()
    phone.attached = False
    with pytest.raises(Unreachable, match=r"emulator-5554: tap: .*device 'emulator-5554' not found"):
        device.tap(1, 2)
    with pytest.raises(DeviceError, match=r"nobody-1: size: .*not found"):
        AndroidDevice("nobody-1", pause=0.01).size()


@pytest.mark.parametrize(("fault", "said"), [("black", "the picture is black"), ("garbled", "are no picture")])
def test_a_screenshot_that_shows_nothing_is_taken_again_and_named(
    fault: str, said: str, phone: FakePhone, device: AndroidDevice
) -> None:
    setattr(phone, fault, True)
    with pytest.raises(DeviceError, match=rf"emulator-5554: screenshot: .*{said}"):
        device.screenshot()
    assert phone.screenshots == 3


def test_a_device_that_hangs_is_left_in_time_and_a_tap_is_not_repeated(phone: FakePhone) -> None:
    device = AndroidDevice(phone.serial, seconds=0.3, pause=0.01)
    device._size = phone.size
    phone.hangs = True
    with pytest.raises(DeviceError, match=r"emulator-5554: tap: no answer within 0.3 s"):
        device.tap(1, 2)
    assert phone.requests <= 1


def test_an_app_that_does_not_start_is_named(phone: FakePhone, device: AndroidDevice) -> None:
    with pytest.raises(DeviceError, match=r"start: no.such.app/.Main was not started: Error"):
        device.start("no.such.app/.Main")


def test_a_missing_adb_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adb.shutil, "which", lambda name: None)
    monkeypatch.setitem(__import__("sys").modules, "adbutils", None)
    with pytest.raises(UserError, match="adb was not found"):
        AndroidDevice("emulator-5554")
    with pytest.raises(DeviceError, match=r"emulator-5554: size: /no/adb cannot be run"):
        AndroidDevice("emulator-5554", adb="/no/adb").size()
