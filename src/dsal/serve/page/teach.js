// Teach a lesson: prepare images, send them, show progress, allow cancelling.

import { learn } from "./api.js";
import { activity, toast } from "./dialog.js";
import { plural } from "./dom.js";
import { prepare } from "./files.js";

const MOST_IMAGES = 500;
const MOST_BYTES = 40e6;
const MOST_THUMBS = 60; // of a class
const MOST_PAST = 20;
let turn = Promise.resolve();

/** Teach items [{label, file | blob}]; lessons run one after another. */
export function teach(project, items) {
  const lesson = turn.then(() => run(project, items));
  turn = lesson.catch(() => {});
  return lesson;
}

async function run(project, items) {
  const labels = [...new Set(items.map((item) => item.label))];
  const what = `${plural(items.length, "image")} of ${labels.length > 3 ? plural(labels.length, "class", "classes") : labels.join(", ")}`;
  const { say, bar, cancel, signal, end } = activity(`Preparing ${what}`, { max: items.length });
  const started = performance.now();
  const totals = { images: 0, seen: 0, broken: [] };
  try {
    const ready = await prepared(items, signal, (done) => (bar.value = done));
    for (const part of parts(ready)) {
      say(`Reading ${what}`);
      bar.value = 0;
      bar.max = part.length;
      const outcome = await learn(
        project.name,
        part,
        (done, total, stage) => {
          bar.value = done;
          if (stage === "learning") {
            say(`Learning ${what}`);
            bar.removeAttribute("value");
            cancel.disabled = true;
          }
        },
        signal,
      );
      cancel.disabled = false;
      totals.images += outcome.images;
      totals.seen += outcome.seen_before;
      totals.broken.push(...outcome.broken.map((text) => named(text, part)));
      if (outcome.images) {
        remember(project.sitting);
        add(project.sitting, part);
      }
    }
    await project.refresh();
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    report(totals, labels, seconds);
  } catch (error) {
    if (error.name !== "AbortError") toast(error.message, "failed");
    else if (totals.images) toast(`Cancelled; ${plural(totals.images, "image")} had already been learned.`);
    else toast("Cancelled: nothing was learned.");
    if (totals.images) await project.refresh();
  } finally {
    end();
  }
}

async function prepared(items, signal, progress) {
  const ready = [];
  for (const item of items) {
    signal.throwIfAborted();
    const { blob, thumb } = await prepare(item.file ?? item.blob);
    ready.push({ label: item.label, blob, thumb, name: item.file?.name ?? "a picture of the camera" });
    progress(ready.length);
  }
  return ready;
}

/** Split items into lessons within the server's limits of images and bytes. */
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

/** Save the current thumbnails before a change, for undo. */
export function remember(sitting) {
  sitting.past.push(new Map(sitting.thumbs));
  sitting.past = sitting.past.slice(-MOST_PAST);
}

function add(sitting, items) {
  for (const { label, thumb } of items) {
    if (thumb) sitting.thumbs.set(label, [...(sitting.thumbs.get(label) ?? []), thumb].slice(-MOST_THUMBS));
  }
}

/** The server numbers the images of a lesson; people know their files. */
function named(text, part) {
  const [, number, reason] = /^image (\d+)[^:]*: *(.*)$/s.exec(text) ?? [];
  const item = part[Number(number) - 1];
  return item ? `${item.name}: ${reason}` : text;
}

function report(totals, labels, seconds) {
  const what = labels.length > 3 ? plural(labels.length, "class", "classes") : labels.join(", ");
  if (totals.images) toast(`Learned ${plural(totals.images, "image")} of ${what} in ${seconds} s`);
  if (totals.seen) toast(`${plural(totals.seen, "image")} ${totals.seen === 1 ? "was" : "were"} already learned and skipped.`);
  if (totals.broken.length) toast(`${plural(totals.broken.length, "image")} could not be read. ${totals.broken.slice(0, 5).join("; ")}${totals.broken.length > 5 ? "; …" : ""}`, "failed");
}
