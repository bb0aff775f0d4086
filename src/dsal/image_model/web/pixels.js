// Photographs to pixels, decoded as Pillow does.

import { fractionOf } from "./classify.js";

/** Return an image for classify(): RGBA, upright, on white. */
export async function pixelsOf(file, side) {
  const start = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const isJpeg = start[0] === 0xff && start[1] === 0xd8;
  const small = isJpeg ? await reducedJpeg(file, side) : null;
  const picture = small ?? await createImageBitmap(file, { imageOrientation: "from-image", colorSpaceConversion: "none" });
  const canvas = new OffscreenCanvas(picture.displayWidth ?? picture.width, picture.displayHeight ?? picture.height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white"; // under what is transparent
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(picture, 0, 0);
  picture.close();
  const { width, height, data } = context.getImageData(0, 0, canvas.width, canvas.height);
  return { width, height, data, jpeg: isJpeg && !small };
}

/**
 * Return a large JPEG as a VideoFrame at a fraction of its size, or null: it is not large, or the browser cannot do it.
 * Chromium's ImageDecoder reduces as Pillow does: libjpeg averages before it rounds. Averages of the full picture, the
 * way of other browsers, differ by 0.2 grey levels, which can change a score by 0.04.
 */
async function reducedJpeg(file, side) {
  if (!("ImageDecoder" in globalThis)) return null;
  const content = await file.arrayBuffer();
  const stored = storedSize(new DataView(content)); // before it is rotated
  const fraction = stored ? fractionOf(stored, side) : 1;
  if (fraction === 1) return null;
  const [width, height] = [stored.width, stored.height].map((pixels) => Math.ceil(pixels / fraction));
  const wanted = { type: "image/jpeg", colorSpaceConversion: "none", desiredWidth: width, desiredHeight: height };
  const decoder = new ImageDecoder({ data: content, ...wanted });
  try {
    const { image } = await decoder.decode();
    if (image.codedWidth === width && image.codedHeight === height) return image;
    image.close();
    return null;
  } catch {
    return null;
  } finally {
    decoder.close();
  }
}

/** Width and height from the header of the first frame (SOF). */
function storedSize(bytes) {
  for (let at = 2; at + 9 <= bytes.byteLength && bytes.getUint8(at) === 0xff; ) {
    const marker = bytes.getUint8(at + 1);
    if (marker === 0xff) at += 1; // padding
    else if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) {
      return { height: bytes.getUint16(at + 5), width: bytes.getUint16(at + 7) };
    } else at += 2 + bytes.getUint16(at + 2);
  }
  return null;
}
