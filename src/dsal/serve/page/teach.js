// A lesson from the browser's side: prepare images, send them, show how far it is, let it be cancelled.

import { learn } from "./api.js";
import { toast } from "./dialog.js";
import { h, plural, show } from "./dom.js";
import { prepare } from "./files.js";

const MOST_IMAGES = 500;
const MOST_BYTES = 40e6;
const MOST_THUMBS = 60; // of a class
let turn = Promise.resolve();

/** Teach items [{label, file | blob}]; lessons wait for one another. */
export function teach(project, items) {
  const lesson = turn.then(() => run(project, items));
  turn = lesson.catch(() => {});
  return lesson;
}

async function run(project, items) {
  const stop = new AbortController();
  const labels = [...new Set(items.map((item) => item.label))];
  const what = `${plural(items.length, "image")} of ${labels.length > 3 ? plural(labels.length, "class", "classes") : labels.join(", ")}`;
  const text = h("span", {}, `Preparing ${what}`);
  const bar = h("progress", { max: items.length, value: 0, "aria-label": "Progress of the lesson" });
  const cancel = h("button", { class: "plain", onclick: () => stop.abort() }, "Cancel");
  const line = h("div", { class: "lesson busy" }, text, bar, cancel);
  document.getElementById("lessons").append(line);
  const started = performance.now();
  try {
    const ready = await prepared(items, stop.signal, (done) => (bar.value = done));
    const told = { images: 0, seen: 0, broken: [] };
    for (const part of parts(ready)) {
      show(text, `Reading ${what}`);
      bar.value = 0;
      bar.max = part.length;
      const outcome = await learn(
        project.name,
        part,
        (done, total, stage) => {
          bar.value = done;
          if (stage === "learning") {
            show(text, `Learning ${what}`);
            bar.removeAttribute("value");
            cancel.disabled = true;
          }
        },
        stop.signal,
      );
      cancel.disabled = false;
      told.images += outcome.images;
      told.seen += outcome.seen_before;
      told.broken.push(...outcome.broken);
      remember(project.sitting, part);
    }
    await project.refresh();
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    report(told, labels, seconds);
  } catch (error) {
    if (error.name === "AbortError") toast("Cancelled: nothing was learned.");
    else toast(error.message, "failed");
  } finally {
    line.remove();
  }
}

async function prepared(items, signal, progress) {
  const ready = [];
  for (const item of items) {
    signal.throwIfAborted();
    const { blob, thumb } = await prepare(item.file ?? item.blob);
    ready.push({ label: item.label, blob, thumb });
    progress(ready.length);
  }
  return ready;
}

/** Lessons that the server takes: not too many images, not too many bytes. */
function* parts(items) {
  let part = [];
  let size = 0;
  for (const item of items) {
    if (part.length && (part.length >= MOST_IMAGES || size + item.blob.size > MOST_BYTES)) {
      yield part;
      part = [];
      size = 0;
    }
    part.push(item);
    size += item.blob.size;
  }
  if (part.length) yield part;
}

function remember(sitting, items) {
  for (const { label, thumb } of items) {
    if (!thumb) continue;
    const pictures = sitting.thumbs.get(label) ?? [];
    pictures.push(thumb);
    while (pictures.length > MOST_THUMBS) URL.revokeObjectURL(pictures.shift());
    sitting.thumbs.set(label, pictures);
  }
}

function report(told, labels, seconds) {
  const what = labels.length > 3 ? plural(labels.length, "class", "classes") : labels.join(", ");
  if (told.images) toast(`Learned ${plural(told.images, "image")} of ${what} in ${seconds} s`);
  if (told.seen) toast(`${plural(told.seen, "image")} had been learned before and ${told.seen === 1 ? "was" : "were"} left out.`);
  if (told.broken.length) toast(`${plural(told.broken.length, "image")} could not be read: ${told.broken[0]}`, "failed");
}
