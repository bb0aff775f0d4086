// From what people drop, paste or choose to small images with the name of a class.

import { unzip } from "./zip.js";

const IMAGE = /\.(avif|bmp|gif|heic|heif|ico|jfif|jp2|jpe?g|png|tiff?|webp)$/i;
const SIDE = 448; // of the shorter side, twice what networks see; larger images are made smaller before they travel
const THUMB = 112;

/** [{path, file}] of all images in a drop: files, folders and zips. */
export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const found = entries.length
    ? (await Promise.all(entries.map((entry) => walk(entry, "")))).flat()
    : [...transfer.files].map((file) => ({ path: file.name, file }));
  return expand(found);
}

/** The same of files chosen in a dialog; folders chosen there bring their paths. */
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

/** The class that a path names: its nearest folder; null for a loose file. */
export function folderOf(path) {
  const parts = path.split("/");
  return parts.length > 1 ? parts[parts.length - 2] : null;
}

/** {blob, thumb} of an image file: small enough to send, and smaller still to look at. */
export async function prepare(file) {
  const bitmap = await createImageBitmap(file, { imageOrientation: "from-image" }).catch(() => null);
  if (!bitmap) return { blob: file, thumb: null }; // the server may know the format
  try {
    const thumb = URL.createObjectURL(await drawn(bitmap, THUMB, true));
    const small = Math.min(bitmap.width, bitmap.height) <= SIDE && file.size < 500_000;
    return { blob: small ? file : await drawn(bitmap, SIDE, false), thumb };
  } finally {
    bitmap.close();
  }
}

/** A source (bitmap, video) as JPEG with the shorter side of at most ``side``; square on request. */
export function drawn(source, side, square) {
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
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The image cannot be read."))), "image/jpeg", 0.92),
  );
}
