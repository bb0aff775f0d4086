// Requests to the server: the token, error messages, and retries when the server is busy.

const KEY = "dsal-token";

/** Take the token from the address, after the #, which browsers do not send, and keep it for this tab only. */
export function takeToken() {
  const match = /[#&]token=([^&]+)/.exec(location.hash);
  if (!match) return;
  setToken(decodeURIComponent(match[1]));
  history.replaceState(null, "", location.pathname + "#/");
}

export function setToken(token) {
  sessionStorage.setItem(KEY, token);
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function request(method, path, { body, json, headers = {}, signal, tries = 4 } = {}) {
  const token = sessionStorage.getItem(KEY);
  const all = { ...headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  if (json !== undefined) {
    all["Content-Type"] = "application/json";
    body = JSON.stringify(json);
  }
  for (let attempt = 1; ; attempt++) {
    let answer;
    try {
      answer = await fetch(path, { method, body, headers: all, signal, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Failure(0, "The server is not responding. Is it still running?");
    }
    if (answer.ok) return answer;
    if ((answer.status === 429 || answer.status === 503) && attempt < tries) {
      await sleep(1000 * Math.min(10, Number(answer.headers.get("Retry-After")) || 1));
      continue;
    }
    const failure = await answer.json().catch(() => ({}));
    const message = failure.error || `The server answered with status ${answer.status}.`;
    throw new Failure(answer.status, message[0].toUpperCase() + message.slice(1));
  }
}

const at = (name, rest) => `/api/models/${encodeURIComponent(name)}${rest}`;
const once = () => ({ "Idempotency-Key": crypto.randomUUID ? crypto.randomUUID() : String(Math.random()).slice(2) });
const read = async (answer) => (await answer).json();

export const openapi = () => read(request("GET", "/openapi.json"));
export const listModels = () => read(request("GET", "/api/models"));
export const info = (name) => read(request("GET", at(name, "/info")));
export const version = async (name) => (await read(request("GET", at(name, "/version"), { tries: 1 }))).version;

// Changes carry the version they were decided on: if the model has moved on, the server refuses them and says why.
const meant = (seen) => ({ ...once(), "If-Match": `"${seen}"` });
export const rename = (name, seen, old, fresh) =>
  read(request("POST", at(name, "/rename"), { json: { old, new: fresh }, headers: meant(seen) }));
export const drop = (name, seen, label) => read(request("POST", at(name, "/drop"), { json: { label }, headers: meant(seen) }));
export const undo = (name, seen) => read(request("POST", at(name, "/undo"), { headers: meant(seen) }));
export const redo = (name, seen) => read(request("POST", at(name, "/redo"), { headers: meant(seen) }));
export const relabel = (name, seen, items) =>
  read(request("POST", at(name, "/relabel"), { body: labelled(items), headers: meant(seen) }));
export const forget = (name, seen, items) =>
  read(request("POST", at(name, "/forget"), { body: formOf(items), headers: meant(seen) }));
export const remove = (name) => read(request("DELETE", at(name, "")));
export const upload = (name, file, signal) => read(request("PUT", at(name, "/file"), { body: file, signal }));
export const download = async (name, rest, signal) => (await request("GET", at(name, rest), { signal })).blob();

/** Images {blob} as a form, with a field of texts, one for each image. */
function formOf(items, field = null, texts = []) {
  const form = new FormData();
  for (const { blob } of items) form.append("images", blob, "image");
  for (const text of texts) form.append(field, text);
  return form;
}

const labelled = (items) => formOf(items, "labels", items.map(({ label }) => label));

/** Which of the items {blob, hash} are worth labelling; the hash, if the browser gives one, is that of the whole file. */
export async function suggest(name, items, count, signal) {
  const hashes = items.map(({ hash }) => hash).filter(Boolean);
  const body = formOf(items, "hashes", hashes.length === items.length ? hashes : []);
  return read(request("POST", at(name, `/suggest?count=${count}&skip_broken=true`), { body, signal }));
}

export const phone = (page) => read(request("GET", `/api/phone?page=${encodeURIComponent(page)}`));

export async function predict(name, blobs, signal) {
  const form = formOf(blobs.map((blob) => ({ blob })));
  const path = at(name, "/predict?top_k=1000&skip_broken=true");
  return (await read(request("POST", path, { body: form, signal }))).predictions;
}

/** Teach labelled images; calls progress(done, total, stage), and signal cancels. */
export async function learn(name, items, progress, signal) {
  const headers = once();
  const state = at(name, `/lessons/${headers["Idempotency-Key"]}`);
  let over = false;
  const cancel = () => request("DELETE", state).catch(() => {});
  signal.addEventListener("abort", cancel);
  const watch = async () => {
    while (!over) {
      await sleep(300);
      if (over) return;
      const lesson = await read(request("GET", state)).catch(() => null);
      if (lesson && lesson.total && !over) progress(lesson.done, lesson.total, lesson.state);
    }
  };
  watch();
  try {
    return await read(request("POST", at(name, "/learn?skip_broken=true"), { body: labelled(items), headers }));
  } catch (error) {
    if (signal.aborted) throw new DOMException("cancelled", "AbortError");
    throw error;
  } finally {
    over = true;
    signal.removeEventListener("abort", cancel);
  }
}
