// The screen of one model: classes to teach on the left, a place to try it on the right.

import { download, drop, info, listModels, remove, rename, undo } from "./api.js";
import { classCard, newClassCard } from "./classes.js";
import { ask, confirm, menu, toast } from "./dialog.js";
import { bytes, h, hueOf, icon, show } from "./dom.js";
import { chosen, dropped, folderOf } from "./files.js";
import { insightPanel } from "./insight.js";
import { livePanel } from "./live.js";
import { teach } from "./teach.js";

const sittings = new Map(); // what was taught since the page was opened: thumbnails and classes without images yet

export async function projectScreen(name, main, head) {
  const sitting = sittings.get(name) ?? { thumbs: new Map(), drafts: [] };
  sittings.set(name, sitting);
  let facts = null;
  const cards = h("div", { class: "cards" });
  const live = livePanel(name, () => labels());
  const labels = () => Object.keys(facts?.classes ?? {});

  const project = {
    name,
    sitting,
    labels,
    counts: () => facts?.classes ?? {},
    teach: async (items) => {
      await teach(project, items);
    },
    refresh,
    rename: (old, fresh) => changed(() => rename(name, old, fresh), () => move(sitting, old, fresh), `Renamed to ${fresh}`),
    drop: async (label) => {
      const draft = sitting.drafts.indexOf(label);
      if (!(label in project.counts())) {
        if (draft >= 0) sitting.drafts.splice(draft, 1);
        return draw();
      }
      if (labels().length === 1) return removeModel();
      const sure = await confirm(`Drop “${label}”?`, "The model will never answer it again. You can undo this.", "Drop");
      return sure && changed(() => drop(name, label), () => move(sitting, label, null), `Dropped ${label}`);
    },
    addDraft: (label) => {
      if (!labels().includes(label) && !sitting.drafts.includes(label)) sitting.drafts.push(label);
      draw();
      cards.querySelector(`[data-label="${CSS.escape(label)}"] button`)?.focus();
    },
  };

  const insights = insightPanel(project);

  async function changed(action, then, text) {
    await action();
    then();
    await refresh();
    toast(text);
  }

  async function removeModel() {
    const sure = await confirm(`Delete “${name}”?`, "The model and its file are gone for good. Download it first if in doubt.", "Delete");
    if (!sure) return;
    if (facts) await remove(name);
    sittings.delete(name);
    location.hash = "#/";
  }

  async function refresh() {
    const { models } = await listModels();
    facts = models.some((model) => model.name === name) ? await info(name) : null;
    sitting.drafts = sitting.drafts.filter((label) => !labels().includes(label));
    draw();
  }

  async function take(rest, filename, what) {
    const stop = new AbortController();
    const cancel = h("button", { class: "plain", onclick: () => stop.abort() }, "Cancel");
    const line = h("div", { class: "lesson" }, h("span", { class: "spinner" }), h("span", {}, what), cancel);
    document.getElementById("lessons").append(line);
    try {
      const url = URL.createObjectURL(await download(name, rest, stop.signal));
      h("a", { href: url, download: filename }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60000);
      toast(`Saved ${filename}`);
    } finally {
      line.remove();
    }
  }

  function draw() {
    const last = facts?.undo?.[0];
    const undoButton = h(
      "button",
      {
        id: "undo",
        disabled: !last,
        title: last ? `Undo: ${last}` : "Nothing to undo",
        onclick: () => changed(() => undo(name), () => {}, `Undone: ${last}`),
      },
      icon("undo"),
      h("span", { class: "wide" }, "Undo"),
    );
    const actions = facts
      ? [
          ["file", `Download the model (${bytes(facts.bytes)})`, () => take("/file", `${name}.dsal`, "Downloading…")],
          ["cube", "Export to ONNX", () => take("/export?format=onnx", `${name}.onnx`, "Exporting to ONNX: about half a minute…")],
          ["bin", "Delete the model", removeModel, true],
        ]
      : [["bin", "Discard", () => (sittings.delete(name), (location.hash = "#/"))]];
    const toTry = h("button", { class: "narrow", "aria-label": "Try", onclick: () => live.element.scrollIntoView({ behavior: "smooth" }) }, icon("camera"));
    head(name, toTry, undoButton, menu("More actions", actions));
    const all = [...labels(), ...sitting.drafts];
    show(
      cards,
      all.map((label, index) => classCard(project, label, hueOf(index))),
      newClassCard(project),
    );
    insights.draw(facts);
    live.draw(facts);
  }

  const bring = async (found) => {
    if (!found.length) return toast("There are no images in that.", "failed");
    const loose = found.filter(({ path }) => folderOf(path) === null);
    let label = null;
    if (loose.length) {
      label = await ask(`What do ${loose.length === 1 ? "this image" : `these ${loose.length} images`} show?`, { action: "Teach" });
      if (!label) return null;
    }
    return project.teach(found.map(({ path, file }) => ({ label: folderOf(path) ?? label, file })));
  };
  const folder = h("input", { type: "file", class: "hidden", tabindex: "-1", "aria-hidden": "true", id: "folder" });
  folder.webkitdirectory = true;
  folder.addEventListener("change", async () => bring(await chosen(folder.files)));
  const left = h(
    "section",
    { class: "teach", "aria-label": "Teach" },
    h(
      "div",
      { class: "row wrap" },
      h("h2", {}, "Teach"),
      h("span", { class: "space" }),
      h("button", { class: "plain", onclick: () => folder.click() }, icon("image"), "Choose a folder"),
      folder,
    ),
    h("p", { class: "quiet" }, "Drop images on a class; or drop folders or a zip anywhere here, one folder a class."),
    cards,
    h("p", { class: "quiet privacy" }, icon("lock"), "No image is kept. The small pictures live in this tab until you close it."),
  );
  left.addEventListener("dragenter", () => left.classList.add("over"));
  left.addEventListener("dragleave", (event) => !left.contains(event.relatedTarget) && left.classList.remove("over"));
  left.addEventListener("drop", async (event) => {
    left.classList.remove("over");
    if (!event.target.closest("[data-label]")) await bring(await dropped(event.dataTransfer));
  });
  const pasted = async (event) => {
    const pictures = [...event.clipboardData.files].filter((file) => file.type.startsWith("image/"));
    if (!pictures.length) return;
    event.preventDefault();
    const card = document.activeElement?.closest("[data-label]");
    if (card) await project.teach(pictures.map((file) => ({ label: card.dataset.label, file })));
    else if (live.element.contains(document.activeElement) && facts) live.look(pictures);
    else await bring(pictures.map((file) => ({ path: file.name, file })));
  };
  document.addEventListener("paste", pasted);
  await refresh();
  show(main, h("div", { class: "bench" }, left, h("div", { class: "side" }, live.element)), insights.panel);
  return () => {
    document.removeEventListener("paste", pasted);
    live.close();
  };
}

/** Thumbnails follow their class to its new name, or go with it. */
function move(sitting, old, fresh) {
  const pictures = sitting.thumbs.get(old) ?? [];
  sitting.thumbs.delete(old);
  if (fresh) sitting.thumbs.set(fresh, pictures);
  else for (const url of pictures) URL.revokeObjectURL(url);
}

