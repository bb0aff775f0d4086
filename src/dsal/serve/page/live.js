// Try a model: predictions for the camera or dropped images, with bars for the most likely classes and a line for
// "none of these"; a wrong prediction is corrected by naming the right class.

import { predict } from "./api.js";
import { attach, detach, frame } from "./camera.js";
import { classChoice } from "./choice.js";
import { activity, toast } from "./dialog.js";
import { h, hueOf, icon, percent, plural, show } from "./dom.js";
import { chosen, dropped, prepare } from "./files.js";

const MOST_PICTURES = 60;
const MOST_SCORES = 1000; // that the server sends for an image
const MOST_BARS = 5; // with more classes, only the most likely ones, the best first, until all are asked for

/** The panel of a model; ``project`` has its name, its labels, and the functions teach(items) and refresh(). */
export function livePanel(project) {
  const { name, labels } = project;
  const view = h("div", { class: "view" });
  const verdict = h("p", { class: "verdict", "aria-live": "polite" });
  const bars = h("div", { class: "bars" });
  const more = h("button", { class: "plain", id: "all-bars", onclick: () => ((all = !all), arrange()) });
  const correction = h("div", { class: "row correction", hidden: true });
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
    h("div", { class: "row" }, cameraButton, filesButton, picker),
    verdict,
    correction,
    bars,
    more,
  );
  let running = false;
  let all = false; // whether every class has a bar on the page
  let stale = null; // a refresh under way
  let shown = null; // the image that the verdict is about, and its prediction
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
        const blob = await frame(video);
        const [answer] = await predict(name, [blob]);
        if (running && !answer.error) tell({ file: blob, answer });
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
        const picture = { file, url: URL.createObjectURL(file), thumb, answer };
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
    tell(picture);
  }

  function clear() {
    looking?.abort();
    looking = null;
    for (const picture of pictures) URL.revokeObjectURL(picture.url);
    pictures = [];
    files = [];
    show(strip);
    show(verdict);
    shown = null;
    correction.hidden = true;
  }

  function tell(picture) {
    const { answer } = picture;
    const found = answer.top_k.map(({ label }) => label);
    if (!rows || found.some((label) => !rows.has(label)) || found.length < Math.min(rows.size, MOST_SCORES)) {
      stale ??= project.refresh().finally(() => (stale = null)); // the model has changed since the page was drawn
      return;
    }
    shown = picture;
    for (const [label, row] of rows) set(row, scores().get(label) ?? 0, !answer.novel && label === answer.label);
    if (answer.novelty !== null) set(strange, answer.novel ? 1 : 0, answer.novel, answer.novel ? "yes" : "no");
    const text = answer.novel ? "None of these" : answer.label;
    if (verdict.textContent !== text) show(verdict, text);
    verdict.dir = "auto";
    verdict.classList.toggle("novel", answer.novel);
    correction.hidden = false;
    arrange();
  }

  const scores = () => new Map(shown?.answer.top_k.map(({ label, score }) => [label, score]));

  /** Put the bars in order: as taught if they are few, else the most likely first. */
  function arrange() {
    const many = rows.size > MOST_BARS;
    const ranked = many && shown ? shown.answer.top_k.map(({ label }) => label) : [...rows.keys()];
    const wanted = all || !many ? ranked : ranked.slice(0, MOST_BARS);
    const sum = wanted.reduce((all, label) => all + (scores().get(label) ?? 0), 0);
    if (shown) set(others, Math.max(0, 1 - sum), false);
    show(others.name, plural(rows.size - wanted.length, "other class", "other classes"));
    show(bars, wanted.map((label) => rows.get(label).element), shown && wanted.length < rows.size && others.element, facts && strange.element);
    more.hidden = !many;
    show(more, all ? "Show the five most likely" : `Show all ${plural(rows.size, "class", "classes")}`);
  }

  /** A menu of all classes under the verdict: the chosen one is taught with the image that is shown. */
  function drawCorrection() {
    const teach = async (label) => shown && project.teach([{ label, file: shown.file }]);
    show(correction, classChoice(project.all(), "Wrong? It is …", teach, { id: "correct" }));
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
    const name = h("span", { class: "name", title: label, dir: "auto" }, label);
    const line = h("div", { class: `bar ${kind}`, hue, "data-bar": label || null }, name, track, value);
    return { element: line, fill, value, name };
  }
  const strange = makeRow("none of these", "0", "strange");
  const others = makeRow("", "0", "others"); // so that the bars always add up to 100%
  strange.element.title = "Whether it looks more unusual than 95% of the images it has learned";

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
    shown = null;
    correction.hidden = true;
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
      drawCorrection();
      arrange();
      if (!running && (first || !files.length)) resting();
      if (!running && files.length) look(files);
      button();
    },
  };
}
