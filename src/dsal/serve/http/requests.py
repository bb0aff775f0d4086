"""What requests carry, images with texts, keys and versions, and how OpenAPI describes it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Query, Request
from pydantic import AfterValidator

from dsal.serve.engine.names import class_label
from dsal.serve.http import schemas
from dsal.serve.http.bodies import Bodies, decode_base64, form_files, form_texts
from dsal.serve.http_errors import Refusal

Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
Match = Annotated[
    str | None,
    Header(alias="If-Match", max_length=200, description="The version the change is meant for; another gives 412."),
    AfterValidator(lambda tag: None if tag is None or tag.strip() == "*" else tag.strip().strip('"')),
]
SkipBroken = Annotated[bool, Query(description="Skip images that cannot be read, and report which.")]
LABELS = "One class name per image, or one for all images."
HASHES = "SHA-256 of the original file of each image, in hexadecimal, if the images are smaller copies."


def image_body(required: str = "", **texts: str) -> dict[str, Any]:
    """Return the OpenAPI description of a body with images and fields of texts, one of them perhaps required."""

    def fields(**image: str) -> dict[str, Any]:
        arrays = {"images": {"type": "array", "items": {"type": "string", **image}, "minItems": 1}}
        for name, meaning in texts.items():
            arrays[name] = {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": meaning}
        return {"type": "object", "properties": arrays, "required": ["images", required] if required else ["images"]}

    return schemas.body(form=fields(format="binary"), json=fields(contentEncoding="base64"))


async def images_of(bodies: Bodies, request: Request, field: str = "labels") -> tuple[list[bytes], list[Any]]:
    """Return the image files of a multipart or JSON body, and the texts of another field."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    max_images = bodies.settings.max_images
    texts: list[Any]
    if kind == "multipart/form-data":
        form = await bodies.form(request)
        images, texts = form_files(form, "images"), list(form_texts(form, field))
        await form.close()
    elif kind == "application/json":
        body = await bodies.read(request)
        document = await bodies.json(body)
        if not isinstance(document, dict) or not isinstance(document.get("images"), list):
            raise Refusal(422, 'the body must be {"images": [base64, ...]}, and for a lesson "labels": [...]')
        given = document.get(field, [])
        texts = given if isinstance(given, list) else [given]
        if len(document["images"]) > max_images:
            raise Refusal(413, f"a request may contain at most {max_images} images, got {len(document['images'])}")
        images = await bodies.off_loop(len(body), lambda: [decode_base64(image) for image in document["images"]])
    else:
        raise Refusal(415, f"send images as multipart/form-data or application/json, not {kind[:80] or 'nothing'!r}")
    if not images:
        raise Refusal(422, "the request has no images: send them as files in the field 'images'")
    return images, texts


async def labelled_images_of(bodies: Bodies, request: Request) -> tuple[list[bytes], list[str]]:
    """Return the image files of a body with a label for each."""
    images, labels = await images_of(bodies, request)
    if len(labels) not in (1, len(images)):
        raise Refusal(
            422, f"send one label for all images or one per image: {len(images)} images, {len(labels)} labels"
        )
    checked = [class_label(label) for label in labels]
    return images, checked * len(images) if len(checked) == 1 else checked
