"""Classify photographs: pip install onnxruntime pillow, then python examples/predict.py PHOTO..."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

FOLDER = Path(__file__).resolve().parents[1]


def pixels(path: str, size: int, channels: int, crop: float) -> Any:
    """Return the middle of an image (channels, size, size), as the model was taught."""
    with Image.open(path) as image:
        image.draft(image.mode, (2 * size, 2 * size))
        upright = ImageOps.exif_transpose(image)
        if "A" in upright.getbands() or "transparency" in upright.info:
            colours = upright.convert("RGBA")
            upright = Image.alpha_composite(Image.new("RGBA", colours.size, "white"), colours)
        upright = upright.convert("RGB" if channels == 3 else "L")
    side = min(upright.size) * crop
    left, upper = (upright.width - side) / 2, (upright.height - side) / 2
    above = max(0, int(upper - 2 * max(side / size, 1)))  # so that every version of Pillow resizes in the same order
    upright = upright.crop((0, above, upright.width, upright.height - above))
    box = (left, upper - above, left + side, upper - above + side)
    middle = upright.resize((size, size), Image.Resampling.BICUBIC, box=box, reducing_gap=3.0)
    return np.asarray(middle).reshape(size, size, channels).transpose(2, 0, 1)


def main() -> None:
    """Print one JSON object for each photograph."""
    import onnxruntime

    about = json.loads((FOLDER / "model.json").read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(FOLDER / "model.onnx", providers=["CPUExecutionProvider"])
    for path in sys.argv[1:]:
        images = pixels(path, about["size"], about["channels"], about["crop"])[None]
        probabilities, novelty = session.run(["probabilities", "novelty"], {"images": images})
        best = int(probabilities[0].argmax())
        label = "unknown" if novelty[0] > about["threshold"] else about["labels"][best]
        answer = {"path": path, "label": label, "score": float(probabilities[0, best]), "novelty": float(novelty[0])}
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
