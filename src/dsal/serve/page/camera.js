// One camera for the whole page; whoever shows it shares the stream.

import { drawn } from "./files.js";

let stream = null;
const users = new Set();

/** Show the camera in a video element; the promise fails with a sentence if there is none. */
export async function attach(video) {
  users.add(video);
  try {
    if (!navigator.mediaDevices) {
      throw new Error("Browsers open the camera only on this machine or over https. You can still drop images.");
    }
    stream ??= navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 640 } } });
    video.srcObject = await stream;
    video.muted = true;
    await video.play();
    while (!video.videoWidth) await new Promise((resolve) => setTimeout(resolve, 20));
  } catch (error) {
    users.delete(video);
    if (!users.size) stream = null;
    throw explained(error);
  }
}

/** Stop showing it; without any user the camera goes off. */
export async function detach(video) {
  users.delete(video);
  video.srcObject = null;
  if (users.size || !stream) return;
  const open = stream;
  stream = null;
  for (const track of (await open.catch(() => null))?.getTracks() ?? []) track.stop();
}

/** What the camera sees now, as a square JPEG. */
export const frame = (video) => drawn(video, 256, true);

function explained(error) {
  if (error.name === "NotAllowedError") return new Error("The camera is not allowed: change that beside the address.");
  if (error.name === "NotFoundError") return new Error("There is no camera. You can drop or paste images instead.");
  if (error.name === "NotReadableError") return new Error("Another program is using the camera.");
  return error;
}
