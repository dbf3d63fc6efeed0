"""Pictures of recorded samples: each kept once, at its place, within a limit."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from PIL import Image

from whet.tracking.pictures import PROMPT, PictureFiles
from whet.tracking.token_records import TokenFiles, TokenRecord
from whet.types import Media, Prompt, Sample, Segment


def picture(colour: str, size: tuple[int, int] = (8, 8)) -> Image.Image:
    return Image.new("RGB", size, colour)


def episode(prompt: Prompt, seen: Image.Image) -> Sample:
    """An answer of three tokens, a picture with two, and another answer."""
    segments = [Segment([1, 2, 3]), Segment([4, 5], False, media=Media(images=[seen])), Segment([6])]
    return Sample(prompt, segments, "stop")


def test_pictures_are_kept_once_with_their_places(tmp_path: Path) -> None:
    prompt = Prompt("train.jsonl:1", [1], "look", media=Media(images=[picture("red"), picture("blue")]))
    samples = [episode(prompt, picture("green")), episode(prompt, picture("red"))]
    first, second = PictureFiles(tmp_path / "pictures", 10**6).keep(samples)
    assert [each["at"] for each in first] == [PROMPT, PROMPT, 3]
    assert second[2]["file"] == first[0]["file"]  # the same pixels
    assert len(list((tmp_path / "pictures").iterdir())) == 3
    with Image.open(tmp_path / "pictures" / first[0]["file"]) as read:
        assert read.getpixel((0, 0)) == (255, 0, 0)
    assert PictureFiles(tmp_path / "pictures", 10**6).keep(samples) == [first, second]  # of a run that was resumed


def test_large_pictures_are_made_smaller_and_videos_thinned(tmp_path: Path) -> None:
    frames = [picture(f"rgb({i}, 0, 0)") for i in range(20)]
    media = Media(images=[picture("red", (3000, 600))], videos=[frames])
    (kept,) = PictureFiles(tmp_path, 10**6).keep([Sample(Prompt("a", [1], "", media=media), [Segment([1])], "stop")])
    assert len(kept) == 1 + 7
    with Image.open(tmp_path / kept[0]["file"]) as read:
        assert read.size == (1024, 205)
        assert read.format == "JPEG"


def test_beyond_the_limit_no_picture_is_added(tmp_path: Path) -> None:
    prompt = Prompt("a", [1], "", media=Media(images=[picture("red")]))
    (kept,) = PictureFiles(tmp_path, 0).keep([episode(prompt, picture("green"))])
    assert [each["at"] for each in kept] == [PROMPT]  # the first did not know how much it would take


def test_token_records_name_the_pictures_of_their_samples(tmp_path: Path) -> None:
    plain = Sample(Prompt("a", [1], ""), [Segment([1])], "stop")
    seen = Sample(Prompt("b", [1], "", media=Media(images=[picture("red")])), [Segment([1])], "stop")
    files = TokenFiles(tmp_path / "tokens", 10**6, tmp_path / "pictures")
    files.write(1, [TokenRecord(0, plain, [0.0], [0.0], None, None)])
    assert "pictures" not in pq.read_schema(tmp_path / "tokens" / "train_000001.parquet").names
    assert not (tmp_path / "pictures").exists()
    files.write(2, [TokenRecord(i, sample, [0.0], [0.0], None, None) for i, sample in enumerate((plain, seen))])
    rows = pq.read_table(tmp_path / "tokens" / "train_000002.parquet").to_pylist()
    assert rows[0]["pictures"] == []
    assert rows[1]["pictures"][0]["at"] == PROMPT
    assert (tmp_path / "pictures" / rows[1]["pictures"][0]["file"]).is_file()
