// Pictures without labels: the model proposes which of them to label next, and learns those that were labelled.

import { suggest } from "./api.js";
import { classChoice } from "./choice.js";
import { activity, toast } from "./dialog.js";
import { h, icon, plural, show } from "./dom.js";
import { chosen, dropped, hashOf, smaller } from "./files.js";
import { named } from "./teach.js";

const MOST = 500; // pictures that are compared with each other at a time
const AT_ONCE = 12; // proposals

/** Return the panel and a function that redraws it. */
export function inboxPanel(project) {
  const panel = h("section", { class: "panel", id: "inbox", hidden: true, "aria-label": "Inbox" });
  let waiting = []; // [{file, name, blob, hash}]: what is sent is a smaller copy
  let proposals = []; // [{picture, answer, url, label}]: the label is null until one is chosen
  let drawnFor = null; // the classes when the panel was drawn

  async function bring(found) {
    if (!found.length) return toast("No images found there.", "failed");
    const { bar, signal, end } = activity(`Preparing ${plural(found.length, "picture")}`, { max: found.length });
    try {
      for (const { file } of found) {
        signal.throwIfAborted();
        waiting.push({ file, name: file.name, blob: await smaller(file), hash: await hashOf(file) });
        bar.value++;
      }
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    } finally {
      end();
    }
    return propose();
  }

  /** Ask the model which pictures to label. */
  async function propose() {
    setProposals([]);
    const asked = waiting.slice(0, MOST);
    if (asked.length) {
      const { end, signal } = activity(`Looking at ${plural(asked.length, "picture")}`);
      try {
        const found = await suggest(project.name, asked, AT_ONCE, signal);
        const known = found.learned_as.map(({ image }) => asked[image - 1]);
        const broken = asked.filter((_, index) => found.broken.some((text) => text.startsWith(`image ${index + 1}:`)));
        waiting = waiting.filter((picture) => !known.includes(picture) && !broken.includes(picture));
        if (known.length) toast(`${plural(known.length, "picture")} of the inbox ${known.length === 1 ? "was" : "were"} already learned.`);
        if (broken.length) toast(`Could not be read: ${found.broken.slice(0, 5).map((text) => named(text, asked)).join("; ")}`, "failed");
        const made = found.suggestions.map((answer) => ({ picture: asked[answer.image - 1], answer, label: null }));
        setProposals(made.map((one) => ({ ...one, url: URL.createObjectURL(one.picture.blob) })));
      } catch (error) {
        if (error.name !== "AbortError") toast(named(error.message, asked), "failed");
        if (error.status === 422) waiting = waiting.filter((picture) => !asked.includes(picture)); // none can be read
      } finally {
        end();
      }
    }
    draw();
  }

  function setProposals(fresh) {
    for (const { url } of proposals) URL.revokeObjectURL(url);
    proposals = fresh;
  }

  async function teach() {
    const labelled = proposals.filter(({ label }) => label !== null);
    const items = labelled.map(({ label, picture }) => ({ label, file: picture.file }));
    if (await project.teach(items)) {
      waiting = waiting.filter((picture) => !labelled.some((one) => one.picture === picture));
      await propose();
    }
  }

  function others() {
    waiting = waiting.filter((picture) => !proposals.some((one) => one.picture === picture));
    return propose();
  }

  function tile(one) {
    const { answer } = one;
    const say = (label) => {
      one.label = label;
      draw();
    };
    const guess = `${answer.label} ${Math.round(100 * answer.score)}%`;
    return h(
      "article",
      { class: `tile${one.label === null ? "" : " chosen"}`, "aria-label": `${one.picture.name}, ${one.label ?? guess}` },
      h("div", { class: "shot" }, h("img", { src: one.url, alt: "", title: one.picture.name }), answer.novel && h("span", { class: "badge" }, "none of these?")),
      one.label === null
        ? h("button", { class: "yes", title: `It is ${answer.label}`, onclick: () => say(answer.label) }, icon("check"), h("span", {}, guess))
        : h("button", { class: "yes", title: "Take the label away", onclick: () => say(null) }, icon("close"), h("span", {}, one.label)),
      classChoice(project.all(), "It is …", say),
    );
  }

  const picker = h("input", { type: "file", multiple: true, accept: "image/*,.zip", class: "hidden", tabindex: "-1", "aria-hidden": "true", id: "inbox-files" });
  picker.addEventListener("change", async () => bring(await chosen(picker.files)));
  const tray = h(
    "div",
    { class: "tray" },
    h("p", {}, "Drop pictures without labels. The model proposes those from which it would learn most."),
    h("button", { onclick: () => picker.click() }, icon("image"), "Choose pictures"),
    picker,
  );
  tray.addEventListener("drop", async (event) => bring(await dropped(event.dataTransfer)));

  function draw() {
    drawnFor = project.all().join("\n");
    const labelled = proposals.filter(({ label }) => label !== null).length;
    const rest = waiting.length - proposals.length;
    show(
      panel,
      h("h2", {}, "Inbox"),
      tray,
      proposals.length > 0 && [
        h("p", { class: "quiet" }, `${plural(proposals.length, "picture")} to label, the most useful first${rest > 0 ? `; ${rest} more wait` : ""}.`),
        h("div", { class: "tiles" }, proposals.map(tile)),
        h(
          "div",
          { class: "row wrap" },
          h("button", { id: "teach-inbox", class: "primary", disabled: !labelled, onclick: teach }, labelled ? `Teach ${plural(labelled, "picture")}` : "Teach"),
          h("button", { id: "other-pictures", onclick: others }, rest > 0 ? "Leave these, show others" : "Leave these"),
        ),
      ],
    );
  }
  draw();

  return {
    panel,
    draw: (facts) => {
      panel.hidden = !facts;
      if (facts && drawnFor !== project.all().join("\n")) draw();
    },
    close: () => setProposals([]),
  };
}
