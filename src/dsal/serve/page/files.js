// Turn dropped, pasted or chosen files into small images with class names.

import { unzip } from "./zip.js";

const IMAGE = /\.(avif|bmp|gif|heic|heif|ico|jfif|jp2|jpe?g|png|tiff?|webp)$/i;
const MOST_BYTES = 20e6; // files are sent as they are, so that they are recognised wherever they come from; larger ones are
const SIDE = 448; // scaled down to this shorter side first, twice the input size of networks
const THUMB = 112;
const QUALITY = 0.92;

/** [{path, file}] of all images in a drop: files, folders and zips. */
export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const found = entries.length
    ? (await Promise.all(entries.map((entry) => walk(entry, "")))).flat()
    : [...transfer.files].map((file) => ({ path: file.name, file }));
  return expand(found);
}

/** The same for files chosen in a dialog; files of a chosen folder have their relative paths. */
export const chosen = (list) => expand([...list].map((file) => ({ path: file.webkitRelativePath || file.name, file })));

async function expand(found) {
  const lists = await Promise.all(
    found.map((item) => (/\.zip$/i.test(item.path) ? unzip(item.file) : [item])),
  );
  return lists
    .flat()
    .filter(({ path, file }) => (IMAGE.test(path) || file.type.startsWith("image/")) && !/(^|\/)\./.test(path))
    .sort((a, b) => a.path.localeCompare(b.path, "en", { numeric: true }));
}

async function walk(entry, folder) {
  const path = folder + entry.name;
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    return [{ path, file }];
  }
  const reader = entry.createReader();
  const children = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) break;
    children.push(...some);
  }
  return (await Promise.all(children.map((child) => walk(child, `${path}/`)))).flat();
}

/** The class of a path: its innermost folder; null for a file without a folder. */
export function folderOf(path) {
  const parts = path.split("/");
  return parts.length > 1 ? parts[parts.length - 2] : null;
}

/** {blob, thumb} of an image file: what to send, and a small picture as a data URL, which need not be revoked. */
export async function prepare(file) {
  const bitmap = await createImageBitmap(file, { imageOrientation: "from-image" }).catch(() => null);
  if (!bitmap) return { blob: file, thumb: null }; // the server may support the format
  try {
    const thumb = canvasOf(bitmap, THUMB, true).toDataURL("image/jpeg", QUALITY);
    return { blob: file.size <= MOST_BYTES ? file : await drawn(bitmap, SIDE, false), thumb };
  } finally {
    bitmap.close();
  }
}

/** A copy of an image that is no larger than networks need; the file itself if the browser cannot read it. */
export async function smaller(file) {
  const bitmap = await createImageBitmap(file, { imageOrientation: "from-image" }).catch(() => null);
  if (!bitmap) return file;
  try {
    return await drawn(bitmap, SIDE, false);
  } finally {
    bitmap.close();
  }
}

/** The SHA-256 of a file in hexadecimal; null where the browser has no cryptography, over http from another machine. */
export async function hashOf(file) {
  if (!crypto.subtle) return null;
  const digest = await crypto.subtle.digest("SHA-256", await file.arrayBuffer());
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Draw a source (bitmap, video) as JPEG whose shorter side is at most ``side``; optionally square. */
export function drawn(source, side, square) {
  const canvas = canvasOf(source, side, square);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The image cannot be read."))), "image/jpeg", QUALITY),
  );
}

function canvasOf(source, side, square) {
  const width = source.videoWidth || source.width;
  const height = source.videoHeight || source.height;
  const shorter = Math.min(width, height);
  const scale = Math.min(1, side / shorter);
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round((square ? shorter : width) * scale));
  canvas.height = Math.max(1, Math.round((square ? shorter : height) * scale));
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  const cut = square ? [(width - shorter) / 2, (height - shorter) / 2, shorter, shorter] : [0, 0, width, height];
  context.drawImage(source, ...cut, 0, 0, canvas.width, canvas.height);
  return canvas;
}
