// The screen of one model: teach its classes on the left, try it on the right.

import * as api from "./api.js";
import { classCard, newClassCard } from "./classes.js";
import { activity, ask, confirm, menu, toast } from "./dialog.js";
import { bytes, h, hueOf, icon, show } from "./dom.js";
import { chosen, dropped, folderOf } from "./files.js";
import { inboxPanel } from "./inbox.js";
import { insightPanel } from "./insight.js";
import { livePanel } from "./live.js";
import { add, forgetPast, isStarted, leave, moveClass, redone, remember, save as saveSitting, sittingOf, take, undone } from "./sitting.js";
import { parts, teach } from "./teach.js";

const FOLLOW = 1000; // milliseconds between looks at the model's version
const FOLD = 20; // from so many classes on, cards are folded and can be searched

export async function projectScreen(name, main, head) {
  const sitting = await sittingOf(name);
  let facts = null;
  let lessons = 0; // and other changes in progress
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
    all,
    draw: () => draw(),
    counts: () => facts?.classes ?? {},
    teach: async (items) => {
      lessons++;
      drawHead();
      try {
        return await teach(project, items);
      } finally {
        lessons--;
        drawHead();
      }
    },
    refresh,
    /** Move pictures [{label, blob, thumb, name}] that were taught as another class to their label. */
    relabel: async (items) => {
      for (const part of parts(items)) {
        const move = () => {
          remember(sitting);
          take(sitting, part.map(({ blob }) => blob));
          for (const { label, ...picture } of part) add(sitting, label, [picture]);
        };
        await changed(() => api.relabel(name, facts.version, part), move, `Moved to ${part[0].label}`);
      }
    },
    forget: ({ blob }) =>
      changed(
        () => api.forget(name, facts.version, [{ blob }]),
        () => {
          take(sitting, [blob]);
          forgetPast(sitting); // the model has no earlier versions any more
        },
        "Forgotten",
      ),
    rename: (old, fresh) =>
      changed(
        () => api.rename(name, facts.version, old, fresh),
        () => {
          remember(sitting);
          moveClass(sitting, old, fresh);
        },
        `Renamed to ${fresh}`,
      ),
    drop: async (label) => {
      const draft = sitting.drafts.indexOf(label);
      if (!(label in project.counts())) {
        if (draft >= 0) sitting.drafts.splice(draft, 1);
        return draw();
      }
      if (labels().length === 1) return removeModel();
      const sure = await confirm(`Drop “${label}”?`, "The model will no longer recognise it. You can undo this.", "Drop");
      const taken = () => {
        remember(sitting);
        moveClass(sitting, label, null);
      };
      return sure && changed(() => api.drop(name, facts.version, label), taken, `Dropped ${label}`);
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
  const inbox = inboxPanel(project);
  const insights = insightPanel(project);

  async function changed(action, then, text) {
    lessons++; // so that nothing is drawn in between
    try {
      await action();
      then();
      toast(text);
    } finally {
      lessons--;
      await refresh(); // also after a refusal: somebody else has changed the model
    }
  }

  /** Follow the server: another tab, program or person may change the model. */
  async function follow() {
    while (!gone) {
      await new Promise((resolve) => setTimeout(resolve, FOLLOW));
      if (gone || document.hidden || lessons) continue;
      const now = await api.version(name).catch(() => undefined); // a server that is away is noticed by what people do
      if (now !== undefined && now !== (facts?.version ?? null) && !gone && !lessons) await refresh().catch(() => {});
    }
  }

  async function removeModel() {
    const sure = await confirm(`Delete “${name}”?`, "This permanently deletes the model and its file. Download it first if in doubt.", "Delete");
    if (!sure) return;
    if (facts) await api.remove(name);
    discard();
  }

  function discard() {
    leave(name);
    location.hash = "#/";
  }

  async function refresh() {
    const { models } = await api.listModels();
    facts = models.some((model) => model.name === name) ? await api.info(name) : null;
    sitting.known ||= facts !== null; // it may be deleted, or its first lesson undone, while it is on the screen
    if (!sitting.known && !isStarted(name)) throw new api.Failure(404, `There is no model “${name}” in this folder.`);
    sitting.drafts = sitting.drafts.filter((label) => !labels().includes(label));
    draw();
  }

  async function save(rest, filename, what) {
    const line = activity(what);
    try {
      const url = URL.createObjectURL(await api.download(name, rest, line.signal));
      h("a", { href: url, download: filename }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60000);
      toast(`Saved ${filename}`);
    } finally {
      line.end();
    }
  }

  function drawHead() {
    const step = (what, Name, change, then, done) =>
      h(
        "button",
        {
          id: what,
          disabled: !change || lessons > 0,
          "aria-label": Name,
          title: lessons ? "A lesson is in progress" : change ? `${Name}: ${change}` : `Nothing to ${what}`,
          onclick: () => changed(() => api[what](name, facts.version), () => then(sitting), `${done}: ${change}`),
        },
        icon(what),
        h("span", { class: "wide" }, Name),
      );
    const undoButton = step("undo", "Undo", facts?.undo[0], undone, "Undone");
    const redoButton = facts?.redo.length > 0 && step("redo", "Redo", facts.redo[0], redone, "Done again");
    const actions = facts
      ? [
          ["file", `Download the model (${bytes(facts.bytes)})`, () => save("/file", `${name}.dsal`, "Downloading…")],
          ["cube", "Export to ONNX", () => save("/export?format=onnx", `${name}.onnx`, "Exporting to ONNX (about half a minute)…")],
          ["bin", "Delete the model", removeModel, true],
        ]
      : [["bin", "Discard", discard]];
    const toTry = h("button", { class: "narrow", "aria-label": "Try", onclick: () => live.element.scrollIntoView({ behavior: "smooth" }) }, icon("camera"));
    head(name, toTry, undoButton, redoButton, menu("More actions", actions));
  }

  function draw() {
    const focused = focus();
    drawHead();
    saveSitting(name, sitting, facts !== null);
    search.hidden = all().length < FOLD;
    const wanted = search.value.trim().toLowerCase();
    const kept = [...all().entries()].filter(([, label]) => search.hidden || label.toLowerCase().includes(wanted));
    if (!project.recording && !project.watching) {
      show(cards, kept.map(([index, label]) => classCard(project, label, hueOf(index))));
    }
    inbox.draw(facts);
    insights.draw(facts);
    live.draw(facts);
    focused()?.focus({ preventScroll: true });
  }

  /** Return a function that finds the focused element again after a redraw. */
  function focus() {
    const active = document.activeElement;
    const label = active?.closest("[data-label]")?.dataset.label;
    const buttons = () => [...(cards.querySelector(`[data-label="${CSS.escape(label)}"]`)?.querySelectorAll("button, summary") ?? [])];
    const name = (button) => button.getAttribute("aria-label") ?? button.textContent;
    if (label === undefined) return () => (active?.id ? document.getElementById(active.id) : null);
    return () => buttons().find((button) => name(button) === name(active));
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
    h("p", { class: "quiet privacy" }, icon("lock"), "No image is kept. The pictures exist only in this tab, until you close it: open one to move it to another class, or to have it forgotten."),
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
    document.getElementById(event.shiftKey ? "redo" : "undo")?.click();
  };
  document.addEventListener("paste", pasted);
  document.addEventListener("keydown", keys);
  await refresh();
  show(main, h("div", { class: "bench" }, left, h("div", { class: "side" }, live.element)), inbox.panel, insights.panel);
  follow();
  return () => {
    gone = true;
    document.removeEventListener("paste", pasted);
    document.removeEventListener("keydown", keys);
    live.close();
    inbox.close();
  };
}
