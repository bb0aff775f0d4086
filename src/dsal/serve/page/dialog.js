// Questions and messages.

import { h, icon, show } from "./dom.js";

/** Ask for a line of text; null if cancelled. check(text) may return a sentence that says what is wrong. */
export function ask(title, { value = "", action = "OK", hint = "", check = () => "", type = "text" } = {}) {
  const input = h("input", { type, value, maxlength: "200", autocomplete: "off", "aria-label": title });
  return modal(title, [hint && h("p", { class: "hint" }, hint), input], action, () => {
    const text = input.value.trim();
    return { text, wrong: text ? check(text) : "Please type something." };
  });
}

export async function confirm(title, text, action, danger = true) {
  return (await modal(title, [h("p", {}, text)], action, () => ({ text: "yes" }), danger)) !== null;
}

function modal(title, content, action, answer, danger = false) {
  return new Promise((resolve) => {
    const wrong = h("p", { class: "wrong", role: "alert" });
    const submit = (event) => {
      event.preventDefault();
      const given = answer();
      if (given.wrong) return show(wrong, given.wrong);
      dialog.close();
      return resolve(given.text);
    };
    const cancel = h("button", { type: "button", class: "plain", onclick: () => dialog.close() }, "Cancel");
    const form = h(
      "form",
      { onsubmit: submit },
      h("h2", {}, title),
      content,
      wrong,
      h("div", { class: "row end" }, cancel, h("button", { class: danger ? "danger" : "primary" }, action)),
    );
    const dialog = h("dialog", { "aria-label": title, onclose: () => (dialog.remove(), resolve(null)) }, form);
    document.body.append(dialog);
    dialog.showModal();
    form.querySelector("input")?.select();
  });
}

/** A menu of actions at a button. */
export function menu(label, items) {
  const list = h(
    "div",
    { class: "menu", role: "menu" },
    items.map(([name, text, action, danger]) =>
      h("button", { role: "menuitem", class: danger ? "danger-text" : "", onclick: action }, icon(name), text),
    ),
  );
  const details = h("details", { class: "dropdown" }, h("summary", { class: "round", "aria-label": label }, icon("more")), list);
  list.addEventListener("click", () => (details.open = false));
  details.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !details.contains(event.relatedTarget)) details.open = false;
  });
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    details.open = false;
    details.firstElementChild.focus();
  });
  document.addEventListener("pointerdown", (event) => {
    if (!details.contains(event.target)) details.open = false;
  });
  return details;
}

/** A line at the foot of the page that goes away by itself. */
export function toast(text, kind = "done") {
  const line = h(
    "div",
    { class: `lesson ${kind}`, role: kind === "failed" ? "alert" : null },
    icon(kind === "failed" ? "close" : "check"),
    h("span", {}, text),
    h("button", { class: "round small", "aria-label": "Dismiss", onclick: () => line.remove() }, icon("close")),
  );
  document.getElementById("lessons").append(line);
  setTimeout(() => line.remove(), kind === "failed" ? 12000 : 5000);
  return line;
}
