// Teach a lesson: prepare images, send them, show progress, allow cancelling.

import { learn } from "./api.js";
import { activity, toast } from "./dialog.js";
import { plural } from "./dom.js";
import { prepare } from "./files.js";
import { add, remember } from "./sitting.js";

const MOST_IMAGES = 500;
const MOST_BYTES = 40e6;
const NUMBER = /image (\d+)(?=:| cannot| was)/; // as the server names an image of a request
let turn = Promise.resolve();

/** Teach items [{label, file | blob}], and return whether that went well; lessons run one after another. */
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
  const totals = { images: 0, seen: 0, moved: [], broken: [], refused: new Set() };
  try {
    const ready = await prepared(items, signal, (done) => (bar.value = done));
    for (const part of parts(ready)) {
      say(`Reading ${what}`);
      bar.value = 0;
      bar.max = part.length;
      const lesson = learn(
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
      const outcome = await lesson.catch((error) => {
        if (error.status !== 422) throw error;
        totals.refused.add(named(error.message, part)); // none of this part can be read; the others may be
        return null;
      });
      cancel.disabled = false;
      if (!outcome) continue;
      totals.images += outcome.images;
      totals.seen += outcome.seen_before;
      totals.moved.push(...outcome.learned_as.map(({ image, label }) => ({ item: part[image - 1], label })));
      totals.broken.push(...outcome.broken.map((text) => named(text, part)));
      if (outcome.images) keep(project.sitting, part, outcome);
    }
    await project.refresh();
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    report(project, totals, labels, seconds);
    return totals.refused.size === 0;
  } catch (error) {
    if (error.name !== "AbortError") toast(error.message, "failed");
    else if (totals.images) toast(`Cancelled; ${plural(totals.images, "image")} had already been learned.`);
    else toast("Cancelled: nothing was learned.");
    if (totals.images) await project.refresh();
    return false;
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
export function* parts(items) {
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

/** Keep the pictures of a lesson, except those that belong to another class or cannot be read. */
function keep(sitting, part, { learned_as: elsewhere, broken, mistaken }) {
  remember(sitting);
  const answers = new Map(mistaken.map(({ image, label }) => [image, label]));
  const not = new Set([...elsewhere.map(({ image }) => image), ...broken.map((text) => Number(NUMBER.exec(text)?.[1]))]);
  part.forEach(({ label, ...picture }, index) => not.has(index + 1) || add(sitting, label, [{ ...picture, mistaken: answers.get(index + 1) ?? null }]));
}

/** The server numbers the images of a request; people know their files. */
export function named(text, part) {
  return text.replace(new RegExp(NUMBER, "gi"), (whole, number) => part[Number(number) - 1]?.name ?? whole);
}

function report(project, totals, labels, seconds) {
  const what = labels.length > 3 ? plural(labels.length, "class", "classes") : labels.join(", ");
  const repeated = totals.seen - totals.moved.length;
  const few = (texts) => `${texts.slice(0, 5).join("; ")}${texts.length > 5 ? "; …" : ""}`;
  if (totals.images) toast(`Learned ${plural(totals.images, "image")} of ${what} in ${seconds} s`);
  if (repeated) toast(`${plural(repeated, "image")} ${repeated === 1 ? "was" : "were"} already learned and skipped.`);
  if (totals.moved.length) {
    const fresh = [...new Set(totals.moved.map(({ item }) => item.label))].join(", ");
    const learned = few(totals.moved.map(({ item, label }) => `${item.name} was already learned as ${label}`));
    toast(`${learned}. Skipped.`, "done", { text: `Move to ${fresh}`, run: () => project.relabel(totals.moved.map(({ item }) => item)) });
  }
  if (totals.broken.length) toast(`${plural(totals.broken.length, "image")} could not be read. ${few(totals.broken)}`, "failed");
  for (const text of totals.refused) toast(text, "failed");
}
