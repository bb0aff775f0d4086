// Dialogs, menus, progress lines and messages.

import { h, icon, show } from "./dom.js";

/** Ask for a line of text; null if cancelled. check(text) returns an error message, or "" if the text is valid. */
export function ask(title, { value = "", action = "OK", hint = "", check = () => "", type = "text" } = {}) {
  const input = h("input", { type, value, maxlength: "200", autocomplete: "off", "aria-label": title });
  return modal(title, [hint && h("p", { class: "hint" }, hint), input], action, () => {
    const text = input.value.trim();
    return { text, wrong: text ? check(text) : "Please enter something." };
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

/** Show content in a dialog with a button that closes it, as the function does that is returned. */
export function sheet(title, content, closed = () => {}) {
  const close = () => dialog.close();
  const head = h("div", { class: "row" }, h("h2", {}, title), h("span", { class: "space" }), h("button", { class: "round", "aria-label": "Close", onclick: close }, icon("close")));
  const dialog = h("dialog", { "aria-label": title, onclose: () => (dialog.remove(), closed()) }, h("div", { class: "sheet" }, head, content));
  document.body.append(dialog);
  dialog.showModal();
  return close;
}

/** Create a button with a menu of actions. */
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
    const buttons = [details.firstElementChild, ...list.children];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") details.open = false;
    else if (step) details.open = true;
    else return;
    event.preventDefault();
    const next = step ? buttons.indexOf(document.activeElement) + step : 0;
    buttons[Math.max(0, Math.min(next, buttons.length - 1))].focus();
  });
  return details;
}

document.addEventListener("pointerdown", (event) => {
  for (const open of document.querySelectorAll(".dropdown[open]")) if (!open.contains(event.target)) open.open = false;
});

const foot = document.getElementById("lessons");

/** Show a line with a running activity, its progress (of ``max`` steps, if known) and a cancel button. */
export function activity(text, { max = null, place = foot } = {}) {
  const stop = new AbortController();
  const words = h("span", {}, text);
  const bar = max === null ? h("span", { class: "spinner" }) : h("progress", { max, value: 0, "aria-label": text });
  const cancel = h("button", { class: "plain", onclick: () => stop.abort() }, "Cancel");
  const line = h("div", { class: `lesson busy${place === foot ? "" : " inline"}` }, words, bar, cancel);
  place.append(line);
  return { say: (now) => show(words, now), bar, cancel, signal: stop.signal, abort: () => stop.abort(), end: () => line.remove() };
}

/** Show a message at the foot of the page, which disappears by itself; it may offer an action {text, run}. */
export function toast(text, kind = "done", action = null) {
  const line = h(
    "div",
    { class: `lesson ${kind}`, role: kind === "failed" ? "alert" : null },
    icon(kind === "failed" ? "close" : "check"),
    h("span", {}, text),
    action && h("button", { class: "plain offer", onclick: () => (line.remove(), action.run()) }, action.text),
    h("button", { class: "round small", "aria-label": "Dismiss", onclick: () => line.remove() }, icon("close")),
  );
  foot.append(line);
  setTimeout(() => line.remove(), kind === "failed" || action ? 12000 : 5000);
  return line;
}
