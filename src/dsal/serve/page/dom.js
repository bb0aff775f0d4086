// Create elements; text is never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Create an element with properties, event handlers (onclick: f) and children; null children are skipped. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "hue") element.style.setProperty("--hue", value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const PATHS = {
  plus: "M12 5v14M5 12h14",
  back: "M15 5l-7 7 7 7",
  down: "M5 9l7 7 7-7",
  eye: "M2 12c3-5 6-7 10-7s7 2 10 7c-3 5-6 7-10 7s-7-2-10-7zM12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6",
  redo: "M16 5l4 4-4 4M20 9h-9a6 6 0 0 0 0 12h3",
  phone: "M7 3h10v18H7zM11 18h2",
  undo: "M8 5L4 9l4 4M4 9h9a6 6 0 0 1 0 12h-3",
  camera: "M4 8h3l2-3h6l2 3h3v11H4zM12 10.5a3 3 0 1 0 0 6 3 3 0 0 0 0-6",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15.5 9.2h.01",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  file: "M12 4v11M7.5 10.5L12 15l4.5-4.5M5 20h14",
  up: "M12 16V5M7.5 9.5L12 5l4.5 4.5M5 20h14",
  bin: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  pen: "M4 20l1-4L16 5l3 3L8 19z",
  close: "M6 6l12 12M18 6L6 18",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
  cube: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9",
  check: "M5 13l4 4L19 7",
};

/** Create a line icon; decorative, so hidden from screen readers. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

export function show(parent, ...children) {
  parent.replaceChildren(...children.flat().filter(Boolean));
}

export const plural = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

export const percent = (x) => `${(100 * x).toFixed(x > 0.995 || x < 0.005 ? 0 : 1)}%`;

export function bytes(n) {
  return n < 1e6 ? `${Math.max(1, Math.round(n / 1e3))} kB` : `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)} MB`;
}

/** The hue of a class by its index; neighbours differ. */
export const hueOf = (index) => String(Math.round((255 + index * 137.5) % 360));
