// The card of a class: its count, its pictures of this sitting, and buttons to teach more.

import { wrongName } from "./choice.js";
import { ask, menu, toast } from "./dialog.js";
import { h, icon, plural } from "./dom.js";
import { chosen, dropped } from "./files.js";
import { thumb } from "./picture.js";
import { recorder } from "./recorder.js";

const SHOWN = 18;

export function classCard(project, label, hue) {
  const count = project.counts()[label] ?? 0;
  const pictures = project.sitting.pictures.get(label) ?? [];
  const picker = h("input", { type: "file", multiple: true, accept: "image/*,.zip", class: "hidden", tabindex: "-1", "aria-hidden": "true" });
  picker.addEventListener("change", async () => {
    const found = await chosen(picker.files);
    if (found.length) await project.teach(found.map(({ file }) => ({ label, file })));
  });
  const renamed = async () => {
    const check = (text) => wrongName(text, project.labels().filter((other) => other !== label));
    const fresh = await ask(`Rename “${label}”`, { value: label, action: "Rename", check });
    if (!fresh || fresh === label) return;
    if (count) await project.rename(label, fresh);
    else {
      project.sitting.drafts[project.sitting.drafts.indexOf(label)] = fresh;
      await project.refresh();
    }
  };
  const camera = recorder(project, label);
  const folded = project.folded(label);
  const card = h(
    "article",
    { class: `card class${folded ? " folded" : ""}`, "data-label": label, hue, "aria-label": `Class ${label}` },
    h(
      "header",
      {},
      folded !== null &&
        h(
          "button",
          { class: "round small", "aria-expanded": String(!folded), "aria-label": `Show or hide ${label}`, onclick: () => project.fold(label, !folded) },
          icon(folded ? "down" : "back"),
        ),
      h("span", { class: "dot", "aria-hidden": "true" }),
      h("div", { class: "who" }, h("h3", { title: label, dir: "auto" }, label), h("span", { class: "count" }, count ? plural(count, "image") : "no images yet")),
      camera.preview,
      menu(`Actions for ${label}`, [
        ["pen", "Rename", renamed],
        ["bin", count ? "Drop this class" : "Remove", () => project.drop(label), true],
      ]),
    ),
    pictures.length
      ? h(
          "div",
          { class: "thumbs" },
          pictures.slice(project.sitting.wide.has(label) ? 0 : -SHOWN).map((picture) => thumb(project, label, picture)),
          pictures.length > SHOWN && !project.sitting.wide.has(label) && more(project, label, pictures.length - SHOWN),
        )
      : h("p", { class: "quiet slot" }, count ? "No pictures added since you opened the page." : "Drop pictures here, or use the buttons."),
    h(
      "div",
      { class: "row" },
      camera.button,
      h("button", { onclick: () => picker.click() }, icon("image"), "Add images"),
      picker,
    ),
    camera.stage,
  );
  card.addEventListener("dragenter", () => card.classList.add("over"));
  card.addEventListener("dragleave", (event) => !card.contains(event.relatedTarget) && card.classList.remove("over"));
  card.addEventListener("drop", async (event) => {
    card.classList.remove("over");
    const found = await dropped(event.dataTransfer);
    if (found.length) await project.teach(found.map(({ file }) => ({ label, file })));
    else toast("No images found there.", "failed");
  });
  return card;
}

function more(project, label, rest) {
  const all = () => {
    project.sitting.wide.add(label);
    project.draw();
  };
  return h("button", { class: "rest", "aria-label": `Show all pictures of ${label}`, onclick: all }, `+${rest}`);
}

export function newClassCard(project) {
  const input = h("input", { placeholder: "Class name", "aria-label": "Name of a new class", maxlength: "64", autocomplete: "off", id: "new-class" });
  const add = (event) => {
    event.preventDefault();
    const label = input.value.trim();
    const wrong = wrongName(label);
    input.value = "";
    if (wrong) toast(wrong, "failed");
    else if (label) project.addDraft(label);
  };
  return h(
    "form",
    { class: "card fresh", onsubmit: add },
    h("h3", {}, "New class"),
    h("div", { class: "row" }, input, h("button", { class: "primary", "aria-label": "Add the class" }, icon("plus"), "Add")),
    h("p", { class: "quiet" }, "Start with five pictures; twenty from different angles are better."),
  );
}
