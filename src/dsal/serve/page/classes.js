// The card of a class: its count, thumbnails of this session, and buttons to teach more.

import { attach, detach, frame } from "./camera.js";
import { ask, menu, toast } from "./dialog.js";
import { h, icon, plural, show } from "./dom.js";
import { chosen, dropped } from "./files.js";

const FRAMES_PER_SECOND = 8;
const MOST_FRAMES = 300; // per recording
const SHOWN = 18;

export function classCard(project, label, hue) {
  const count = project.counts()[label] ?? 0;
  const thumbs = project.sitting.thumbs.get(label) ?? [];
  const picker = h("input", { type: "file", multiple: true, accept: "image/*,.zip", class: "hidden", tabindex: "-1", "aria-hidden": "true" });
  picker.addEventListener("change", async () => {
    const found = await chosen(picker.files);
    if (found.length) await project.teach(found.map(({ file }) => ({ label, file })));
  });
  const renamed = async () => {
    const taken = (text) => (text !== label && project.labels().includes(text) ? "There is already a class with this name." : "");
    const fresh = await ask(`Rename “${label}”`, { value: label, action: "Rename", check: taken });
    if (!fresh || fresh === label) return;
    if (count) await project.rename(label, fresh);
    else {
      project.sitting.drafts[project.sitting.drafts.indexOf(label)] = fresh;
      await project.refresh();
    }
  };
  const stage = h("div", { class: "stage", hidden: true });
  const card = h(
    "article",
    { class: "card class", "data-label": label, hue, "aria-label": `Class ${label}` },
    h(
      "header",
      {},
      h("span", { class: "dot", "aria-hidden": "true" }),
      h("h3", { title: label }, label),
      h("span", { class: "count" }, count ? plural(count, "image") : "no images yet"),
      menu(`Actions for ${label}`, [
        ["pen", "Rename", renamed],
        ["bin", count ? "Drop this class" : "Remove", () => project.drop(label), true],
      ]),
    ),
    thumbs.length
      ? h(
          "div",
          { class: "thumbs", "aria-hidden": "true" },
          thumbs.slice(-SHOWN).map((url) => h("img", { src: url, alt: "" })),
          thumbs.length > SHOWN && h("span", { class: "rest" }, `+${thumbs.length - SHOWN}`),
        )
      : h("p", { class: "quiet slot" }, count ? "No pictures added since you opened the page." : "Drop pictures here, or use the buttons."),
    stage,
    h(
      "div",
      { class: "row" },
      holdButton(project, stage, label),
      h("button", { onclick: () => picker.click() }, icon("image"), "Add images"),
      picker,
    ),
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

/** A button that records from the camera while it is held, by pointer or space bar. */
function holdButton(project, stage, label) {
  let held = false;
  const text = h("span", {}, "Hold to record");
  const button = h("button", { class: "hold", "aria-label": `Hold to record ${label} with the camera` }, icon("camera"), text);
  const stop = () => (held = false);
  const start = async () => {
    if (held || project.recording) return;
    held = project.recording = true; // do not redraw the cards while a button is held
    const video = h("video", { playsInline: true, muted: true });
    const counter = h("span", { class: "counter" }, "…");
    const frames = [];
    show(stage, video, counter);
    stage.hidden = false;
    button.classList.add("on");
    try {
      await attach(video);
      while (held && frames.length < MOST_FRAMES) {
        frames.push(await frame(video));
        show(counter, String(frames.length));
        await new Promise((resolve) => setTimeout(resolve, 1000 / FRAMES_PER_SECOND));
      }
    } catch (error) {
      toast(error.message, "failed");
    } finally {
      held = project.recording = false;
      button.classList.remove("on");
      stage.hidden = true;
      await detach(video);
    }
    if (frames.length) await project.teach(frames.map((blob) => ({ label, blob })));
    else await project.refresh();
  };
  button.addEventListener("pointerdown", (event) => {
    button.setPointerCapture(event.pointerId);
    start();
  });
  for (const name of ["pointerup", "pointercancel", "blur"]) button.addEventListener(name, stop);
  button.addEventListener("keydown", (event) => {
    if (event.key !== " " && event.key !== "Enter") return;
    event.preventDefault();
    start();
  });
  button.addEventListener("keyup", stop);
  button.addEventListener("contextmenu", (event) => event.preventDefault());
  return button;
}

export function newClassCard(project) {
  const input = h("input", { placeholder: "Class name", "aria-label": "Name of a new class", maxlength: "64", autocomplete: "off", id: "new-class" });
  const add = (event) => {
    event.preventDefault();
    const label = input.value.trim();
    input.value = "";
    if (label) project.addDraft(label);
  };
  return h(
    "form",
    { class: "card fresh", onsubmit: add },
    h("h3", {}, "New class"),
    h("div", { class: "row" }, input, h("button", { class: "primary", "aria-label": "Add the class" }, icon("plus"), "Add")),
    h("p", { class: "quiet" }, "Start with five pictures; twenty from different angles are better."),
  );
}
