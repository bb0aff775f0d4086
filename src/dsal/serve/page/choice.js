// A menu of all classes and of a new one; and what a class may be called.

import { ask } from "./dialog.js";
import { h } from "./dom.js";

const RESERVED = ["none of these", "unknown"]; // what the model says of images that belong to no class
const FRESH = "\n"; // no class is called that

/** What is wrong with a class name; "" if nothing is. */
export function wrongName(text, taken = []) {
  if (taken.includes(text)) return "There is already a class with this name.";
  return RESERVED.includes(text.toLowerCase()) ? `“${text}” is what the model says of images it does not know. Choose another name.` : "";
}

/** A menu that calls then(label) with the class that is chosen; ``text`` is what it shows before. */
export function classChoice(labels, text, then, properties = {}) {
  const options = [...labels].sort((a, b) => a.localeCompare(b)).map((label) => h("option", { value: label }, label));
  const menu = h(
    "select",
    { "aria-label": text, ...properties },
    h("option", { value: "" }, text),
    options,
    h("option", { value: FRESH }, "A new class …"),
  );
  menu.addEventListener("change", async () => {
    const { value } = menu;
    menu.value = "";
    const label = value === FRESH ? await ask("What is the new class called?", { check: (name) => wrongName(name, labels) }) : value;
    if (label) await then(label);
  });
  return menu;
}
