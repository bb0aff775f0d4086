// Try it: what the model thinks of the camera or of dropped images, a bar for each class and one for "none of these".

import { predict } from "./api.js";
import { attach, detach, frame } from "./camera.js";
import { toast } from "./dialog.js";
import { h, hueOf, icon, percent, show } from "./dom.js";
import { chosen, dropped, prepare } from "./files.js";

const STRANGE = 0.95; // novelty above which an image is rather none of the classes

export function livePanel(name, labels) {
  const view = h("div", { class: "view" });
  const verdict = h("p", { class: "verdict", "aria-live": "polite" });
  const bars = h("div", { class: "bars" });
  const strip = h("div", { class: "strip" });
  const picker = h("input", { type: "file", multiple: true, accept: "image/*,.zip", class: "hidden", tabindex: "-1", "aria-hidden": "true", id: "try-files" });
  const cameraButton = h("button", { id: "live", onclick: () => (running ? stop() : start()) });
  const element = h(
    "section",
    { class: "panel live", "aria-label": "Try", tabindex: "0" },
    h("h2", {}, "Try"),
    view,
    strip,
    verdict,
    bars,
    h("div", { class: "row" }, cameraButton, h("button", { onclick: () => picker.click() }, icon("image"), "Choose images"), picker),
  );
  let running = false;
  let facts = null;
  let rows = null;
  let pictures = [];

  async function start() {
    clear();
    running = true;
    const video = h("video", { playsInline: true, muted: true });
    show(view, video);
    button();
    try {
      await attach(video);
      while (running) {
        const [answer] = await predict(name, [await frame(video)]);
        if (running && !answer.error) tell(answer);
        await new Promise((resolve) => setTimeout(resolve, 60));
      }
    } catch (error) {
      toast(error.message, "failed");
    } finally {
      running = false;
      await detach(video);
      if (view.contains(video)) {
        resting();
        blank();
      }
      button();
    }
  }

  const stop = () => (running = false);

  async function look(files) {
    stop();
    clear();
    show(view, h("div", { class: "loading" }, h("span", { class: "spinner" }), "Looking…"));
    for (const file of files.slice(0, 60)) {
      const { blob, thumb } = await prepare(file);
      const [answer] = await predict(name, [blob]);
      if (answer.error) {
        toast(`${file.name || "The image"}: ${answer.error}`, "failed");
        continue;
      }
      const picture = { file, url: URL.createObjectURL(file), thumb, answer };
      pictures.push(picture);
      if (files.length > 1) strip.append(small(picture));
      if (pictures.length === 1) choose(picture);
    }
    if (!pictures.length) resting();
  }

  const small = (picture) =>
    h(
      "button",
      { class: `small-picture${picture.answer.novel ? " novel" : ""}`, title: picture.answer.novel ? "None of these" : picture.answer.label, onclick: () => choose(picture) },
      h("img", { src: picture.thumb ?? picture.url, alt: picture.answer.novel ? "None of these" : picture.answer.label }),
    );

  function choose(picture) {
    show(view, h("img", { src: picture.url, alt: "The image that is looked at" }));
    tell(picture.answer);
  }

  function clear() {
    for (const picture of pictures) URL.revokeObjectURL(picture.url);
    pictures = [];
    show(strip);
    show(verdict);
  }

  function tell(answer) {
    const scores = new Map(answer.top_k.map(({ label, score }) => [label, score]));
    if (labels().some((label) => !scores.has(label)) || !rows) return;
    for (const [label, row] of rows) set(row, scores.get(label) ?? 0, !answer.novel && label === answer.label);
    if (answer.novelty !== null) set(strange, answer.novelty, answer.novel, answer.novel ? "yes" : "no");
    const text = answer.novel ? "None of these" : answer.label;
    if (verdict.textContent !== text) show(verdict, text);
    verdict.classList.toggle("novel", answer.novel);
  }

  function set(row, value, best, text = percent(value)) {
    row.fill.style.width = `${100 * value}%`;
    show(row.value, text);
    row.element.classList.toggle("best", best);
  }

  function makeRow(label, hue, kind = "") {
    const fill = h("span", { class: "fill" });
    const value = h("span", { class: "value" });
    const track = h("span", { class: "track" }, fill);
    const line = h("div", { class: `bar ${kind}`, hue, "data-bar": label }, h("span", { class: "name", title: label }, label), track, value);
    return { element: line, fill, value };
  }
  const strange = makeRow("none of these", "0", "strange");
  strange.element.title = `How strange it looks: above ${100 * STRANGE}% it is rather none of the classes`;

  function resting() {
    const none = !facts;
    show(
      view,
      h(
        "div",
        { class: "rest-view" },
        icon("camera"),
        h("p", {}, none ? "Teach a class first." : "Start the camera, or drop images here."),
        facts && labels().length === 1 && h("p", { class: "quiet" }, "One class has nothing to be told apart from: add a second."),
      ),
    );
  }

  /** Bars and verdict without an answer. */
  function blank() {
    for (const row of rows.values()) set(row, 0, false, "");
    set(strange, 0, false, "");
    show(verdict);
  }

  function button() {
    cameraButton.disabled = !facts;
    cameraButton.className = running ? "hold on" : "primary";
    show(cameraButton, icon("camera"), running ? "Stop camera" : "Start camera");
  }

  picker.addEventListener("change", async () => facts && look((await chosen(picker.files)).map(({ file }) => file)));
  element.addEventListener("dragenter", () => element.classList.add("over"));
  element.addEventListener("dragleave", (event) => !element.contains(event.relatedTarget) && element.classList.remove("over"));
  element.addEventListener("drop", async (event) => {
    element.classList.remove("over");
    const found = await dropped(event.dataTransfer);
    if (facts && found.length) await look(found.map(({ file }) => file));
  });

  return {
    element,
    look,
    close: () => {
      stop();
      clear();
    },
    /** Take over what is known of the model; the bars follow its classes. */
    draw: (fresh) => {
      const first = !rows || !facts !== !fresh;
      facts = fresh;
      rows = new Map(labels().map((label, index) => [label, makeRow(label, hueOf(index))]));
      if (!running) blank();
      show(bars, [...rows.values()].map((row) => row.element), facts && strange.element);
      if (!running && (first || !pictures.length)) resting();
      if (!running && pictures.length) look(pictures.map((picture) => picture.file));
      button();
    },
  };
}
