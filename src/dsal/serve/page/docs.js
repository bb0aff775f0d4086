// The API documentation, rendered from the OpenAPI description.

import { openapi } from "./api.js";
import { h, show } from "./dom.js";

/** Render text in backticks as code. */
const prose = (text) => text.split(/``?/).map((part, index) => (index % 2 ? h("code", {}, part) : part));

function operation(path, method, about) {
  const [first, ...rest] = (about.description ?? "").split("\n");
  const inputs = (about.parameters ?? []).map((p) => `${p.in} ${p.name}${p.required ? "" : " (optional)"}`);
  const bodies = Object.entries(about.requestBody?.content ?? {}).map(([type, content]) => `${type}\n${shape(content.schema)}`);
  const title = [h("span", { class: "method" }, method.toUpperCase()), h("code", {}, path)];
  return h(
    "details",
    { class: "card" },
    h("summary", {}, title, h("span", { class: "quiet" }, prose(first))),
    h("p", { class: "quiet" }, prose(rest.join(" "))),
    inputs.length > 0 && h("pre", {}, inputs.join("\n")),
    bodies.map((body) => h("pre", {}, body)),
    h("pre", {}, `responses: ${Object.keys(about.responses).join(", ")}`),
  );
}

const shape = (schema) => JSON.stringify(schema?.properties ?? schema ?? {}, null, 2);

async function start() {
  const main = document.getElementById("main");
  try {
    const described = await openapi();
    const all = Object.entries(described.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, about]) => operation(path, method, about)),
    );
    const file = h("a", { href: "/openapi.json" }, "/openapi.json");
    show(main, h("div", { class: "docs" }, h("p", {}, described.info.description, " Machine-readable description: ", file, "."), all));
  } catch (error) {
    show(main, h("section", { class: "empty" }, h("h2", {}, "Something went wrong"), h("p", {}, error.message)));
  }
}

start();
