// One camera for the whole page; all video elements share its stream.

import { drawn } from "./files.js";

let stream = null;
const users = new Set();

/** Show the camera in a video element; rejects with a readable message if that fails. */
export async function attach(video) {
  users.add(video);
  try {
    if (!navigator.mediaDevices) {
      throw new Error("The camera works only on this machine or over https: start the server with --ssl-certfile and --ssl-keyfile. You can still add images.");
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

/** Stop showing the camera; it is switched off after its last user. */
export async function detach(video) {
  users.delete(video);
  video.srcObject = null;
  if (users.size || !stream) return;
  const open = stream;
  stream = null;
  for (const track of (await open.catch(() => null))?.getTracks() ?? []) track.stop();
}

/** The current frame as a square JPEG. */
export const frame = (video) => drawn(video, 256, true);

function explained(error) {
  if (error.name === "NotAllowedError") return new Error("Camera access is blocked. You can allow it in the address bar.");
  if (error.name === "NotFoundError") return new Error("No camera found. You can drop or paste images instead.");
  if (error.name === "NotReadableError") return new Error("Another program is using the camera.");
  return error;
}
