// The screen of one model: teach its classes on the left, try it on the right.

import { download, drop, Failure, info, listModels, remove, rename, undo, version } from "./api.js";
import { classCard, newClassCard } from "./classes.js";
import { activity, ask, confirm, menu, toast } from "./dialog.js";
import { bytes, h, hueOf, icon, show } from "./dom.js";
import { chosen, dropped, folderOf } from "./files.js";
import { insightPanel } from "./insight.js";
import { livePanel } from "./live.js";
import { remember, teach } from "./teach.js";

const FOLLOW = 1000; // milliseconds between looks at the model's version
const FOLD = 20; // from so many classes on, cards are folded and can be searched

// Sessions by model, since the page was opened: thumbnails by class, earlier thumbnails for undo, and cards that were
// unfolded. Classes that have no images yet are kept by the tab, so that they survive a reload.
const sittings = new Map();
const KEY = (name) => `dsal-classes-${name}`;
const savedDrafts = (name) => JSON.parse(sessionStorage.getItem(KEY(name)) ?? "[]");

/** Whether this tab has started a model of that name. */
export const isStarted = (name) => sessionStorage.getItem(KEY(name)) !== null;

/** Remember that this tab has started a model of that name. */
export const begin = (name) => sessionStorage.setItem(KEY(name), "[]");

export async function projectScreen(name, main, head) {
  const sitting = sittings.get(name) ?? { thumbs: new Map(), past: [], drafts: savedDrafts(name), unfolded: new Set() };
  sittings.set(name, sitting);
  let facts = null;
  let lessons = 0; // in progress
  let gone = false; // whether another screen is shown
  const cards = h("div", { class: "those" });
  const labels = () => Object.keys(facts?.classes ?? {});
  const all = () => [...labels(), ...sitting.drafts];
  const search = h("input", { type: "search", id: "search", placeholder: "Search classes", "aria-label": "Search classes", oninput: () => draw() });

  const project = {
    name,
    sitting,
    recording: false,
    watching: 0, // cameras that are open on the cards
    /** Whether the card of a class is folded; null with so few classes that none ever is. */
    folded: (label) => (all().length < FOLD ? null : !sitting.unfolded.has(label)),
    fold: (label, folded) => {
      if (folded) sitting.unfolded.delete(label);
      else sitting.unfolded.add(label);
      draw();
    },
    labels,
    counts: () => facts?.classes ?? {},
    teach: async (items) => {
      lessons++;
      drawHead();
      try {
        await teach(project, items);
      } finally {
        lessons--;
        drawHead();
      }
    },
    refresh,
    rename: (old, fresh) => changed(() => rename(name, facts.version, old, fresh), () => move(sitting, old, fresh), `Renamed to ${fresh}`),
    drop: async (label) => {
      const draft = sitting.drafts.indexOf(label);
      if (!(label in project.counts())) {
        if (draft >= 0) sitting.drafts.splice(draft, 1);
        return draw();
      }
      if (labels().length === 1) return removeModel();
      const sure = await confirm(`Drop “${label}”?`, "The model will no longer recognise it. You can undo this.", "Drop");
      return sure && changed(() => drop(name, facts.version, label), () => move(sitting, label, null), `Dropped ${label}`);
    },
    addDraft: (label) => {
      if (!all().includes(label)) sitting.drafts.push(label);
      sitting.unfolded.add(label);
      search.value = "";
      draw();
      cards.querySelector(`[data-label="${CSS.escape(label)}"] button`)?.focus();
    },
  };

  const live = livePanel(project);
  const insights = insightPanel(project);

  async function changed(action, then, text) {
    try {
      await action();
      then();
      toast(text);
    } finally {
      await refresh(); // also after a refusal: somebody else has changed the model
    }
  }

  /** Follow the server: another tab, program or person may change the model. */
  async function follow() {
    while (!gone) {
      await new Promise((resolve) => setTimeout(resolve, FOLLOW));
      if (gone || document.hidden || lessons) continue;
      const now = await version(name).catch(() => undefined); // a server that is away is noticed by what people do
      if (now !== undefined && now !== (facts?.version ?? null) && !gone && !lessons) await refresh().catch(() => {});
    }
  }

  async function removeModel() {
    const sure = await confirm(`Delete “${name}”?`, "This permanently deletes the model and its file. Download it first if in doubt.", "Delete");
    if (!sure) return;
    if (facts) await remove(name);
    discard();
  }

  function discard() {
    sittings.delete(name);
    sessionStorage.removeItem(KEY(name));
    location.hash = "#/";
  }

  async function refresh() {
    const { models } = await listModels();
    facts = models.some((model) => model.name === name) ? await info(name) : null;
    sitting.known ||= facts !== null; // it may be deleted, or its first lesson undone, while it is on the screen
    if (!sitting.known && !isStarted(name)) throw new Failure(404, `There is no model “${name}” in this folder.`);
    sitting.drafts = sitting.drafts.filter((label) => !labels().includes(label));
    draw();
  }

  async function take(rest, filename, what) {
    const line = activity(what);
    try {
      const url = URL.createObjectURL(await download(name, rest, line.signal));
      h("a", { href: url, download: filename }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60000);
      toast(`Saved ${filename}`);
    } finally {
      line.end();
    }
  }

  function drawHead() {
    const last = facts?.undo?.[0];
    const undoButton = h(
      "button",
      {
        id: "undo",
        disabled: !last || lessons > 0,
        title: lessons ? "A lesson is in progress" : last ? `Undo: ${last}` : "Nothing to undo",
        onclick: () => changed(() => undo(name, facts.version), () => (sitting.thumbs = sitting.past.pop() ?? sitting.thumbs), `Undone: ${last}`),
      },
      icon("undo"),
      h("span", { class: "wide" }, "Undo"),
    );
    const actions = facts
      ? [
          ["file", `Download the model (${bytes(facts.bytes)})`, () => take("/file", `${name}.dsal`, "Downloading…")],
          ["cube", "Export to ONNX", () => take("/export?format=onnx", `${name}.onnx`, "Exporting to ONNX (about half a minute)…")],
          ["bin", "Delete the model", removeModel, true],
        ]
      : [["bin", "Discard", discard]];
    const toTry = h("button", { class: "narrow", "aria-label": "Try", onclick: () => live.element.scrollIntoView({ behavior: "smooth" }) }, icon("camera"));
    head(name, toTry, undoButton, menu("More actions", actions));
  }

  function draw() {
    const focused = focus();
    drawHead();
    if (facts && !sitting.drafts.length) sessionStorage.removeItem(KEY(name));
    else sessionStorage.setItem(KEY(name), JSON.stringify(sitting.drafts));
    search.hidden = all().length < FOLD;
    const wanted = search.value.trim().toLowerCase();
    const kept = [...all().entries()].filter(([, label]) => search.hidden || label.toLowerCase().includes(wanted));
    if (!project.recording && !project.watching) {
      show(cards, kept.map(([index, label]) => classCard(project, label, hueOf(index))));
    }
    insights.draw(facts);
    live.draw(facts);
    focused()?.focus({ preventScroll: true });
  }

  /** Return a function that finds the focused element again after a redraw. */
  function focus() {
    const active = document.activeElement;
    const label = active?.closest("[data-label]")?.dataset.label;
    const buttons = () => [...(cards.querySelector(`[data-label="${CSS.escape(label)}"]`)?.querySelectorAll("button, summary") ?? [])];
    const index = label === undefined ? -1 : buttons().indexOf(active);
    return () => (index >= 0 ? buttons()[index] : active?.id ? document.getElementById(active.id) : null);
  }

  const bring = async (found) => {
    if (!found.length) return toast("No images found there.", "failed");
    const loose = found.filter(({ path }) => folderOf(path) === null);
    let label = null;
    if (loose.length) {
      label = await ask(`What ${loose.length === 1 ? "does this image" : `do these ${loose.length} images`} show?`, { action: "Teach" });
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
    h("p", { class: "quiet" }, "Drop images on a class, or drop a folder or zip with one folder per class anywhere here."),
    search,
    h("div", { class: "cards" }, cards, newClassCard(project)),
    h("p", { class: "quiet privacy" }, icon("lock"), "No image is kept. The thumbnails exist only in this tab, until you close it."),
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
  const keys = (event) => {
    const typing = event.target.closest?.("input, textarea, select, dialog");
    if (typing || event.key.toLowerCase() !== "z" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    document.getElementById("undo")?.click();
  };
  document.addEventListener("paste", pasted);
  document.addEventListener("keydown", keys);
  await refresh();
  show(main, h("div", { class: "bench" }, left, h("div", { class: "side" }, live.element)), insights.panel);
  follow();
  return () => {
    gone = true;
    document.removeEventListener("paste", pasted);
    document.removeEventListener("keydown", keys);
    live.close();
  };
}

/** Move thumbnails to the new name of their class, or remove them if it is null. */
function move(sitting, old, fresh) {
  remember(sitting);
  const pictures = sitting.thumbs.get(old) ?? [];
  sitting.thumbs.delete(old);
  if (fresh) sitting.thumbs.set(fresh, pictures);
}

