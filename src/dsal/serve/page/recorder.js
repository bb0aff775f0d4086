// The camera of a class: a button that records while it is held, by pointer or space bar, a button that shows the picture
// beforehand, and the stage that shows it, below both, so that they do not move under the finger.

import { attach, detach, frame } from "./camera.js";
import { toast } from "./dialog.js";
import { h, icon, show } from "./dom.js";

const FRAMES_PER_SECOND = 8;
const MOST_FRAMES = 300; // per recording

export function recorder(project, label) {
  let held = false;
  let video = null; // while the stage is open
  const stage = h("div", { class: "stage", hidden: true });
  const counter = h("span", { class: "counter" });
  const rate = h("span", { class: "rate" });
  const numbers = h("div", { class: "numbers", hidden: true }, counter, rate);
  const button = h("button", { class: "hold", "aria-label": `Hold to record ${label} with the camera` }, icon("camera"), h("span", {}, "Hold to record"));
  const preview = h("button", { class: "round preview", title: "Show the camera", "aria-label": `Show the camera for ${label}`, "aria-pressed": "false", onclick: () => (video ? close() : open().catch(failed)) }, icon("eye"));
  const failed = (error) => toast(error.message, "failed");

  async function open() {
    if (video) return;
    const fresh = h("video", { playsInline: true, muted: true });
    video = fresh;
    show(stage, fresh, numbers);
    stage.hidden = false;
    preview.setAttribute("aria-pressed", "true");
    project.watching += 1; // cards are not redrawn while a camera is open
    try {
      await attach(fresh);
    } catch (error) {
      await close();
      throw error;
    }
  }

  async function close() {
    const old = video;
    if (!old) return;
    video = null;
    stage.hidden = true;
    preview.setAttribute("aria-pressed", "false");
    project.watching -= 1;
    await detach(old);
  }

  const stop = () => (held = false);
  const start = async () => {
    if (held || project.recording) return;
    held = project.recording = true;
    const wasOpen = video !== null;
    const frames = [];
    button.classList.add("on");
    try {
      await open();
      const began = performance.now();
      numbers.hidden = false;
      show(counter, "…");
      show(rate);
      while (held && frames.length < MOST_FRAMES) {
        frames.push(await frame(video));
        show(counter, String(frames.length));
        await new Promise((resolve) => setTimeout(resolve, 1000 / FRAMES_PER_SECOND));
        show(rate, `${((1000 * frames.length) / (performance.now() - began)).toFixed(1)} a second`);
      }
    } catch (error) {
      failed(error);
    } finally {
      held = project.recording = false;
      button.classList.remove("on");
      numbers.hidden = true;
      if (!wasOpen) await close();
    }
    if (frames.length) await project.teach(frames.map((blob) => ({ label, blob })));
    else await project.refresh();
  };
  button.addEventListener("pointerdown", (event) => {
    button.setPointerCapture(event.pointerId);
    start();
  });
  for (const name of ["pointerup", "pointercancel", "blur"]) button.addEventListener(name, stop);
  button.addEventListener("keydown", (event) => {
    if (event.key !== " " && event.key !== "Enter") return;
    event.preventDefault();
    start();
  });
  button.addEventListener("keyup", stop);
  button.addEventListener("contextmenu", (event) => event.preventDefault());
  return { button, preview, stage };
}
