"use strict";
(() => {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const hidden = new Set();

  /* Only text is ever put on the page: names come from files. */
  function make(name, text, className) {
    const node = document.createElement(name);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  }

  function svg(name, attributes) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  }

  /* Long names may break after a slash or an underscore. */
  const breakable = (name) => name.replace(/[/_]/g, "$&\u200b");

  const limit = (value, low, high) => Math.min(Math.max(value, low), high);

  /* Runs switch on and off in all charts at once. */
  function toggle(key) {
    const off = !hidden.delete(key);
    if (off) hidden.add(key);
    const chosen = key === "paper" ? ".plot .paper" : `.plot [data-run="${key}"]`;
    for (const node of document.querySelectorAll(chosen)) node.classList.toggle("off", off);
    for (const button of document.querySelectorAll(`[data-toggle="${key}"]`)) button.setAttribute("aria-pressed", !off);
  }

  for (const button of document.querySelectorAll("[data-toggle]"))
    button.addEventListener("click", () => toggle(button.dataset.toggle));

  /* Read-outs on the curves: pointer, touch, or arrow keys. */
  function watch(plot) {
    const { unit, panels } = data.charts[plot.dataset.chart];
    const lines = panels[Number(plot.dataset.panel)];
    const [left, right, top, bottom, xLow, xHigh, yLow, yHigh] = plot.dataset.plot.split(" ").map(Number);
    const cursor = plot.appendChild(svg("g", { class: "cursor" }));
    const readout = plot.closest(".chart").querySelector(".readout");
    const bend = "log" in plot.dataset ? Math.log10 : Number;
    const placeX = (x) => left + ((right - left) * (x - xLow)) / (xHigh - xLow);
    const placeY = (y) => bottom + ((top - bottom) * (bend(limit(y, yLow, yHigh)) - bend(yLow))) / (bend(yHigh) - bend(yLow));
    let current = null;

    const shown = () => lines.filter((line) => !hidden.has(String(line.run)));
    const stops = () => [...new Set(shown().flatMap((line) => line.points.map((point) => point[0])))].sort((a, b) => a - b);

    function clear() {
      current = null;
      cursor.replaceChildren();
      readout.hidden = true;
    }

    function show(x) {
      current = x;
      const met = shown().flatMap((line) => line.points.filter((point) => point[0] === x).map((point) => [line, point]));
      if (!met.length) return clear();
      const phases = new Set(met.map(([, point]) => point[1]));
      const same = phases.size === 1;
      readout.replaceChildren(make("strong", (same ? `phase ${met[0][1][1]}, ` : "") + `${x} classes seen`));
      cursor.replaceChildren(svg("path", { d: `M${placeX(x)},${top}V${bottom}` }));
      for (const [line, [, phase, value, std]] of met) {
        cursor.append(svg("circle", { cx: placeX(x), cy: placeY(value), r: 3.4, class: `c${line.color}` }));
        const row = make("div");
        const digits = unit === "%" ? 2 : 3;
        const text = value.toFixed(digits) + (std === null ? "" : ` ± ${std.toFixed(digits)}`);
        row.append(make("i", "", `c${line.color}`), make("span", line.label + (same ? "" : `, phase ${phase}`)), make("b", `${text} ${unit}`));
        readout.append(row);
      }
      readout.hidden = false;
      const box = plot.getBoundingClientRect();
      const outer = plot.closest(".chart").getBoundingClientRect();
      const at = box.left - outer.left + (placeX(x) * box.width) / plot.viewBox.baseVal.width;
      const room = readout.offsetWidth + 16;
      const from = box.left - outer.left + (left * box.width) / plot.viewBox.baseVal.width;
      readout.style.left = `${at - room > from ? at - room : Math.min(at + 16, outer.width - room)}px`; // accuracy falls: below left is free
      readout.style.top = `${(bottom * box.height) / plot.viewBox.baseVal.height + box.top - outer.top - readout.offsetHeight - 8}px`;
    }

    function follow(event) {
      const box = plot.getBoundingClientRect();
      const x = ((event.clientX - box.left) * plot.viewBox.baseVal.width) / box.width;
      const nearest = stops().reduce((best, stop) => (best === null || Math.abs(placeX(stop) - x) < Math.abs(placeX(best) - x) ? stop : best), null);
      if (nearest !== null && nearest !== current) show(nearest);
    }

    plot.addEventListener("pointermove", follow);
    plot.addEventListener("pointerdown", follow);
    plot.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && clear());
    plot.addEventListener("blur", clear);
    plot.addEventListener("keydown", (event) => {
      const all = stops();
      const index = all.indexOf(current);
      const moves = { ArrowRight: index + 1, ArrowLeft: index < 0 ? all.length - 1 : index - 1, Home: 0, End: all.length - 1 };
      if (event.key === "Escape") return clear();
      if (!(event.key in moves) || !all.length) return;
      event.preventDefault();
      show(all[limit(moves[event.key], 0, all.length - 1)]);
    });
  }

  document.querySelectorAll(".plot").forEach(watch);

  /* Tables sort by a click on a heading: numbers by value, text by alphabet, missing values last. */
  for (const table of document.querySelectorAll(".sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) =>
      head.firstElementChild.addEventListener("click", () => {
        const numeric = head.classList.contains("num");
        const orders = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
        const order = head.getAttribute("aria-sort") === orders[0] ? orders[1] : orders[0];
        const sign = order === "ascending" ? 1 : -1;
        const compare = (a, b) => {
          const [one, two] = [a.cells[column], b.cells[column]];
          if (!numeric) return sign * one.textContent.localeCompare(two.textContent, "en", { numeric: true });
          return ("sort" in two.dataset) - ("sort" in one.dataset) || sign * (one.dataset.sort - two.dataset.sort);
        };
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
      }),
    );
  }

  const only = document.getElementById("only-differences");
  if (only) only.addEventListener("change", () => only.closest("section").classList.toggle("only-differences", only.checked));

  /* The confusion matrix: counts are unpacked once per run, then drawn as one pixel per cell. */
  const canvas = document.getElementById("matrix");
  if (!canvas) return;
  const ramps = {
    light: [[255, 255, 255], [157, 187, 224], [47, 95, 158], [11, 31, 61]],
    dark: [[21, 23, 27], [50, 84, 138], [104, 156, 222], [238, 244, 252]],
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const find = (name) => document.getElementById(`matrix-${name}`);
  const [runBox, slider, phaseName, marks, readout, caption] = ["run", "phase", "phase-name", "marks", "readout", "caption"].map(find);
  const pairs = document.getElementById("pairs");
  const unpacked = new Map();
  let printing = false;
  let view = null;
  let cell = null;

  async function unpack(key) {
    if (!unpacked.has(key)) {
      const { counts, width } = data.matrices[key];
      const bytes = Uint8Array.from(atob(counts), (character) => character.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      const buffer = await new Response(stream).arrayBuffer();
      unpacked.set(key, width === 2 ? new Uint16Array(buffer) : new Uint32Array(buffer));
    }
    return unpacked.get(key);
  }

  function shade(share) {
    const ramp = dark.matches && !printing ? ramps.dark : ramps.light;
    const place = Math.sqrt(share) * (ramp.length - 1); // the root lifts rare confusions out of the background
    const step = Math.min(Math.floor(place), ramp.length - 2);
    return ramp[step].map((from, i) => from + (ramp[step + 1][i] - from) * (place - step));
  }

  const side = (matrix, seen) => Math.ceil(seen / matrix.group);

  async function load() {
    const key = runBox.value;
    const index = Number(slider.value);
    const matrix = data.matrices[key];
    const all = await unpack(key);
    if (key !== runBox.value || index !== Number(slider.value)) return; // the selection has changed in the meantime
    const size = side(matrix, matrix.seen[index]);
    const start = matrix.seen.slice(0, index).reduce((sum, seen) => sum + side(matrix, seen) ** 2, 0);
    const counts = all.subarray(start, start + size * size);
    const totals = Array.from({ length: size }, (_, row) => counts.subarray(row * size, (row + 1) * size).reduce((a, b) => a + b, 0));
    view = { matrix, index, size, counts, totals, names: data.names[matrix.names], whole: side(matrix, matrix.classes) };
    cell = null;
    draw();
    describe();
  }

  function draw() {
    const { size, counts, totals, whole } = view;
    canvas.width = canvas.height = whole;
    const image = new ImageData(size, size);
    for (let i = 0; i < counts.length; i++) {
      const [red, green, blue] = shade(counts[i] / (totals[Math.floor(i / size)] || 1));
      image.data.set([red, green, blue, 255], 4 * i);
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
    const stops = Array.from({ length: 11 }, (_, i) => `rgb(${shade((i / 10) ** 2).join(" ")})`);
    document.querySelector(".ramp").style.background = `linear-gradient(to right, ${stops.join(", ")})`;
    mark();
  }

  function mark() {
    const { matrix, index, size, whole } = view;
    const share = (cells) => `${(100 * cells) / whole}%`;
    const nodes = [];
    if (matrix.seen[index] > matrix.base) {
      const across = make("div", "", "border-x");
      const down = make("div", "", "border-y");
      across.style.left = down.style.top = share(matrix.base / matrix.group);
      across.style.height = down.style.width = share(size);
      nodes.push(across, down);
    }
    if (cell) {
      const box = make("div", "", "cell");
      Object.assign(box.style, { left: share(cell[1]), top: share(cell[0]), width: share(1), height: share(1) });
      nodes.push(box);
    }
    marks.replaceChildren(...nodes);
  }

  function describe() {
    const { matrix, index, names } = view;
    const { group, seeds } = matrix;
    const phase = `${matrix.phases[index]} of ${matrix.increments}`;
    phaseName.textContent = `${phase}, ${matrix.seen[index]} classes`;
    canvas.setAttribute("aria-label", `Confusion matrix of ${matrix.label} after phase ${phase}: ${matrix.seen[index]} classes, accuracy ${matrix.accuracy[index]} %. Arrow keys move from cell to cell.`);
    readout.textContent = "Point at a cell, or use the arrow keys, to read it.";
    caption.textContent =
      `Test images${seeds > 1 ? `, summed over ${seeds} seeds` : ""}. ` +
      (group > 1 ? `Each cell merges ${group} × ${group} neighbouring classes. ` : "Each cell is one pair of classes. ") +
      "Shade: fraction of the row. Dashed: end of the base classes. Hatched: classes not learned yet.";
    const head = make("thead");
    const row = head.insertRow();
    for (const [title, kind] of [["True class", ""], ["Predicted as", ""], ["Images", "num"]]) {
      const cellHead = make("th", title, kind);
      cellHead.scope = "col";
      row.append(cellHead);
    }
    const body = make("tbody");
    for (const [truth, predicted, count, total] of matrix.pairs[index]) {
      const line = body.insertRow();
      line.append(make("td", breakable(names[truth])), make("td", breakable(names[predicted])), make("td", `${count} of ${total}`, "num"));
    }
    pairs.replaceChildren(pairs.caption, head, body);
  }

  function span(position) {
    const { matrix, index, names } = view;
    const first = position * matrix.group;
    const last = Math.min(first + matrix.group, matrix.seen[index]) - 1;
    return first === last ? `${names[first]} (${first})` : `${names[first]} to ${names[last]} (${first} to ${last})`;
  }

  function point(row, column) {
    const { size, counts, totals } = view;
    if (row < 0 || column < 0 || row >= size || column >= size) return;
    cell = [row, column];
    const count = counts[row * size + column];
    const share = ((100 * count) / (totals[row] || 1)).toFixed(1);
    const parts = [make("b", span(row)), row === column ? " recognised: " : " taken for ", make("b", row === column ? "" : span(column)), row === column ? "" : ": "];
    readout.replaceChildren(...parts, `${count} of ${totals[row]} images (${share} %)`);
    mark();
  }

  function locate(event) {
    if (!view) return;
    const box = canvas.getBoundingClientRect();
    const place = (offset, length) => Math.floor((offset / length) * view.whole);
    point(place(event.clientY - box.top, box.height), place(event.clientX - box.left, box.width));
  }

  canvas.addEventListener("pointermove", locate);
  canvas.addEventListener("pointerdown", locate);
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!view || !(event.key in moves)) return;
    event.preventDefault();
    const [down, across] = moves[event.key];
    const [row, column] = cell ? [cell[0] + down, cell[1] + across] : [0, 0];
    point(row, column);
  });

  function choose() {
    const matrix = data.matrices[runBox.value];
    slider.max = matrix.phases.length - 1;
    slider.value = slider.max;
    return load();
  }

  function redraw() {
    if (view) draw();
  }

  runBox.addEventListener("change", choose);
  slider.addEventListener("input", load);
  dark.addEventListener("change", redraw);
  addEventListener("beforeprint", () => { printing = true; redraw(); });
  addEventListener("afterprint", () => { printing = false; redraw(); });
  choose();
})();
