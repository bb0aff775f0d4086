// How well the model works: leave-one-out results of its lessons, and a test on a folder it never learned.

import { predict } from "./api.js";
import { activity, toast } from "./dialog.js";
import { bytes, h, icon, percent, plural, show } from "./dom.js";
import { chosen, dropped, folderOf, prepare } from "./files.js";
import { thumb } from "./picture.js";
import { testResult } from "./tested.js";

const AT_ONCE = 8;

/** Return the panel and a function that redraws it; test results stay. */
export function insightPanel(project) {
  const panel = h("section", { class: "panel", id: "insight", hidden: true });
  const test = heldOut(project);
  const opened = { pair: null }; // whose pictures are shown, also after the panel is drawn again
  const draw = (facts) => {
    panel.hidden = !facts;
    if (!facts) return;
    const size = `${plural(facts.images, "image")} in ${plural(facts.phases, "lesson")}`;
    show(
      panel,
      h("h2", {}, "How well does it work?"),
      h("div", { class: "columns" }, leftOut(project, facts, opened), test),
      h("p", { class: "quiet" }, `${size} · ${facts.backbone} with ${facts.expansion_size.toLocaleString("en")} random features · ${stepsOf(facts)}`),
    );
  };
  return { panel, draw };
}

function stepsOf({ undo, redo, history_bytes: size }) {
  const steps = undo.length + redo.length;
  return steps ? `${plural(steps, "step")} can be undone or redone, which takes ${bytes(size)}` : "nothing can be undone";
}

function leftOut(project, facts, opened) {
  const order = Object.keys(facts.classes);
  const rows = [...facts.left_out].sort((a, b) => order.indexOf(a.label) - order.indexOf(b.label));
  if (!rows.length) {
    return h(
      "div",
      {},
      h("h3", {}, "Leave one out"),
      h("p", { class: "quiet" }, "Add a second class to see how many images would be recognised if they had not been learned. No image is kept for this."),
    );
  }
  const images = rows.reduce((sum, row) => sum + row.images, 0);
  const right = rows.reduce((sum, row) => sum + row.right, 0);
  return h(
    "div",
    {},
    h("h3", {}, "Leave one out"),
    h("p", { class: "big" }, percent(right / images), h("span", { class: "quiet" }, ` of ${plural(images, "image")} recognised correctly`)),
    h("p", { class: "quiet" }, "Each image was tested when it was taught, as if it had not been learned. No image is kept for this."),
    table(rows.map((row) => [row.label, row.right, row.images])),
    facts.confused.length > 0 && h("h4", {}, "Most often confused"),
    pairs(project, facts.confused, opened),
  );
}

export const table = (rows) =>
  h(
    "div",
    { class: "bars plain-bars" },
    rows.map(([label, right, images]) => {
      const fill = h("span", { class: "fill" });
      fill.style.width = `${(100 * right) / images}%`;
      return h(
        "div",
        { class: "bar", hue: "255" },
        h("span", { class: "name", title: label }, label),
        h("span", { class: "track" }, fill),
        h("span", { class: "value" }, `${right} of ${images}`),
      );
    }),
  );

/** The classes that are confused most often; those with pictures of this sitting show them. */
function pairs(project, confused, opened) {
  const shown = h("div", { class: "thumbs", "aria-live": "polite" });
  const open = (pair, label, pictures) => {
    opened.pair = pair;
    show(shown, pictures.map((picture) => thumb(project, label, picture)));
  };
  const row = ({ label, taken_for: answer, images }) => {
    const pair = JSON.stringify([label, answer]);
    const pictures = (project.sitting.pictures.get(label) ?? []).filter(({ mistaken }) => mistaken === answer);
    const see = h("button", { class: "plain", "aria-label": `Show ${label} mistaken for ${answer}`, onclick: () => open(pair, label, pictures) }, "Show");
    if (opened.pair === pair) open(pair, label, pictures);
    return h("li", {}, h("strong", {}, label), " mistaken for ", h("strong", {}, answer), h("span", { class: "quiet" }, ` ${images} ×`), pictures.length > 0 && see);
  };
  return [h("ul", { class: "pairs" }, confused.slice(0, 5).map(row)), shown];
}

function heldOut(project) {
  const result = h("div", { class: "result" });
  const folder = h("input", { type: "file", class: "hidden", tabindex: "-1", "aria-hidden": "true", id: "held-out" });
  folder.webkitdirectory = true;
  const zone = h(
    "div",
    { class: "zone" },
    h("p", {}, "Drop a folder of images that it was never taught, with one folder per class."),
    h("button", { onclick: () => folder.click() }, icon("image"), "Choose a folder"),
    folder,
  );
  const test = async (found) => {
    const labelled = found.filter(({ path }) => folderOf(path) !== null);
    if (labelled.length) await run(project, labelled, result);
    else toast("No folders of images found there.", "failed");
  };
  folder.addEventListener("change", async () => test(await chosen(folder.files)));
  zone.addEventListener("drop", async (event) => test(await dropped(event.dataTransfer)));
  return h("div", {}, h("h3", {}, "Test with a folder"), zone, result);
}

async function run(project, found, result) {
  show(result);
  const { bar, signal } = activity("Testing", { max: found.length, place: result });
  const tested = [];
  try {
    for (let start = 0; start < found.length; start += AT_ONCE) {
      const part = found.slice(start, start + AT_ONCE);
      const ready = await Promise.all(part.map(({ file }) => prepare(file)));
      const answers = await predict(project.name, ready.map(({ blob }) => blob), signal);
      part.forEach(({ path }, index) => tested.push({ path, label: folderOf(path), thumb: ready[index].thumb, answer: answers[index] }));
      bar.value = start + part.length;
    }
  } catch (error) {
    show(result);
    if (error.name !== "AbortError") toast(error.message, "failed");
    return;
  }
  testResult(project, tested, result);
}
