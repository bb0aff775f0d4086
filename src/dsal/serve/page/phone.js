// Open the page on a phone: its address in the network, and the QR code of it.

import { phone } from "./api.js";
import { sheet } from "./dialog.js";
import { h } from "./dom.js";

const QUIET = 4; // light modules around the code
const CAMERA = "Browsers open the camera only over https: start the server with --ssl-certfile and --ssl-keyfile. Without it, “Add images” can still take photos.";

export async function openOnPhone() {
  const { url, qr } = await phone(location.origin);
  const way = url
    ? [
        drawn(qr),
        h("p", {}, "Scan this with a phone in the same network, or open"),
        h("p", {}, h("a", { href: url }, url)),
        !url.startsWith("https:") && h("p", { class: "quiet" }, CAMERA),
      ]
    : [h("p", {}, "Only this machine can reach this server. Start it with “dsal serve --host 0.0.0.0”, then others in the same network can, with its token."), h("p", { class: "quiet" }, CAMERA)];
  sheet("Open on a phone", way);
}

function drawn(rows) {
  const side = rows.length + 2 * QUIET;
  const canvas = h("canvas", { class: "qr", width: side, height: side, role: "img", "aria-label": "QR code of the address below" });
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, side, side);
  context.fillStyle = "#000";
  rows.forEach((row, y) => [...row].forEach((bit, x) => bit === "1" && context.fillRect(x + QUIET, y + QUIET, 1, 1)));
  return canvas;
}
