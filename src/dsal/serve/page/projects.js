// The first screen: all models, with buttons to create or upload one.

import { listModels, upload } from "./api.js";
import { activity, ask, toast } from "./dialog.js";
import { bytes, h, hueOf, icon, plural, show } from "./dom.js";
import { begin } from "./sitting.js";

const NAME = /^[\p{L}\p{N}]([\p{L}\p{M}\p{N} ._-]*[\p{L}\p{M}\p{N}_-])?$/u; // the server's rule, too
const FOREIGN = /[^\p{L}\p{M}\p{N} ._-]/gu;
const MOST_CHARACTERS = 64;

export async function projectsScreen(main) {
  const { models } = await listModels();
  const names = new Set(models.map((model) => model.name));
  const check = (text) => {
    const name = text.normalize("NFKC");
    if (names.has(name)) return "There is already a model with this name.";
    if (name.length > MOST_CHARACTERS) return `A name has at most ${MOST_CHARACTERS} characters; this one has ${name.length}.`;
    return NAME.test(name) ? "" : "Use letters, digits, spaces, - _ and . only. Start with a letter or digit; do not end with a dot.";
  };
  const askName = async (title, options) => (await ask(title, { check, ...options }))?.normalize("NFKC");

  const create = async () => {
    const name = await askName("Name the new model", { action: "Create", hint: "What will it tell apart? For example “Cups”." });
    if (!name) return;
    begin(name);
    location.hash = `#/p/${encodeURIComponent(name)}`;
  };
  const add = async (file) => {
    const proposal = file.name.replace(/\.dsal$/, "").replace(FOREIGN, "-");
    const name = await askName("Name the uploaded model", { value: proposal, action: "Upload" });
    if (!name) return;
    const line = activity(`Uploading ${file.name}…`);
    try {
      await upload(name, file, line.signal);
      location.hash = `#/p/${encodeURIComponent(name)}`;
    } catch (error) {
      if (error.name !== "AbortError") toast(error.message, "failed");
    } finally {
      line.end();
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
    h("p", {}, "Hold things up to the camera or drop photos. The model learns in a second, forgets nothing, keeps no image, and tells you when it sees something it was never taught."),
    buttons,
    h(
      "ol",
      { class: "steps" },
      step("1", "Show", "A few pictures of each thing: camera, drop or paste."),
      step("2", "Try", "Watch its predictions live. Correct, rename, undo."),
      step("3", "Use", "Download it as a file, or query it over HTTP."),
    ),
  );
}

function listed(models, buttons) {
  const card = (model, index) =>
    h(
      "a",
      { class: "card model", href: `#/p/${encodeURIComponent(model.name)}`, hue: hueOf(index) },
      h("span", { class: "emblem" }, icon("cube")),
      h("strong", { dir: "auto" }, model.name),
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
