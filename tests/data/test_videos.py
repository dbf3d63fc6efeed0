from __future__ import annotations

import importlib.util
import io
from itertools import pairwise

import pytest
from PIL import Image

from whet.data.columns import MediaError
from whet.data.videos import evenly, open_video

SHADES = [0, 40, 80, 120, 160, 200, 240]


def pictures(count: int = 7, size=(12, 8)) -> list[Image.Image]:
    return [Image.new("RGB", size, (shade, 0, 255 - shade)) for shade in SHADES[:count]]


def shades(frames: list[Image.Image]) -> list[int]:
    return [frame.getpixel((5, 5))[0] for frame in frames]


def animation(kind: str, milliseconds: int) -> bytes:
    first, *others = pictures()
    file = io.BytesIO()
    options = {"lossless": True} if kind == "WEBP" else {}
    first.save(file, kind, save_all=True, append_images=others, duration=milliseconds, loop=0, **options)
    return file.getvalue()


def test_frames_are_kept_as_they_are(tmp_path):
    for index, picture in enumerate(pictures(5)):
        picture.save(tmp_path / f"{index:03d}.png")
    (tmp_path / "notes.txt").write_text("not a frame")
    files = sorted(tmp_path.glob("*.png"))
    forms = [pictures(5), [str(file) for file in files], [file.read_bytes() for file in files], str(tmp_path)]
    for form in forms:
        video = open_video(form, None, fps=2.0)
        assert (video.frames, video.size, video.fps) == (5, (12, 8), 2.0)
        assert shades(video.read()) == SHADES[:5]
    relative = open_video([file.name for file in files], tmp_path, fps=2.0)
    assert shades(relative.read()) == SHADES[:5]


def test_frames_that_say_how_fast_they_come_are_thinned_out():
    video = open_video({"frames": pictures(6), "fps": 6}, None, fps=2.0)
    assert (video.frames, video.fps) == (2, 2.0)
    assert shades(video.read()) == [0, 120]


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_animations_are_read_by_their_own_clock(kind, tmp_path):
    data = animation(kind, 250)
    (tmp_path / f"a.{kind.lower()}").write_bytes(data)
    for source in (data, {"bytes": data}, f"a.{kind.lower()}"):
        video = open_video(source, tmp_path, fps=2.0)
        assert video.frames == 4
        assert video.fps == pytest.approx(4 / 1.75)
        assert video.size == (12, 8)
        assert shades(video.read()) == [0, 40, 120, 200]
        assert shades(video.read()) == [0, 40, 120, 200]


@pytest.mark.parametrize(
    ("total", "source_fps", "fps", "count", "rate"),
    [
        (100, 25, 2, 8, 2.0),
        (10, 30, 2, 2, 6.0),
        (1, 30, 2, 1, 30.0),
        (5, 1, 2, 5, 1.0),
        (100_000, 25, 2, 768, 768 / 4000),
    ],
)
def test_sampling_is_even(total, source_fps, fps, count, rate):
    indices, sampled = evenly(total, source_fps, fps)
    assert len(indices) == len(set(indices)) == count
    assert indices == sorted(indices)
    assert indices[0] == 0
    assert indices[-1] < total
    assert sampled == pytest.approx(rate)
    gaps = {after - before for before, after in pairwise(indices)}
    assert not gaps or max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "has no frames"),
        ([None], "bad frame: number 1 is a NoneType"),
        (pictures(1)[0], "one still picture"),
        ({"frames": pictures(2), "fps": 0}, "says fps=0"),
        ({"frames": pictures(2), "fps": "fast"}, "says fps='fast'"),
        ({"frames": []}, "has no frames"),
        ("no.mp4", "not there: no.mp4"),
        (7, "is a int"),
        (b"neither", "is no picture|is no video"),
    ],
)
def test_bad_videos(source, message):
    with pytest.raises(MediaError, match=message):
        open_video(source, None, 2.0).read()


def test_a_still_picture_is_no_video(tmp_path):
    pictures(1)[0].save(tmp_path / "a.jpg")
    with pytest.raises(MediaError, match=r"one still picture \(.*a\.jpg\); the frames of a video are a list"):
        open_video("a.jpg", tmp_path, 2.0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(MediaError, match="has no frames"):
        open_video("empty", tmp_path, 2.0)


@pytest.mark.skipif(importlib.util.find_spec("av") is not None, reason="PyAV is there")
def test_a_video_file_without_pyav(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    with pytest.raises(MediaError, match=r"is a video file \(.*a\.mp4\), which needs PyAV: pip install whet"):
        open_video("a.mp4", tmp_path, 2.0)


def test_a_video_file(tmp_path):
    av = pytest.importorskip("av", reason="needs PyAV")
    with av.open(str(tmp_path / "a.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height = 64, 48
        for shade in range(0, 250, 10):
            frame = av.VideoFrame.from_image(Image.new("RGB", (64, 48), (shade, shade, shade)))
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    data = (tmp_path / "a.mp4").read_bytes()
    for source in ("a.mp4", data):
        video = open_video(source, tmp_path, 2.0)
        assert (video.frames, video.size) == (5, (64, 48))
        assert video.fps == pytest.approx(2.0)
        assert shades(video.read()) == pytest.approx([0, 50, 100, 150, 200], abs=12)
    with pytest.raises(MediaError, match=r"is no video|cannot be decoded|ends early"):
        open_video(data[: len(data) // 2], None, 2.0).read()
