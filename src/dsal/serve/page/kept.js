// Pictures survive a reload: encrypted in the browser's database, with a key that only this tab has and that is gone when
// the tab is closed. Over http from another machine browsers offer no encryption, and nothing is kept.

const MOST_BYTES = 100e6; // of a model; further pictures are lost on reload
const DAY = 864e5; // milliseconds, after which what closed tabs have left is removed
const KEY = "dsal-pictures-key";
const LISTS = (name) => `dsal-pictures-${name}`;
const written = new Map(); // sets of ids by model
let opened = null;
let turn = Promise.resolve();

/** What keep() got before the page was reloaded; {} if that was nothing. */
export async function kept(name) {
  const states = JSON.parse(sessionStorage.getItem(LISTS(name)) ?? "{}");
  const tab = await open();
  const pictures = new Map();
  const ids = new Set(Object.values(states).flatMap((maps) => maps.flatMap((map) => map.flatMap(([, some]) => some))));
  for (const id of tab ? ids : []) {
    const picture = await read(tab, id).catch(() => null);
    if (picture) pictures.set(id, picture);
  }
  written.set(name, new Set(pictures.keys()));
  const mapOf = (map) => new Map(map.map(([label, some]) => [label, some.map((id) => pictures.get(id)).filter(Boolean)]));
  return Object.fromEntries(Object.entries(states).map(([what, maps]) => [what, maps.map(mapOf)]));
}

/** Keep lists of maps of pictures {blob, thumb, name} by class, in place of those that were kept before. */
export function keep(name, states) {
  turn = turn.then(() => exchange(name, states)).catch(() => {}); // the disk may be full
}

async function exchange(name, states) {
  const tab = await open();
  if (!tab) return;
  const ids = written.get(name) ?? new Set();
  const pictures = new Set(Object.values(states).flatMap((maps) => maps.flatMap((map) => [...map.values()].flat())));
  let size = 0;
  for (const picture of pictures) {
    size += picture.blob.size;
    if (picture.id || size > MOST_BYTES) continue;
    const id = `${Date.now().toString(36)}-${crypto.randomUUID()}`; // in the order of time, for sweeping
    await write(tab, id, picture);
    picture.id = id;
    ids.add(id);
  }
  const listOf = (map) => [...map].map(([label, some]) => [label, some.map(({ id }) => id).filter(Boolean)]);
  const lists = Object.entries(states).map(([what, maps]) => [what, maps.map(listOf)]);
  sessionStorage.setItem(LISTS(name), JSON.stringify(Object.fromEntries(lists)));
  const wanted = new Set([...pictures].map(({ id }) => id));
  for (const id of ids) {
    if (wanted.has(id)) continue;
    await done(records(tab, "readwrite").delete(id));
    ids.delete(id);
  }
  written.set(name, ids);
}

/** {database, key} of this tab; null where the browser keeps nothing. */
function open() {
  opened ??= crypto.subtle ? connect().catch(() => null) : Promise.resolve(null);
  return opened;
}

async function connect() {
  const request = indexedDB.open("dsal", 1);
  request.onupgradeneeded = () => request.result.createObjectStore("pictures", { keyPath: "id" });
  const tab = { database: await done(request), key: await ownKey() };
  await done(records(tab, "readwrite").delete(IDBKeyRange.upperBound((Date.now() - DAY).toString(36))));
  return tab;
}

async function ownKey() {
  const found = sessionStorage.getItem(KEY);
  const uses = ["encrypt", "decrypt"];
  if (found) return crypto.subtle.importKey("jwk", JSON.parse(found), "AES-GCM", true, uses);
  const key = await crypto.subtle.generateKey({ name: "AES-GCM", length: 256 }, true, uses);
  sessionStorage.setItem(KEY, JSON.stringify(await crypto.subtle.exportKey("jwk", key)));
  return key;
}

/** A picture as one block: a line of facts, then the bytes of the image. */
async function write(tab, id, { blob, ...picture }) {
  const facts = { picture, type: blob.type, isFile: blob instanceof File, lastModified: blob.lastModified };
  const block = await new Blob([JSON.stringify(facts), "\n", blob]).arrayBuffer();
  const iv = crypto.getRandomValues(new Uint8Array(12));
  const data = await crypto.subtle.encrypt({ name: "AES-GCM", iv }, tab.key, block);
  await done(records(tab, "readwrite").put({ id, iv, data }));
}

async function read(tab, id) {
  const { iv, data } = await done(records(tab, "readonly").get(id));
  const block = new Uint8Array(await crypto.subtle.decrypt({ name: "AES-GCM", iv }, tab.key, data));
  const end = block.indexOf("\n".charCodeAt(0));
  const { picture, isFile, ...about } = JSON.parse(new TextDecoder().decode(block.subarray(0, end)));
  const content = [block.subarray(end + 1)];
  return { ...picture, id, blob: isFile ? new File(content, picture.name, about) : new Blob(content, about) };
}

const records = ({ database }, mode) => database.transaction("pictures", mode).objectStore("pictures");

const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
