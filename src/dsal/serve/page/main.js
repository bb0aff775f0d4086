// Show the screen that the address after # names; the back button works.

import { Failure, hasToken, setToken, takeToken } from "./api.js";
import { ask, toast } from "./dialog.js";
import { h, icon, show } from "./dom.js";
import { openOnPhone } from "./phone.js";
import { projectScreen } from "./project.js";
import { projectsScreen } from "./projects.js";

const main = document.getElementById("main");
let leave = () => {};

/** Draw the header: the current model and its actions. */
function head(project, ...actions) {
  const home = h("a", { class: "brand", href: "#/", "aria-label": "All models" }, h("img", { src: "/page/icon.svg", alt: "" }), "dsal");
  show(
    document.getElementById("top"),
    home,
    project && h("span", { class: "slash", "aria-hidden": "true" }, "/"),
    project && h("h1", { dir: "auto" }, project),
    h("span", { class: "space" }),
    !project && h("a", { class: "quiet", href: "/docs" }, "API"),
    h("button", { class: "round", id: "phone", "aria-label": "Open on a phone", title: "Open on a phone", onclick: openOnPhone }, icon("phone")),
    ...actions,
  );
  document.title = project ? `${project} · dsal` : "dsal";
}

async function route() {
  leave();
  leave = () => {};
  const match = /^#\/p\/(.+)$/.exec(location.hash);
  const name = match && decodeURIComponent(match[1]);
  head(name);
  show(main, h("div", { class: "loading", role: "status" }, h("span", { class: "spinner" }), "Loading…"));
  try {
    leave = name ? await projectScreen(name, main, head) : await projectsScreen(main);
  } catch (error) {
    await failed(error);
  }
}

async function failed(error) {
  if (error instanceof Failure && error.status === 401) {
    const token = await ask("This server needs a token", {
      hint: `${hasToken() ? "That token was not accepted. " : ""}The server printed it when it started.`,
      action: "Continue",
      type: "password",
    });
    if (token) {
      setToken(token);
      return route();
    }
  }
  return show(
    main,
    h(
      "section",
      { class: "empty" },
      h("div", { class: "emblem bad" }, icon("close")),
      h("h2", {}, "Something went wrong"),
      h("p", {}, error.message),
      h("button", { class: "primary", onclick: route }, "Try again"),
    ),
  );
}

addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  if (event.reason?.name !== "AbortError") toast(event.reason?.message || "Something went wrong.", "failed");
});
for (const name of ["dragover", "drop"]) addEventListener(name, (event) => event.preventDefault());
addEventListener("hashchange", route);
takeToken();
route();
