// The card of a class: its count, thumbnails of this session, and buttons to teach more.

import { attach, detach, frame } from "./camera.js";
import { ask, menu, toast } from "./dialog.js";
import { h, icon, plural, show } from "./dom.js";
import { chosen, dropped } from "./files.js";

const FRAMES_PER_SECOND = 8;
const MOST_FRAMES = 300; // per recording
const SHOWN = 18;
const RESERVED = ["none of these", "unknown"]; // what the model says of images that belong to no class

/** What is wrong with a class name; "" if nothing is. */
export function wrongName(text, taken = []) {
  if (taken.includes(text)) return "There is already a class with this name.";
  return RESERVED.includes(text.toLowerCase()) ? `“${text}” is what the model says of images it does not know. Choose another name.` : "";
}

export function classCard(project, label, hue) {
  const count = project.counts()[label] ?? 0;
  const thumbs = project.sitting.thumbs.get(label) ?? [];
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
    h(
      "div",
      { class: "row" },
      camera.button,
      camera.preview,
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

/**
 * The camera of a class: a button that records while it is held, by pointer or space bar, a button that shows the picture
 * beforehand, and the stage that shows it, below both, so that they do not move under the finger.
 */
function recorder(project, label) {
  let held = false;
  let video = null; // while the stage is open
  const stage = h("div", { class: "stage", hidden: true });
  const counter = h("span", { class: "counter", hidden: true });
  const button = h("button", { class: "hold", "aria-label": `Hold to record ${label} with the camera` }, icon("camera"), h("span", {}, "Hold to record"));
  const preview = h("button", { class: "round", "aria-label": `Show the camera for ${label}`, "aria-pressed": "false", onclick: () => (video ? close() : open().catch(failed)) }, icon("eye"));
  const failed = (error) => toast(error.message, "failed");

  async function open() {
    if (video) return;
    const fresh = h("video", { playsInline: true, muted: true });
    video = fresh;
    show(stage, fresh, counter);
    stage.hidden = false;
    preview.setAttribute("aria-pressed", "true");
    project.watching += 1; // cards are not redrawn while a camera is open
    try {
      await attach(fresh);
    } catch (error) {
      await close();
      throw error;
    }
  }

  async function close() {
    const old = video;
    if (!old) return;
    video = null;
    stage.hidden = true;
    preview.setAttribute("aria-pressed", "false");
    project.watching -= 1;
    await detach(old);
  }

  const stop = () => (held = false);
  const start = async () => {
    if (held || project.recording) return;
    held = project.recording = true;
    const wasOpen = video !== null;
    const frames = [];
    button.classList.add("on");
    try {
      await open();
      const began = performance.now();
      counter.hidden = false;
      show(counter, "…");
      while (held && frames.length < MOST_FRAMES) {
        frames.push(await frame(video));
        const rate = frames.length / Math.max((performance.now() - began) / 1000, 1 / FRAMES_PER_SECOND);
        counter.title = `${rate.toFixed(1)} pictures a second`;
        show(counter, String(frames.length));
        await new Promise((resolve) => setTimeout(resolve, 1000 / FRAMES_PER_SECOND));
      }
    } catch (error) {
      failed(error);
    } finally {
      held = project.recording = false;
      button.classList.remove("on");
      counter.hidden = true;
      if (!wasOpen) await close();
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
  return { button, preview, stage };
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
