// The result of a tested folder: accuracy at a threshold of novelty, which classes are confused, and all rows as CSV.

import { h, icon, percent, plural, show } from "./dom.js";
import { table } from "./insight.js";

const UNKNOWN = "none of these";
const MOST_CLASSES = 24; // of a matrix that can still be read

/** Show what became of tested images [{path, label, thumb, answer}]. */
export function testResult(project, tested, result) {
  const known = new Set(project.labels());
  const readable = tested.filter(({ answer }) => !answer.error);
  const slider = h("input", { type: "range", min: "0.5", max: "1", step: "0.005", value: "0.95", id: "threshold", "aria-label": "Novelty from which an image counts as none of these" });
  const text = h("span", { class: "quiet" });
  const numbers = h("div", { class: "result" });
  const said = ({ answer }) => ((answer.novelty ?? 0) > Number(slider.value) ? UNKNOWN : answer.label);
  const draw = () => {
    show(text, `“None of these” from ${percent(Number(slider.value))} on`);
    show(numbers, ...summary(readable, known, said));
  };
  slider.addEventListener("input", draw);
  const broken = tested.filter(({ answer }) => answer.error).map(({ path, answer }) => `${path}: ${answer.error}`);
  show(
    result,
    numbers,
    h("label", { class: "row wrap" }, slider, text),
    broken.length > 0 && h("p", { class: "quiet" }, `${plural(broken.length, "image")} could not be read. ${broken.slice(0, 5).join("; ")}${broken.length > 5 ? "; …" : ""}`),
    h("button", { id: "csv", onclick: () => save(tested, said) }, icon("file"), "Save the results as CSV"),
  );
  draw();
}

function summary(tested, known, said) {
  const mine = tested.filter(({ label }) => known.has(label));
  const others = tested.filter(({ label }) => !known.has(label));
  const right = mine.filter((one) => said(one) === one.label).length;
  const flagged = mine.filter((one) => said(one) === UNKNOWN).length;
  const counts = new Map();
  for (const one of mine) {
    const [before, images] = counts.get(one.label) ?? [0, 0];
    counts.set(one.label, [before + (said(one) === one.label), images + 1]);
  }
  return [
    mine.length > 0 &&
      h("p", { class: "big", id: "held-out-accuracy" }, percent(right / mine.length), h("span", { class: "quiet" }, ` of ${plural(mine.length, "image")} recognised correctly`)),
    mine.length > 0 && h("p", { class: "quiet" }, `${flagged} of ${mine.length} images of known classes were flagged as none of these, which counts as wrong.`),
    others.length > 0 &&
      h("p", { class: "quiet" }, `${others.filter((one) => said(one) === UNKNOWN).length} of ${others.length} images of classes never taught were flagged as none of these.`),
    table([...counts].map(([label, [good, images]]) => [label, good, images])),
    matrix(tested, said),
  ].filter(Boolean);
}

/** Rows: what the images show; columns: what the model says. A cell opens its pictures. */
function matrix(tested, said) {
  const cells = new Map();
  for (const one of tested) {
    const key = JSON.stringify([one.label, said(one)]);
    cells.set(key, [...(cells.get(key) ?? []), one]);
  }
  const rows = [...new Set(tested.map(({ label }) => label))].sort();
  const columns = [...new Set(tested.map(said))].sort((a, b) => (a === UNKNOWN) - (b === UNKNOWN) || a.localeCompare(b));
  if (rows.length > MOST_CLASSES || columns.length > MOST_CLASSES) return null;
  const pictures = h("div", { class: "strip", "aria-live": "polite" });
  const cell = (label, answer) => {
    const found = cells.get(JSON.stringify([label, answer])) ?? [];
    if (!found.length) return h("td", {});
    const name = `${plural(found.length, "image")} of ${label}, taken for ${answer}`;
    const open = () => show(pictures, found.map((one) => h("img", { class: "tested", src: one.thumb ?? "", alt: one.path, title: one.path })));
    return h("td", { class: label === answer ? "right" : "wrong-cell" }, h("button", { class: "plain", title: name, "aria-label": name, onclick: open }, String(found.length)));
  };
  return h(
    "div",
    { class: "matrix" },
    h("h4", {}, "What it takes for what"),
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, h("th", {}), columns.map((answer) => h("th", { title: answer }, answer)))),
      h("tbody", {}, rows.map((label) => h("tr", {}, h("th", { title: label }, label), columns.map((answer) => cell(label, answer))))),
    ),
    pictures,
  );
}

function save(tested, said) {
  const quoted = (text) => `"${String(text).replace(/^(?=[=+\-@\t\r])/, "'").replaceAll('"', '""')}"`;
  const line = (one) => (one.answer.error ? ["", "", "", one.answer.error] : [said(one), one.answer.score, one.answer.novelty ?? "", ""]);
  const lines = tested.map((one) => [one.path, one.label, ...line(one)].map(quoted).join(","));
  const csv = ["file,folder,answer,score,novelty,error", ...lines].join("\r\n");
  const url = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
  h("a", { href: url, download: "tested.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
