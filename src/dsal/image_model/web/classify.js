// Photographs to answers: the same pixels, and the same rule for what is unknown, as `dsal predict`.

const BITS = 22; // coefficients of the resampling are fixed-point numbers, as in Pillow

/** Open the model: `ort` is the module onnxruntime-web, `content` the bytes of model.onnx, `about` model.json. */
export async function open(ort, content, about) {
  const session = await ort.InferenceSession.create(content, { executionProviders: ["wasm"] });
  return async function classify(image) {
    const shape = [1, about.channels, about.size, about.size];
    const pixels = new ort.Tensor("uint8", square(image, about), shape);
    const { probabilities, novelty } = await session.run({ images: pixels });
    const top = about.labels.map((label, column) => ({ label, score: probabilities.data[column] }));
    top.sort((one, other) => other.score - one.score);
    return { label: top[0].label, score: top[0].score, top, novelty: novelty.data[0] }; // NaN: nothing to compare with
  };
}

/**
 * Return the middle of an image as channels x size x size bytes.
 * `image` has width, height, data (RGBA, four bytes a pixel) and jpeg, whether it is a JPEG decoded at its full size.
 */
export function square(image, { size, channels, crop }) {
  let pixels = planes(image, channels);
  if (image.jpeg) pixels = reduced(pixels, fractionOf(image, size), 0, 0, image.width, image.height);
  const side = Math.min(pixels.width, pixels.height) * crop;
  let left = (pixels.width - side) / 2, upper = (pixels.height - side) / 2, [across, down] = [side, side];
  const factor = Math.floor(side / size / 3);
  if (factor > 1) {
    const around = 1.5 * side / size; // what the filter reaches beyond the part
    const x = Math.max(0, Math.trunc(left - around)), y = Math.max(0, Math.trunc(upper - around));
    const right = Math.min(pixels.width, Math.ceil(left + side + around));
    const lower = Math.min(pixels.height, Math.ceil(upper + side + around));
    pixels = reduced(pixels, factor, x, y, right, lower);
    [left, upper, across, down] = [(left - x) / factor, (upper - y) / factor, side / factor, side / factor];
  }
  return resampled(pixels, left, upper, across, down, size).data;
}

/** Pillow decodes a JPEG that is much larger than needed at 1/2, 1/4 or 1/8 of its size: return 1, 2, 4 or 8. */
export function fractionOf({ width, height }, size) {
  const most = Math.floor(Math.min(width, height) / (2 * size));
  return [8, 4, 2].find((fraction) => most >= fraction) ?? 1;
}

function planes({ width, height, data }, channels) {
  const count = width * height, out = new Uint8Array(channels * count);
  for (let i = 0; i < count; i++) {
    const [red, green, blue] = [data[4 * i], data[4 * i + 1], data[4 * i + 2]];
    if (channels === 1) {
      out[i] = (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16;
    } else {
      out[i] = red; out[count + i] = green; out[2 * count + i] = blue;
    }
  }
  return { width, height, channels, data: out };
}

/** Return means over blocks of factor x factor pixels of a part of an image. */
function reduced({ width, height, channels, data }, factor, left, upper, right, lower) {
  if (factor === 1) return { width, height, channels, data };
  const columns = Math.ceil((right - left) / factor), rows = Math.ceil((lower - upper) / factor);
  const out = new Uint8Array(channels * columns * rows);
  for (let c = 0, to = 0; c < channels; c++) {
    for (let row = 0; row < rows; row++) {
      const y0 = upper + row * factor, y1 = Math.min(y0 + factor, lower);
      for (let column = 0; column < columns; column++, to++) {
        const x0 = left + column * factor, x1 = Math.min(x0 + factor, right);
        let sum = 0;
        for (let y = y0; y < y1; y++) {
          for (let at = (c * height + y) * width + x0, end = at + x1 - x0; at < end; at++) sum += data[at];
        }
        const pixels = (y1 - y0) * (x1 - x0);
        out[to] = Math.floor((sum + pixels / 2) / pixels);
      }
    }
  }
  return { width: columns, height: rows, channels, data: out };
}

/** Return a part of an image at size x size pixels: bicubic, first across and then down, with 8 bits in between. */
function resampled({ width, height, channels, data }, left, upper, across, down, size) {
  const horizontal = weights(width, left, across, size), vertical = weights(height, upper, down, size);
  const between = new Uint8Array(channels * height * size), out = new Uint8Array(channels * size * size);
  for (let row = 0; row < channels * height; row++) {
    for (let x = 0; x < size; x++) between[row * size + x] = weighted(data, row * width, 1, horizontal[x]);
  }
  for (let c = 0; c < channels; c++) {
    for (let y = 0; y < size; y++) {
      for (let x = 0; x < size; x++) {
        out[(c * size + y) * size + x] = weighted(between, c * height * size + x, size, vertical[y]);
      }
    }
  }
  return { width: size, height: size, channels, data: out };
}

function weighted(data, from, step, { first, factors }) {
  let sum = 2 ** (BITS - 1);
  for (let i = 0; i < factors.length; i++) sum += data[from + (first + i) * step] * factors[i];
  return Math.min(255, Math.max(0, Math.floor(sum / 2 ** BITS)));
}

/** Return, for each pixel of the result, the first pixel that it depends on and the factors of that and the next ones. */
function weights(length, from, extent, size) {
  const scale = extent / size, stretch = Math.max(scale, 1), reach = 2 * stretch;
  return Array.from({ length: size }, (_, position) => {
    const centre = from + (position + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - reach + 0.5)), end = Math.min(length, Math.trunc(centre + reach + 0.5));
    const raw = Array.from({ length: end - first }, (_, i) => cubic((i + first - centre + 0.5) / stretch));
    const total = raw.reduce((sum, factor) => sum + factor, 0);
    const factors = raw.map((factor) => factor / total * 2 ** BITS).map((f) => Math.trunc(f + (f < 0 ? -0.5 : 0.5)));
    return { first, factors };
  });
}

function cubic(x) {
  const a = -0.5, t = Math.abs(x);
  if (t < 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  return t < 2 ? (((t - 5) * t + 8) * t - 4) * a : 0;
}
