"""Augmentation: each operation against a slow, obvious reference on real images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from dsal.data import load_dataset
from dsal.training import augment


@pytest.fixture(scope="module")
def images() -> Tensor:
    """Colour images made of three different characters each: (40, 3, 28, 28), with greys in between."""
    data = load_dataset("omniglot").train.images[:120, 0].float()
    smooth = torch.nn.functional.avg_pool2d(data[:, None], 3, 1, 1)[:, 0]
    return smooth.view(40, 3, 28, 28).round().to(torch.uint8)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def as_pil(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def from_pil(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def test_crop_flip_gives_each_image_a_shift_and_perhaps_a_mirror(images: Tensor) -> None:
    out = augment.crop_flip(images, generator())
    padded = torch.nn.functional.pad(images, (4, 4, 4, 4))
    mirrored = 0
    for before, after in zip(padded, out, strict=True):
        windows = [before[:, y : y + 28, x : x + 28] for y in range(9) for x in range(9)]
        straight = any(torch.equal(window, after) for window in windows)
        mirror = any(torch.equal(window.flip(2), after) for window in windows)
        assert straight or mirror
        mirrored += mirror and not straight
    assert 8 <= mirrored <= 32  # of 40, at even odds


def test_the_seed_fixes_everything(images: Tensor) -> None:
    for chain in (
        lambda g: augment.crop_flip(images, g),
        lambda g: augment.trivial(images, 1.0, g),
        lambda g: augment.cutout(images, 8, g),
        lambda g: augment.transformed(images, augment.ROTATIONS, 0.5, g)[0],
        lambda g: augment.mixup(images.float(), 0.2, g)[0],
    ):
        assert torch.equal(chain(generator(1)), chain(generator(1)))
        assert not torch.equal(chain(generator(1)), chain(generator(2)))


def test_cutout_blanks_one_square(images: Tensor) -> None:
    full = torch.full_like(images, 255)
    blank = augment.cutout(full, 8, generator()) == 0
    for image in blank:
        assert torch.equal(image[0], image[1])
        rows, columns = image[0].any(1).nonzero(), image[0].any(0).nonzero()
        assert image[0].sum() == len(rows) * len(columns)  # a filled rectangle, perhaps cut by the border
        assert len(rows) <= 8
        assert len(columns) <= 8


def test_quarter_turns_label_what_they_turn(images: Tensor) -> None:
    out, turns = augment.transformed(images, augment.ROTATIONS, 0.5, generator())
    assert torch.equal(turns == 0, torch.arange(40) >= 20)
    for before, after, turn in zip(images, out, turns, strict=True):
        assert torch.equal(after, torch.rot90(before, int(turn), (1, 2)))


def test_mixup_blends_with_a_partner(images: Tensor) -> None:
    x = images.float()
    out, partner, share = augment.mixup(x, 0.2, generator())
    assert 0 <= share <= 1
    assert sorted(partner.tolist()) == list(range(40))
    torch.testing.assert_close(out, share * x + (1 - share) * x[partner])


def test_trivial_changes_about_the_share_it_is_told(images: Tensor) -> None:
    assert torch.equal(augment.trivial(images, 0.0, generator()), images)
    many = images.repeat(10, 1, 1, 1)
    changed = (augment.trivial(many, 0.5, generator()) != many).flatten(1).any(1).float().mean()
    assert 0.3 < changed < 0.5  # the identity, and operations at strength 0, change nothing


@pytest.mark.parametrize(
    ("operation", "reference"),
    [
        (augment._equalize, lambda image, _: ImageOps.equalize(image)),
        (augment._autocontrast, lambda image, _: ImageOps.autocontrast(image)),
        (augment._posterize, lambda image, level: ImageOps.posterize(image, 8 - round(6 * level))),
        (augment._solarize, lambda image, level: ImageOps.solarize(image, int(np.ceil(255 * (1 - level))))),
        (augment._brightness, lambda image, level: ImageEnhance.Brightness(image).enhance(1 + 0.99 * level)),
        (augment._colour, lambda image, level: ImageEnhance.Color(image).enhance(1 + 0.99 * level)),
        (augment._contrast, lambda image, level: ImageEnhance.Contrast(image).enhance(1 + 0.99 * level)),
        (augment._sharpness, lambda image, level: ImageEnhance.Sharpness(image).enhance(1 + 0.99 * level)),
    ],
)
@pytest.mark.parametrize("level", [0.0, 0.4, 1.0])
def test_colour_operations_agree_with_pillow(images: Tensor, operation, reference, level: float) -> None:  # type: ignore[no-untyped-def]
    levels, signs = torch.full((40,), level), torch.ones(40)
    ours = operation(images.float(), levels, signs).round().clamp(0, 255)
    theirs = torch.stack([from_pil(reference(as_pil(image), level)) for image in images]).float()
    # Pillow rounds its greys and blends to whole numbers on the way.
    assert (ours - theirs).abs().max() <= 2


def test_geometric_operations_move_pixels_where_they_should(images: Tensor) -> None:
    x = images.float()
    one = torch.ones(40)
    right = augment._translate_x(x, one * 7 / 32, one)  # 7 pixels: content moves left where the grid moves right
    assert torch.equal(right[:, :, :, :-7], x[:, :, :, 7:])
    assert (right[:, :, :, -7:] == 0).all()
    down = augment._translate_y(x, one * 7 / 32, -one)
    assert torch.equal(down[:, :, 7:], x[:, :, :-7])
    turned = augment._rotate(x, one * 90 / 135, one)
    assert torch.equal(turned, torch.rot90(x, 1, (2, 3)))
    for still in (augment._shear_x, augment._shear_y, augment._rotate):
        assert torch.equal(still(x, 0 * one, one), x)
    sheared = augment._shear_x(x, one, one)
    assert not torch.equal(sheared, x)
    assert torch.equal(augment._shear_y(x.mT, one, one), sheared.mT)


def test_colour_jitter_is_brightness_contrast_and_saturation(images: Tensor) -> None:
    draws = [1 + 0.4 * (2 * torch.rand(40, generator=g) - 1) for g in [generator(3)] for _ in range(3)]
    out = augment.colour_jitter(images, 0.4, generator(3))
    for number, (before, after) in enumerate(zip(images, out, strict=True)):
        image = as_pil(before)
        for enhance, factors in zip(
            (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color), draws, strict=True
        ):
            image = enhance(image).enhance(float(factors[number]))
        assert (from_pil(image).int() - after.int()).abs().max() <= 3  # Pillow rounds after each of the three
    part = augment.BatchPart(40, slice(1, None, 3))
    assert torch.equal(augment.colour_jitter(images[1::3], 0.4, generator(3), part), out[1::3])
    assert torch.equal(
        augment.crop_flip(images[1::3], generator(3), part=part), augment.crop_flip(images, generator(3))[1::3]
    )


def test_the_order_of_memory_does_not_matter(images: Tensor) -> None:
    """Images from files come as (n, h, w, c) in memory."""
    turned = images.contiguous(memory_format=torch.channels_last)
    level, sign = torch.rand(40, generator=generator()), torch.ones(40)
    for operation in augment.OPERATIONS:
        torch.testing.assert_close(operation(turned.float(), level, sign), operation(images.float(), level, sign))
    assert torch.equal(augment.cutout(turned, 8, generator()), augment.cutout(images, 8, generator()))
    assert torch.equal(augment.crop_flip(turned, generator()), augment.crop_flip(images, generator()))
