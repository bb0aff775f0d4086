// Classify photographs with Node: npm install && npm install sharp, then node examples/predict.js PHOTO...

import { readFile } from "node:fs/promises";
import * as ort from "onnxruntime-web";
import sharp from "sharp";
import { open } from "../classify.js";

const beside = (name) => readFile(new URL(`../${name}`, import.meta.url));
const about = JSON.parse(await beside("model.json"));
const classify = await open(ort, await beside("model.onnx"), about);
for (const path of process.argv.slice(2)) {
  const content = await readFile(path);
  const upright = sharp(content).rotate().flatten({ background: "white" }).toColourspace("srgb").ensureAlpha();
  const { data, info } = await upright.raw().toBuffer({ resolveWithObject: true });
  const jpeg = content[0] === 0xff && content[1] === 0xd8;
  const { label, score, novelty } = await classify({ data, width: info.width, height: info.height, jpeg });
  console.log(JSON.stringify({ path, label: novelty > about.threshold ? "unknown" : label, score, novelty }));
}
