"""Files as users have them: every mode, every damage; each read right or refused by name."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from dsal.data.images.decode import check_broken, checked_source, decode_batches, decode_image
from dsal.errors import FileFormatError, InputError


@pytest.fixture
def picture() -> Image.Image:
    """60 x 40; the left half red, the right half blue, a green stripe on top."""
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:, :30, 0] = pixels[:, 30:, 2] = 255
    pixels[:10] = (0, 255, 0)
    return Image.fromarray(pixels)


def close(image: NDArray[np.uint8], other: NDArray[np.uint8], limit: float = 6.0) -> bool:
    return bool(np.abs(image.astype(float) - other.astype(float)).mean() < limit)


def test_middle_of_the_image(picture: Image.Image, tmp_path: Path) -> None:
    picture.save(tmp_path / "a.png")
    image = decode_image(tmp_path / "a.png", 40, crop=1.0)
    assert image.shape == (3, 40, 40)
    assert image.dtype == np.uint8
    assert np.array_equal(image, np.array(picture)[:, 10:50].transpose(2, 0, 1))  # no resizing needed


def test_tall_images_are_resized_across_first(tmp_path: Path) -> None:
    """As wide ones are; Pillow 13 alone would resize some of these down first, and differ by up to 20 grey levels."""
    random, size = np.random.default_rng(0), 96
    for width, height in ((60, 100), (96, 97), (100, 300), (150, 151), (150, 206), (300, 900)):
        image = Image.fromarray(random.integers(0, 256, (height, width, 3), np.uint8))
        side = 0.875 * width
        left, upper = (width - side) / 2, (height - side) / 2
        across = image.resize((size, height), Image.Resampling.BICUBIC, box=(left, 0, left + side, height))
        expected = across.resize((size, size), Image.Resampling.BICUBIC, box=(0, upper, size, upper + side))
        found = decode_image(image, size).transpose(1, 2, 0)
        np.testing.assert_array_equal(found, np.asarray(expected), f"{width} x {height}")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(picture: Image.Image, tmp_path: Path, orientation: int) -> None:
    back = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # the transposition that a viewer undoes
    stored = picture if orientation == 1 else picture.transpose(Image.Transpose(back[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "a.jpg", exif=exif, quality=95, subsampling=0)
    picture.save(tmp_path / "b.jpg", quality=95, subsampling=0)
    assert close(decode_image(tmp_path / "a.jpg", 32), decode_image(tmp_path / "b.jpg", 32))


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "RGBA", "1", "LA", "YCbCr", "LAB"])
def test_modes(picture: Image.Image, tmp_path: Path, mode: str) -> None:
    if mode == "LAB":
        from PIL import ImageCms

        lab = ImageCms.createProfile("LAB")
        image = ImageCms.profileToProfile(picture, ImageCms.createProfile("sRGB"), lab, outputMode="LAB")
        assert image is not None
    else:
        image = picture.convert(mode)
    path = tmp_path / ("a.tif" if mode in ("CMYK", "YCbCr", "LAB") else "a.png")
    image.save(path)
    expected = picture if mode in ("P", "CMYK", "RGBA", "YCbCr", "LAB") else picture.convert(mode).convert("RGB")
    expected.save(tmp_path / "b.png")
    assert close(decode_image(path, 32), decode_image(tmp_path / "b.png", 32), 12.0)


def test_cmyk_jpeg(picture: Image.Image, tmp_path: Path) -> None:
    picture.convert("CMYK").save(tmp_path / "a.jpg", quality=95)
    picture.save(tmp_path / "b.png")
    assert close(decode_image(tmp_path / "a.jpg", 32), decode_image(tmp_path / "b.png", 32), 12.0)


def test_sixteen_bits(tmp_path: Path) -> None:
    ramp = np.linspace(0, 65535, 1600).reshape(40, 40).astype(np.uint16)
    Image.fromarray(ramp).save(tmp_path / "a.png")
    Image.fromarray((ramp / 257).round().astype(np.uint8)).save(tmp_path / "b.png")
    sixteen, eight = decode_image(tmp_path / "a.png", 32), decode_image(tmp_path / "b.png", 32)
    assert close(sixteen, eight, 1.0)
    assert sixteen.max() > 200


def test_transparency_is_white(tmp_path: Path) -> None:
    Image.new("RGBA", (20, 20), (255, 0, 0, 0)).save(tmp_path / "a.png")
    assert (decode_image(tmp_path / "a.png", 16) == 255).all()


def test_first_frame_of_an_animation(picture: Image.Image, tmp_path: Path) -> None:
    other = Image.new("RGB", picture.size, "black")
    picture.save(tmp_path / "a.gif", save_all=True, append_images=[other, other])
    picture.save(tmp_path / "b.png")
    assert close(decode_image(tmp_path / "a.gif", 32), decode_image(tmp_path / "b.png", 32), 12.0)


def test_grey_backbone(picture: Image.Image, tmp_path: Path) -> None:
    picture.save(tmp_path / "a.png")
    assert decode_image(tmp_path / "a.png", 28, channels=1).shape == (1, 28, 28)


def test_one_pixel(tmp_path: Path) -> None:
    Image.new("RGB", (1, 900), (9, 8, 7)).save(tmp_path / "a.png")
    assert np.unique(decode_image(tmp_path / "a.png", 16)).tolist() == [7, 8, 9]


def damaged(folder: Path, picture: Image.Image, kind: str) -> Path:
    path = folder / f"{kind}.png"
    picture.save(path)
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "text": b"no image at all", "torn": whole[:90]}[kind])
    return path


@pytest.mark.parametrize(
    ("kind", "reason"), [("empty", "is empty"), ("text", "not an image"), ("torn", "truncated|broken|OSError")]
)
def test_damage_names_the_file(picture: Image.Image, tmp_path: Path, kind: str, reason: str) -> None:
    path = damaged(tmp_path, picture, kind)
    with pytest.raises(FileFormatError, match=reason) as caught:
        decode_image(path, 32)
    assert str(path) in str(caught.value)


def test_any_torn_jpeg_is_read_or_refused(picture: Image.Image, tmp_path: Path) -> None:
    picture.save(tmp_path / "a.jpg")
    whole = (tmp_path / "a.jpg").read_bytes()
    for length in range(0, len(whole) - 2, 7):
        (tmp_path / "b.jpg").write_bytes(whole[:length])
        with pytest.raises(FileFormatError):
            decode_image(tmp_path / "b.jpg", 16)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no such file"):
        decode_image(tmp_path / "a.png", 32)


def test_batches_keep_order_and_stop_at_a_damaged_file(picture: Image.Image, tmp_path: Path) -> None:
    paths = []
    for level in range(10):
        paths.append(tmp_path / f"{level}.png")
        Image.new("RGB", (8, 8), (level, level, level)).save(paths[-1])
    batches = list(decode_batches(paths, 8, batch_size=4, workers=3))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert [int(image[0, 0, 0]) for batch in batches for image in batch] == list(range(10))
    paths[3:3] = [damaged(tmp_path, picture, "torn")]
    with pytest.raises(FileFormatError, match=r"torn\.png"):
        list(decode_batches(paths, 8, batch_size=4))


def test_wrong_options() -> None:
    with pytest.raises(InputError, match='must be "stop" or "skip"'):
        check_broken("skipp")
    with pytest.raises(InputError, match="batch size"):
        list(decode_batches([], 8, batch_size=0))


def test_bytes_pillow_images_and_arrays_are_what_their_file_is(picture: Image.Image, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    picture.save(path)
    expected = decode_image(path, 32)
    for source in (
        path.read_bytes(),
        picture,
        np.asarray(picture),
        np.dstack([picture, np.full((40, 60), 255, np.uint8)]),
    ):
        assert np.array_equal(decode_image(checked_source(source), 32), expected)
    assert picture.size == (60, 40)  # the caller's image is as it was
    with pytest.raises(FileFormatError, match="number 2"):
        list(decode_batches([picture, b"no image at all"], 32))
    for wrong in (np.zeros((4, 4, 2), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)):
        with pytest.raises(InputError, match="uint8 array"):
            checked_source(wrong)
    with pytest.raises(InputError, match="not int"):
        checked_source(3)
