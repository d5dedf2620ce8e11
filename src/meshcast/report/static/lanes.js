// Lanes over time on a canvas: the timeline of kinds of rank, and the schedule of a pipeline. Zoomed by buttons, keys, Ctrl and the wheel.
"use strict";
const reportLanes = (Page) => {
  const Report = Page.report;
  const AXIS = 26, GAP = 4, HEAD = 20;

  // `rows`: {label, head, height, slices: [start, duration, what, ...], marked: Set, colour(what), text(what), tip(what, start, duration)}
  const view = (host, end, rowsOf) => {
    const canvas = Page.element("canvas");
    host.replaceChildren(canvas);
    const state = { from: 0, to: end, rows: [], gutter: 0, width: 0 };
    const x = (moment) => state.gutter + ((moment - state.from) / (state.to - state.from)) * (state.width - state.gutter);
    const moment = (at) => state.from + ((at - state.gutter) / (state.width - state.gutter)) * (state.to - state.from);

    const draw = () => {
      if (!host.clientWidth) return;  // not shown
      state.rows = rowsOf();
      state.width = Page.width(host);
      const narrow = state.width < 560;
      state.gutter = narrow ? 0 : 118;
      let y = AXIS;
      for (const row of state.rows) { row.top = y + (row.head ? HEAD : 0) + (narrow && !row.quiet ? 13 : 0); y = row.top + row.height + GAP; }
      const ratio = Page.dots();
      canvas.width = Math.round(state.width * ratio);
      canvas.height = Math.round(y * ratio);
      canvas.style.width = `${state.width}px`;
      canvas.style.height = `${y}px`;
      const pen = canvas.getContext("2d");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      const [ink, soft, faint, line, paper, path] = ["ink", "soft", "faint", "line", "paper", "path"].map(Page.colour);
      const font = Page.font();
      pen.fillStyle = paper;
      pen.fillRect(0, 0, state.width, y);
      axis(pen, y, { soft, line, font });
      for (const row of state.rows) {
        pen.textBaseline = "middle";
        if (row.head) {
          pen.fillStyle = ink;
          pen.font = `600 12px ${font}`;
          pen.fillText(row.head, narrow ? 4 : 2, row.top - (narrow && !row.quiet ? 13 : 0) - HEAD / 2 + 1);
        }
        pen.fillStyle = row.quiet ? faint : soft;
        pen.font = `12px ${font}`;
        if (!narrow) pen.fillText(row.label, 2, row.top + row.height / 2, state.gutter - 8);
        else if (!row.quiet) pen.fillText(row.label, 4, row.top - 7);
        slices(pen, row, { font, path, line });
      }
    };

    const axis = (pen, height, { soft, line, font }) => {
      const room = state.width - state.gutter;
      const rough = ((state.to - state.from) / room) * 110;
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
      pen.font = `11px ${font}`;
      pen.textBaseline = "middle";
      for (let at = Math.ceil(state.from / step) * step; at <= state.to; at += step) {
        const place = Math.round(x(at)) + 0.5;
        pen.strokeStyle = line;
        pen.beginPath(); pen.moveTo(place, AXIS - 6); pen.lineTo(place, height); pen.stroke();
        pen.fillStyle = soft;
        const text = at === 0 ? "0" : Units.shown(at * 1e-9, "s");
        pen.textAlign = place + 40 > state.width ? "right" : place < state.gutter + 20 ? "left" : "center";
        pen.fillText(text, place, 10);
      }
      pen.textAlign = "left";
    };

    const first = (list, at) => {  // the first slice that ends behind a moment: lanes are in order of time
      let low = 0, high = list.length / 3;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (list[3 * middle] + list[3 * middle + 1] < at) low = middle + 1; else high = middle;
      }
      return low;
    };

    const slices = (pen, row, { font, path, line }) => {
      const list = row.slices, count = list.length / 3;
      pen.save();
      pen.beginPath(); pen.rect(state.gutter, row.top - 1, state.width - state.gutter, row.height + 4); pen.clip();
      pen.fillStyle = line;
      pen.globalAlpha = 0.35;
      pen.fillRect(state.gutter, row.top, state.width - state.gutter, row.height);
      pen.globalAlpha = 1;
      let covered = -1;
      pen.font = `11px ${font}`;
      pen.textBaseline = "middle";
      for (let place = first(list, state.from); place < count; place++) {
        const start = list[3 * place], length = list[3 * place + 1], what = list[3 * place + 2];
        if (start > state.to) break;
        const left = Math.max(x(start), state.gutter - 2), right = Math.min(x(start + length), state.width + 2);
        const marked = row.marked && row.marked.has(place);
        if (right <= covered && right - left < 1) continue;  // under a pixel that is full already
        const wide = Math.max(right - left, 0.75);
        pen.globalAlpha = row.only && !marked ? 0.13 : 1;
        const shade = row.colour(what);
        pen.fillStyle = shade;
        pen.fillRect(left, row.top, wide > 3 ? wide - 0.75 : wide, row.height);
        if (marked) { pen.fillStyle = path; pen.fillRect(left, row.top + row.height - 1, Math.max(wide, 1), 2.5); }
        if (wide > 26 && row.height > 11) {
          const text = row.text(what);
          if (text) {
            pen.fillStyle = Page.letters(shade);
            const shown = fit(pen, text, wide - 8);
            if (shown) pen.fillText(shown, left + 4, row.top + row.height / 2 + 0.5);
          }
        }
        covered = Math.max(covered, Math.floor(left + wide));
      }
      pen.restore();
    };

    const fit = (pen, text, room) => {
      if (pen.measureText(text).width <= room) return text;
      const letters = Math.floor(room / 6.4);
      return letters > 3 ? `${text.slice(0, letters - 1)}…` : "";
    };

    const found = (event) => {
      const box = canvas.getBoundingClientRect();
      const at = moment(event.clientX - box.left), y = event.clientY - box.top;
      const near = ((state.to - state.from) / (state.width - state.gutter)) * 2;
      for (const row of state.rows) {
        if (y < row.top - 1 || y > row.top + row.height + 2) continue;
        for (let place = first(row.slices, at - near); place < row.slices.length / 3; place++) {
          const [start, length, what] = row.slices.slice(3 * place, 3 * place + 3);
          if (start > at + near) break;
          if (start + length >= at - near) return row.tip(what, start, length, row.marked && row.marked.has(place));
        }
      }
      return null;
    };

    const move = (from, to) => {
      const least = Math.min(end, 200);
      let length = Math.max(least, Math.min(end, to - from));
      from = Math.max(0, Math.min(from, end - length));
      state.from = from; state.to = from + length;
      requestAnimationFrame(draw);
    };
    const zoom = (factor, around = (state.from + state.to) / 2) => move(around - (around - state.from) * factor, around + (state.to - around) * factor);
    const shift = (share) => { const by = share * (state.to - state.from); move(state.from + by, state.to + by); };

    host.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) {
        if (Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
        event.preventDefault();
        shift(event.deltaX / state.width);
        return;
      }
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.004), moment(event.clientX - canvas.getBoundingClientRect().left));
    }, { passive: false });
    let held = null;
    host.addEventListener("pointerdown", (event) => { held = { x: event.clientX, from: state.from, to: state.to }; host.setPointerCapture(event.pointerId); host.classList.add("moving"); });
    host.addEventListener("pointermove", (event) => {
      if (held && event.buttons) {
        const by = ((held.x - event.clientX) / (state.width - state.gutter)) * (held.to - held.from);
        if (Math.abs(held.x - event.clientX) > 3) { Page.hide(); move(held.from + by, held.to + by); return; }
      }
      const tip = found(event);
      if (tip) Page.show(tip, event.clientX, event.clientY); else Page.hide();
    });
    for (const name of ["pointerup", "pointercancel"]) host.addEventListener(name, () => { held = null; host.classList.remove("moving"); });
    host.addEventListener("pointerleave", Page.hide);
    host.addEventListener("dblclick", (event) => zoom(0.4, moment(event.clientX - canvas.getBoundingClientRect().left)));
    host.addEventListener("keydown", (event) => {
      const keys = { w: () => zoom(0.7), s: () => zoom(1 / 0.7), a: () => shift(-0.2), d: () => shift(0.2), ArrowLeft: () => shift(-0.2), ArrowRight: () => shift(0.2), "+": () => zoom(0.7), "-": () => zoom(1 / 0.7), 0: () => move(0, end) };
      const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); }
    });
    const figure = host.closest("figure");
    for (const button of figure.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => ({ in: () => zoom(0.5), out: () => zoom(2), all: () => move(0, end) })[button.dataset.zoom]());
    }
    Page.draws(draw);
    return draw;
  };

  const COLOURS = { compute: "compute", memory: "memory", latency: "overhead", host: "overhead", communication: "communication", copy: "memory", idle: "idle", loop: "faint", task: "compute", forward: "compute", backward: "memory", weight: "overhead", update: "faint" };
  const palette = () => Object.fromEntries(Object.entries(COLOURS).map(([kind, name]) => [kind, Page.colour(name)]));
  const UNITS = { bytes: "B", flops: "FLOP", joules: "J" };

  const timeline = (host, scene) => {
    const figure = host.closest("figure");
    const chosen = figure.querySelector("[data-kinds]");
    const path = figure.querySelector("[data-path]");
    const marks = new Map();
    const rows = () => {
      const colours = palette();
      const which = chosen && chosen.value !== "all" ? [scene.kinds[Number(chosen.value)]] : scene.kinds;
      return which.flatMap((kind) => kind.lanes.map((lane, place) => {
        if (!marks.has(lane)) marks.set(lane, new Set(lane.critical));
        const flat = lane.group === "loop" || lane.group === "path";
        const alike = kind.ranks > 1 ? `${kind.ranks.toLocaleString("en-US")} ranks alike, from rank ${kind.first}` : `rank ${kind.first}`;
        return {
          label: lane.name, head: place === 0 ? `${kind.label ? `${kind.label}: ` : ""}${alike}` : "",
          height: flat ? 12 : 22, slices: lane.slices, marked: marks.get(lane),
          only: path.checked && lane.group !== "path",
          colour: (what) => colours[scene.what[what].kind] || colours.communication,
          text: (what) => scene.what[what].name,
          tip: (what, start, length, critical) => {
            const said = scene.what[what];
            const facts = Object.entries(said.facts).map(([name, value]) => [name.replaceAll("_", " "), Units.shown(value, UNITS[name] || "")]);
            return Page.lines(said.name, [
              ["time", Units.shown(length * 1e-9, "s")], ["of step", Units.shown(length / scene.step_ns, "share")],
              ["from", Units.shown(start * 1e-9, "s")], ...facts, ["source", said.source],
              ["critical path", lane.group === "path" || critical ? "yes" : ""],
            ]);
          },
        };
      }));
    };
    const draw = view(host, scene.step_ns, rows);
    if (chosen) chosen.addEventListener("change", draw);
    path.addEventListener("change", draw);
  };

  const WORKS = [["forward", "compute"], ["backward", "memory"], ["weights' gradient", "overhead"], ["gradients reduced", "communication"], ["update", "faint"]];
  const pipeline = (host, data) => {
    // Boxes of all stages become slices whose `what` is a number of this list.
    const boxes = [];
    const stages = data.rows.map((row) => {
      const slices = [];
      for (let at = 0; at < row.tasks.length; at += 5) {
        boxes.push({ work: row.tasks[at + 2], microbatch: row.tasks[at + 3], chunk: row.tasks[at + 4] });
        slices.push(row.tasks[at], row.tasks[at + 1], boxes.length - 1);
      }
      for (const [work, [start, length]] of [[3, row.reduce], [4, row.update]]) {
        if (length > 0) { boxes.push({ work }); slices.push(start, length, boxes.length - 1); }
      }
      return { stage: row.stage, slices };
    });
    const height = Math.max(10, Math.min(26, Math.floor(420 / stages.length)));
    view(host, data.step_ns, () => {
      const colours = WORKS.map(([, name]) => Page.colour(name));
      return stages.map(({ stage, slices }) => ({
        label: `stage ${stage}`, head: "", height, slices, quiet: true,
        colour: (what) => colours[boxes[what].work],
        text: (what) => (boxes[what].microbatch === undefined ? "" : String(boxes[what].microbatch)),
        tip: (what, start, length) => {
          const box = boxes[what];
          return Page.lines(`stage ${stage}: ${WORKS[box.work][0]}`, [
            ["microbatch", box.microbatch === undefined ? "" : String(box.microbatch)],
            ["part of the model", data.chunks > 1 && box.chunk !== undefined ? String(box.chunk) : ""],
            ["time", Units.shown(length * 1e-9, "s")], ["from", Units.shown(start * 1e-9, "s")],
          ]);
        },
      }));
    });
  };

  for (const host of Page.root.querySelectorAll('[data-plot="timeline"]')) timeline(host, Report.sections.timeline.scenes.find((scene) => scene.name === host.dataset.name));
  for (const host of Page.root.querySelectorAll('[data-plot="pipeline"]')) pipeline(host, Report.sections.pipeline);
  return { view };
};
