// The first screen: all models, a new one, one from a file.

import { listModels, upload } from "./api.js";
import { ask, toast } from "./dialog.js";
import { bytes, h, hueOf, icon, plural, show } from "./dom.js";

const NAME = /^[A-Za-z0-9]([A-Za-z0-9 ._-]{0,62}[A-Za-z0-9_-])?$/;

export async function projectsScreen(main) {
  const { models } = await listModels();
  const names = new Set(models.map((model) => model.name));
  const check = (text) =>
    names.has(text)
      ? "There is a model of this name already."
      : NAME.test(text)
        ? ""
        : "Use letters a to z, digits, spaces, - and _; begin and end with a letter or digit.";

  const create = async () => {
    const name = await ask("Name the new model", { action: "Create", hint: "What will it tell apart? “Cups”, say.", check });
    if (name) location.hash = `#/p/${encodeURIComponent(name)}`;
  };
  const add = async (file) => {
    const proposal = file.name.replace(/\.dsal$/, "").replace(/[^A-Za-z0-9 ._-]/g, "-");
    const name = await ask("Name the uploaded model", { value: proposal, action: "Upload", check });
    if (!name) return;
    const stop = new AbortController();
    const cancel = h("button", { class: "plain", onclick: () => stop.abort() }, "Cancel");
    const line = h("div", { class: "lesson" }, h("span", { class: "spinner" }), h("span", {}, `Uploading ${file.name}…`), cancel);
    document.getElementById("lessons").append(line);
    try {
      await upload(name, file, stop.signal);
      location.hash = `#/p/${encodeURIComponent(name)}`;
    } catch (error) {
      if (error.name !== "AbortError") toast(error.message, "failed");
    } finally {
      line.remove();
    }
  };
  const picker = h("input", { type: "file", accept: ".dsal", class: "hidden", tabindex: "-1", "aria-hidden": "true" });
  picker.addEventListener("change", () => picker.files.length && add(picker.files[0]));
  const buttons = h(
    "div",
    { class: "row" },
    h("button", { class: "primary", id: "create", onclick: create }, icon("plus"), "New model"),
    h("button", { onclick: () => picker.click() }, icon("up"), "From a file"),
    picker,
  );
  show(main, models.length ? listed(models, buttons) : welcome(buttons));
  return () => {};
}

function welcome(buttons) {
  const step = (number, title, text) =>
    h("li", {}, h("span", { class: "number" }, number), h("div", {}, h("strong", {}, title), h("span", {}, text)));
  return h(
    "section",
    { class: "hero" },
    h("h2", {}, "Teach a model with a handful of pictures"),
    h("p", {}, "Hold things to the camera or drop photographs. It learns in a second, forgets nothing, keeps no image, and says when it sees something it was never taught."),
    buttons,
    h(
      "ol",
      { class: "steps" },
      step("1", "Show", "A few pictures of each thing, by camera, drop or paste."),
      step("2", "Try", "Watch live what it thinks. Correct it, rename, undo."),
      step("3", "Use", "Take it away as a file, or ask it over HTTP."),
    ),
  );
}

function listed(models, buttons) {
  const card = (model, index) =>
    h(
      "a",
      { class: "card model", href: `#/p/${encodeURIComponent(model.name)}`, hue: hueOf(index) },
      h("span", { class: "emblem" }, icon("cube")),
      h("strong", {}, model.name),
      h("span", { class: "quiet" }, `${plural(model.classes.length, "class", "classes")} · ${bytes(model.bytes)}`),
      h("span", { class: "tags" }, model.classes.slice(0, 6).map((label) => h("span", { class: "tag" }, label))),
    );
  return h(
    "section",
    { class: "models" },
    h("div", { class: "row wrap" }, h("h2", {}, "Your models"), h("span", { class: "space" }), buttons),
    h("div", { class: "grid" }, models.map(card)),
  );
}
