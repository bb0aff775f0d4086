// Try a model: predictions for the camera or dropped images, with a bar per class and one for "none of these".

import { predict } from "./api.js";
import { attach, detach, frame } from "./camera.js";
import { activity, toast } from "./dialog.js";
import { h, hueOf, icon, percent, plural, show } from "./dom.js";
import { chosen, dropped, prepare } from "./files.js";

const MOST_PICTURES = 60;
const THRESHOLD = 0.95; // novelty above which an image probably belongs to none of the classes

export function livePanel(name, labels) {
  const view = h("div", { class: "view" });
  const verdict = h("p", { class: "verdict", "aria-live": "polite" });
  const bars = h("div", { class: "bars" });
  const strip = h("div", { class: "strip" });
  const picker = h("input", { type: "file", multiple: true, accept: "image/*,.zip", class: "hidden", tabindex: "-1", "aria-hidden": "true", id: "try-files" });
  const cameraButton = h("button", { id: "live", onclick: () => (running ? stop() : start()) });
  const filesButton = h("button", { onclick: () => picker.click() }, icon("image"), "Choose images");
  const element = h(
    "section",
    { class: "panel live", "aria-label": "Try", tabindex: "0" },
    h("h2", {}, "Try"),
    view,
    strip,
    verdict,
    bars,
    h("div", { class: "row" }, cameraButton, filesButton, picker),
  );
  let running = false;
  let facts = null;
  let rows = null;
  let files = []; // being classified
  let pictures = []; // already classified, with their predictions
  let looking = null;

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

  async function look(given) {
    stop();
    clear();
    files = given.slice(0, MOST_PICTURES);
    show(view, h("div", { class: "loading" }, h("span", { class: "spinner" }), "Classifying…"));
    const place = files.length > 3 ? undefined : h("div"); // a few images are done before anyone could read a status line
    const mine = (looking = activity(`Classifying ${plural(files.length, "image")}`, { max: files.length, place }));
    try {
      for (const file of files) {
        const { blob, thumb } = await prepare(file);
        const [answer] = await predict(name, [blob], mine.signal);
        mine.signal.throwIfAborted();
        mine.bar.value++;
        if (answer.error) {
          toast(`${file.name || "The image"}: ${answer.error}`, "failed");
          continue;
        }
        const picture = { url: URL.createObjectURL(file), thumb, answer };
        pictures.push(picture);
        if (files.length > 1) strip.append((picture.button = small(picture)));
        if (pictures.length === 1) choose(picture);
      }
    } catch (error) {
      if (error.name !== "AbortError") toast(error.message, "failed");
      else if (looking === mine) files = files.slice(0, mine.bar.value);
    } finally {
      mine.end();
    }
    if (!pictures.length && looking === mine && !running) resting();
  }

  const small = (picture) =>
    h(
      "button",
      { class: `small-picture${picture.answer.novel ? " novel" : ""}`, title: picture.answer.novel ? "None of these" : picture.answer.label, onclick: () => choose(picture) },
      h("img", { src: picture.thumb ?? picture.url, alt: picture.answer.novel ? "None of these" : picture.answer.label }),
    );

  function choose(picture) {
    show(view, h("img", { src: picture.url, alt: "The image being classified" }));
    for (const { button } of pictures) button?.setAttribute("aria-pressed", String(button === picture.button));
    tell(picture.answer);
  }

  function clear() {
    looking?.abort();
    looking = null;
    for (const picture of pictures) URL.revokeObjectURL(picture.url);
    pictures = [];
    files = [];
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
  strange.element.title = `How unusual it looks: above ${100 * THRESHOLD}% it probably belongs to none of the classes`;

  function resting() {
    const none = !facts;
    show(
      view,
      h(
        "div",
        { class: "rest-view" },
        icon("camera"),
        h("p", {}, none ? "Teach a class first." : "Start the camera, or drop images here."),
        facts && labels().length === 1 && h("p", { class: "quiet" }, "Add a second class, so that the model has something to compare it with."),
      ),
    );
  }

  /** Clear the bars and the verdict. */
  function blank() {
    for (const row of rows.values()) set(row, 0, false, "");
    set(strange, 0, false, "");
    show(verdict);
  }

  function button() {
    cameraButton.disabled = filesButton.disabled = !facts;
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
    /** Show new facts about the model, with one bar per class. */
    draw: (fresh) => {
      const first = !rows || !facts !== !fresh;
      facts = fresh;
      rows = new Map(labels().map((label, index) => [label, makeRow(label, hueOf(index))]));
      if (!running) blank();
      show(bars, [...rows.values()].map((row) => row.element), facts && strange.element);
      if (!running && (first || !files.length)) resting();
      if (!running && files.length) look(files);
      button();
    },
  };
}
