// The page: files in, one card for each, nothing sent anywhere.

import { open } from "./classify.js";
import { pixelsOf } from "./pixels.js";

const byId = (id) => document.getElementById(id);
const about = await (await fetch("model.json")).json();
const answers = []; // { file, answer, card }
let classify, queue = Promise.resolve();

byId("threshold").value = about.threshold;
try {
  const base = new URL(about.runtime, document.baseURI);
  const ort = await import(new URL("ort.wasm.min.mjs", base)).catch(() => {
    throw new Error("onnxruntime-web is missing: run `npm install` in this folder, then reload the page.");
  });
  ort.env.wasm.wasmPaths = base.href;
  ort.env.wasm.numThreads = 1; // more need headers that a plain file server does not send
  const response = await fetch("model.onnx");
  if (!response.ok) throw new Error("model.onnx is missing beside this page.");
  classify = await open(ort, await response.arrayBuffer(), about);
  byId("status").hidden = true;
  byId("drop").hidden = false;
} catch (error) {
  byId("status").textContent = error.message;
  byId("status").className = "bad";
}

function add(files) {
  for (const file of files) {
    const card = document.createElement("li");
    byId("answers").append(card);
    queue = queue.then(() => answered(file, card)); // one after the other, in order
  }
}

async function answered(file, card) {
  try {
    const answer = await classify(await pixelsOf(file, about.size));
    answers.push({ file, answer, card });
    byId("tools").hidden = false;
    show({ file, answer, card });
  } catch {
    card.replaceChildren(element("div", "text", element("p", "name quiet", file.name), element("p", "bad", "This file could not be read as an image.")));
  }
}

function show({ file, answer, card }) {
  const unknown = isUnknown(answer);
  const picture = card.querySelector("img") ?? new Image();
  if (!picture.src) picture.src = URL.createObjectURL(file);
  picture.alt = "";
  const rows = answer.top.slice(0, 5).flatMap(({ label, score }) => {
    const meter = document.createElement("meter");
    meter.value = score;
    const name = element("span", "", label);
    name.title = label;
    return [name, meter, element("span", "", `${(100 * score).toFixed(1)}%`)];
  });
  const name = element("p", "name quiet", file.name);
  name.title = file.name;
  const novelty = Number.isNaN(answer.novelty) ? "not known yet" : answer.novelty.toFixed(2);
  card.className = unknown ? "unknown" : "";
  card.replaceChildren(picture, element("div", "text", name,
    element("p", "label", unknown ? "unknown" : answer.label),
    element("p", "quiet", unknown ? `novelty ${novelty}; the nearest classes are` : `novelty ${novelty}`),
    element("div", "rows", ...rows)));
}

function isUnknown({ novelty }) {
  return novelty > Number(byId("threshold").value);
}

function element(tag, classes, ...children) {
  const made = document.createElement(tag);
  made.className = classes;
  made.append(...children);
  return made;
}

function showLevel() {
  byId("level").textContent = Number(byId("threshold").value).toFixed(2);
  answers.forEach(show);
}

function csv() {
  const quoted = (value) => `"${String(value).replaceAll('"', '""')}"`;
  const lines = answers.map(({ file, answer }) =>
    [quoted(file.name), quoted(answer.label), answer.score, answer.novelty, Number(isUnknown(answer))].join(","));
  return ["path,label,score,novelty,novel", ...lines, ""].join("\n");
}

byId("files").addEventListener("change", (event) => { add(event.target.files); event.target.value = ""; });
byId("threshold").addEventListener("input", showLevel);
byId("save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
  link.download = "answers.csv";
  link.click();
});
for (const kind of ["dragover", "dragleave", "drop"]) {
  addEventListener(kind, (event) => {
    event.preventDefault();
    document.body.classList.toggle("over", kind === "dragover");
    if (kind === "drop" && classify) add(event.dataTransfer.files);
  });
}
showLevel();
