// Unpack zip archives in the browser.

const MOST = 500 * 2 ** 20;

/** [{path, file}] of all files in a zip archive. */
export async function unzip(archive) {
  const data = new DataView(await archive.arrayBuffer());
  const end = findEnd(data);
  const files = [];
  let total = 0;
  let at = data.getUint32(end + 16, true);
  for (let left = data.getUint16(end + 10, true); left > 0; left--) {
    if (at + 46 > data.byteLength || data.getUint32(at, true) !== 0x02014b50) throw damaged(archive);
    const method = data.getUint16(at + 10, true);
    const packed = data.getUint32(at + 20, true);
    const size = data.getUint32(at + 24, true);
    const names = [28, 30, 32].map((offset) => data.getUint16(at + offset, true));
    const local = data.getUint32(at + 42, true);
    const path = new TextDecoder().decode(new Uint8Array(data.buffer, at + 46, names[0]));
    at += 46 + names[0] + names[1] + names[2];
    if (path.endsWith("/") || path.startsWith("__MACOSX/")) continue;
    total += size;
    if (total > MOST) throw new Error(`${archive.name} contains more than 500 MB. Unpack it and drop the folder instead.`);
    const start = local + 30 + data.getUint16(local + 26, true) + data.getUint16(local + 28, true);
    const content = new Blob([new Uint8Array(data.buffer, start, packed)]);
    files.push({ path, file: new File([await inflate(content, method, archive)], path.split("/").pop()) });
  }
  return files;
}

function findEnd(data) {
  for (let at = data.byteLength - 22; at >= Math.max(0, data.byteLength - 65557); at--)
    if (data.getUint32(at, true) === 0x06054b50) return at;
  throw new Error("This is not a zip archive.");
}

async function inflate(content, method, archive) {
  if (method === 0) return content;
  if (method !== 8) throw damaged(archive);
  return new Response(content.stream().pipeThrough(new DecompressionStream("deflate-raw"))).blob();
}

const damaged = (archive) => new Error(`${archive.name} is damaged or uses an unsupported compression method.`);
