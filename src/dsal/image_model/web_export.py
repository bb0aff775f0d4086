"""Export an image model as a folder, or a zip of it, that classifies in any browser without a server of its own."""

from __future__ import annotations

import html
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dsal.data.images.decode import CROP
from dsal.errors import InputError
from dsal.files.atomic import StrPath, atomic_write
from dsal.image_model.graph_export import onnx_content
from dsal.image_model.model import ImageModel
from dsal.image_model.outcomes import THRESHOLD
from dsal.image_model.sources import plural

INSTALLED = "node_modules/onnxruntime-web/dist/"  # where npm puts the runtime
_COPIED = "runtime/"
_RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
_PAGE = Path(__file__).with_name("web")


def web_files(model: ImageModel, title: str, runtime: str | None = None) -> dict[str, bytes]:
    """Return the files of the folder by their path in it.

    Args:
        model: the model.
        title: what to call it on the page.
        runtime: where the page gets onnxruntime-web from: a folder with the installed package, whose files are copied;
            an https address; or None for ``npm install`` in the folder.

    Raises:
        InputError: there is no runtime in that folder, or the packages that write ONNX are not installed.
    """
    files, place, origin = {}, INSTALLED, ""
    if runtime is not None and urlsplit(runtime).scheme == "https":
        place = runtime.rstrip("/") + "/"
        origin = f" https://{urlsplit(runtime).netloc} blob:"
    elif runtime is not None:
        place = _COPIED
        files = {_COPIED + path.name: path.read_bytes() for path in _runtime(Path(runtime))}
    about: dict[str, Any] = {
        "title": title,
        "labels": list(model.classes),
        "size": model.backbone.card.size,
        "channels": model.backbone.card.in_channels,
        "crop": CROP,
        "threshold": THRESHOLD,
        "runtime": place,
    }
    package = {"private": True, "type": "module", "dependencies": {"onnxruntime-web": "^1.20.0"}}
    classes = plural(len(model.classes), "class")
    page = (_PAGE / "index.html").read_text(encoding="utf-8")
    for name, value in (("title", html.escape(title)), ("classes", classes), ("origin", html.escape(origin))):
        page = page.replace(f"{{{name}}}", value)
    fixed = {path.relative_to(_PAGE).as_posix(): path.read_bytes() for path in sorted(_PAGE.rglob("*.*"))}
    return {
        **{name: content for name, content in fixed.items() if "__pycache__" not in name},
        "index.html": page.encode(),
        "model.json": json.dumps(about, indent=1, ensure_ascii=False).encode(),
        "package.json": json.dumps(package, indent=1).encode(),
        "model.onnx": onnx_content(model),
        **files,
    }


def export_web(model: ImageModel, folder: StrPath, title: str, runtime: str | None = None) -> None:
    """Write the folder; one that was exported before is updated, and other files in it, such as the runtime, stay.

    Raises:
        InputError: the folder holds something else; and see :func:`web_files`.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: give the name of a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "model.json").is_file():
        raise InputError(f"{folder} is not empty, and was not exported before: give the name of a new folder")
    files = web_files(model, title, runtime)
    if (folder / _COPIED).is_dir():
        shutil.rmtree(folder / _COPIED)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / name) as temporary:
            temporary.write_bytes(content)


def export_zip(model: ImageModel, path: StrPath, title: str, runtime: str | None = None) -> None:
    """Write the folder as one zip file."""
    files = web_files(model, title, runtime)
    with atomic_write(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(f"{Path(path).stem}/{name}"), content, zipfile.ZIP_DEFLATED)


def _runtime(folder: Path) -> list[Path]:
    """Return the files of onnxruntime-web that the page needs."""
    for place in (folder, folder / "dist", folder / INSTALLED):
        if all((place / name).is_file() for name in _RUNTIME):
            return [place / name for name in _RUNTIME]
    raise InputError(f"there is no onnxruntime-web in {folder}: npm install onnxruntime-web, and give that folder")
