"""The simulated device: deterministic by seed, with its troubles."""

from __future__ import annotations

from typing import Any

import pytest
from number_game.board import NumberBoard
from phone.device import DeviceError, is_black
from phone.simulated import SimulatedDevice, Trouble, read_trouble, screen_size
from tree_game.menu import TreeMenu

from whet.errors import UserError

SIZE = (84, 84)


def board(seed: int = 1) -> NumberBoard:
    return NumberBoard(seed, columns=2, rows=2, count=3, highest=3)


def touch_wanted(device: SimulatedDevice) -> None:
    x, y = device.app.wanted.middle  # type: ignore[attr-defined]
    device.tap(int(x * SIZE[0]), int(y * SIZE[1]))


def played(seed: int, **trouble: Any) -> list[bytes]:
    device = SimulatedDevice(board(seed), SIZE, seed, Trouble(**trouble))
    pictures = [device.screenshot().tobytes()]
    for place in (21, 63, 42):
        device.tap(place, place)
        pictures.append(device.screenshot().tobytes())
    return pictures


def test_pixels_follow_from_the_seed_and_the_calls() -> None:
    trouble = {"animation": 0.3, "drop": 0.3, "popup": 0.5}
    assert played(4, **trouble) == played(4, **trouble)
    assert played(4) != played(5)


def test_every_number_has_its_colour_on_the_screen() -> None:
    app = board()
    picture = app.draw(SIZE)
    assert picture.size == SIZE
    assert not is_black(picture)
    shades = {}
    for tile in app.tiles:
        shades[tile.number] = picture.getpixel((int(tile.left * 84 + 4), int(tile.middle[1] * 84)))
    assert shades == {1: (240, 30, 30), 2: (20, 200, 50), 3: (40, 60, 250)}


def test_numbers_go_in_ascending_order_and_others_are_mistakes() -> None:
    app = board()
    order = sorted(app.tiles, key=lambda tile: tile.number)
    assert not app.tap(*order[1].middle)
    assert (len(app.tiles), app.mistakes) == (3, 1)
    assert not app.tap(0.0, 0.0)  # beside all tiles
    assert app.mistakes == 1
    assert all(app.tap(*tile.middle) for tile in order)
    assert not app.tiles


def test_tiles_stay_in_their_cells_and_do_not_overlap() -> None:
    for seed in range(30):
        tiles = NumberBoard(seed).tiles
        assert len({tile.number for tile in tiles}) == len(tiles) == 5
        for at, one in enumerate(tiles):
            assert 0 <= one.left < one.right <= 1
            assert 0 <= one.top < one.bottom <= 1
            for other in tiles[at + 1 :]:
                apart = one.right <= other.left or other.right <= one.left
                assert apart or one.bottom <= other.top or other.bottom <= one.top


def test_an_animation_fades_and_takes_no_touch() -> None:
    device = SimulatedDevice(board(), SIZE, trouble=Trouble(animation=1.0))
    before = device.screenshot().tobytes()
    touch_wanted(device)
    between = device.screenshot().tobytes()
    touch_wanted(device)  # too early
    assert len(device.app.tiles) == 2
    device.wait(1.0)
    after = device.screenshot().tobytes()
    assert len({before, between, after}) == 3
    touch_wanted(device)
    assert len(device.app.tiles) == 1


def test_touches_are_dropped_as_often_as_asked() -> None:
    device = SimulatedDevice(board(), SIZE, trouble=Trouble(drop=1.0))
    touch_wanted(device)
    assert len(device.app.tiles) == 3
    left = 0
    for seed in range(200):
        device = SimulatedDevice(board(), SIZE, seed, Trouble(drop=0.3))
        touch_wanted(device)
        left += len(device.app.tiles) == 3
    assert 35 < left < 90


@pytest.mark.parametrize("way", ["cross", "back"])
def test_a_window_covers_the_app_until_it_is_closed(way: str) -> None:
    device = SimulatedDevice(board(), SIZE, trouble=Trouble(popup=1.0))
    touch_wanted(device)
    covered = device.screenshot()
    assert covered.tobytes() != device.app.draw(SIZE).tobytes()
    touch = device.app.wanted.middle
    if not (0.35 <= touch[0] <= 0.65 and 0.4 <= touch[1] <= 0.6):
        touch_wanted(device)
        assert len(device.app.tiles) == 2  # the app is not reached
    device.tap(42, 42) if way == "cross" else device.key("back")
    assert device.screenshot().tobytes() == device.app.draw(SIZE).tobytes()


@pytest.mark.parametrize("fault", ["disconnect", "black", "hang"])
def test_faults_name_the_device_and_the_call(fault: str) -> None:
    device = SimulatedDevice(board(), SIZE, trouble=Trouble(fault=fault, fault_call=1), name="phone 7")
    device.screenshot()
    with pytest.raises(DeviceError, match=r"^phone 7: screenshot: "):
        device.screenshot()


def test_bad_settings_are_refused() -> None:
    for bad in ({"drop": 2}, {"popup": -0.1}, {"animation": -1}, {"fault": "explode"}, {"lag": 1}):
        with pytest.raises(UserError, match=next(iter(bad))):
            read_trouble(bad)
    for size in ([84], [0, 84], [84, 100_000], ["a", "b"]):
        with pytest.raises(UserError, match="size="):
            screen_size(size)
    with pytest.raises(UserError, match="count=5"):
        NumberBoard(1, 2, 2, 5)
    with pytest.raises(UserError, match="names='birds'"):
        TreeMenu(1, names="birds")
    with pytest.raises(UserError, match="depth=4"):
        TreeMenu(1, depth=4)


def test_a_tree_is_walked_by_buttons_and_back() -> None:
    for seed in range(20):
        menu = TreeMenu(seed)
        assert (len(menu.root.branches), menu.distance) == (3, 3)
        picture = menu.draw((392, 784)).tobytes()
        for left in (2, 1, 0):
            way = menu.leaf.path[3 - left - 1]
            at = next(i for i, node in enumerate(menu.here.branches) if node.name == way)
            box = menu.boxes()[at]
            assert menu.tap((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
            assert menu.distance == left
        assert menu.here is menu.leaf
        assert all(menu.key("back") for _ in range(3))
        assert not menu.key("back")
        assert menu.draw((392, 784)).tobytes() == picture


def test_a_tree_of_colours_has_no_two_branches_of_a_name() -> None:
    menu = TreeMenu(3, depth=2, branches=3, names="colours")
    for node in (menu.root, *menu.root.branches):
        assert len({branch.name for branch in node.branches}) == 3
        assert {branch.name for branch in node.branches} <= {"red", "green", "blue", "white"}
