// A picture of this sitting: shown small or large, moved to another class, or forgotten.

import { classChoice } from "./choice.js";
import { confirm, sheet } from "./dialog.js";
import { h, icon } from "./dom.js";

/** Open a picture {blob, thumb, name} that was taught as ``label``. */
export function openPicture(project, label, picture) {
  const url = URL.createObjectURL(picture.blob);
  const others = project.all().filter((other) => other !== label);
  const move = async (fresh) => {
    close();
    await project.relabel([{ label: fresh, blob: picture.blob, thumb: picture.thumb, name: picture.name }]);
  };
  const forget = async () => {
    close();
    const cost = "Nothing in the model will depend on it any more. This cannot be undone, and it removes the steps before it and the leave-one-out results, which depend on it, too.";
    if (await confirm("Forget this picture?", cost, "Forget")) await project.forget(picture);
  };
  const close = sheet(
    label,
    [
      h("img", { class: "large", src: url, alt: `${picture.name}, taught as ${label}` }),
      h("p", {}, picture.name),
      h(
        "div",
        { class: "row wrap" },
        classChoice(others, "Wrong? It is …", move, { id: "move" }),
        h("button", { id: "forget", class: "danger-text", onclick: forget }, icon("bin"), "Forget"),
      ),
    ],
    () => URL.revokeObjectURL(url),
  );
}

/** A small picture, which opens. */
export const thumb = (project, label, picture) =>
  h(
    "button",
    { class: "thumb", title: picture.name, "aria-label": `${picture.name}, ${label}`, onclick: () => openPicture(project, label, picture) },
    picture.thumb ? h("img", { src: picture.thumb, alt: "" }) : icon("image"),
  );
