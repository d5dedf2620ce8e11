// Points of a search: one objective over another, the front joined. Drawn as SVG, so that it prints and scales.

import { h, s } from "./dom.js";

const HEIGHT = 380, LEFT = 84, RIGHT = 18, TOP = 14, BOTTOM = 48;

function scale(values, from, to) {
  const kept = values.filter((value) => value > 0 && Number.isFinite(value));
  let low = Math.min(...kept), high = Math.max(...kept);
  if (!(high > low)) { low *= 0.9; high *= 1.1; }
  const wide = Math.log(high / low);
  const at = (value) => from + ((Math.log(value / low) + wide * 0.05) / (wide * 1.1)) * (to - from);
  return { at, ticks: ticks(low, high) };
}

function ticks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const digit of [1, 2, 5]) { const value = digit * 10 ** power; if (value >= low * 0.999 && value <= high * 1.001) found.push(value); }
  }
  const apart = Math.ceil(found.length / 7);
  if (found.length >= 2) return found.filter((_, place) => place % apart === 0);
  return [low, (low * high) ** 0.5, high];
}

// Points that no other is as good as in both and better in one.
export function front(points, x, y) {
  const better = (sign, value) => sign * value;
  const sorted = [...points].sort((a, b) => better(x.sign, x.of(a)) - better(x.sign, x.of(b)) || better(y.sign, y.of(a)) - better(y.sign, y.of(b)));
  const found = [];
  let best = Infinity;
  for (const point of sorted) if (better(y.sign, y.of(point)) < best) { best = better(y.sign, y.of(point)); found.push(point); }
  return found;
}

export function scatter(points, x, y, { label, chosen, pick }) {
  const WIDTH = window.innerWidth < 860 ? 400 : 900; // so that letters are as large as the page's
  const drawn = points.filter((point) => x.of(point) > 0 && y.of(point) > 0);
  if (!drawn.length) return h("p", { class: "sub" }, "No point runs yet.");
  const across = scale(drawn.map(x.of), LEFT, WIDTH - RIGHT), up = scale(drawn.map(y.of), HEIGHT - BOTTOM, TOP);
  const edge = front(drawn, x, y);
  const onEdge = new Set(edge.map((point) => point.number));
  const line = edge.length > 1 && s("polyline", { class: "front", points: edge.map((point) => `${across.at(x.of(point)).toFixed(1)},${up.at(y.of(point)).toFixed(1)}`).join(" ") });
  const dots = [...drawn].sort((a, b) => onEdge.has(a.number) - onEdge.has(b.number)).map((point) => s("circle", {
    class: `point${onEdge.has(point.number) ? " best" : ""}${chosen === point.number ? " chosen" : ""}`, cx: across.at(x.of(point)).toFixed(1), cy: up.at(y.of(point)).toFixed(1), r: onEdge.has(point.number) ? 5.5 : 3.5,
    tabindex: onEdge.has(point.number) ? 0 : null, role: "button", "aria-label": label(point), onclick: () => pick(point), onkeydown: (event) => { if (event.key === "Enter") pick(point); },
  }, s("title", {}, label(point))));
  return s("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": `${y.name} over ${x.name}` },
    across.ticks.map((value) => [s("line", { class: "rule", x1: across.at(value), x2: across.at(value), y1: TOP, y2: HEIGHT - BOTTOM }), s("text", { x: across.at(value), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, x.tell(value))]),
    up.ticks.map((value) => [s("line", { class: "rule", x1: LEFT, x2: WIDTH - RIGHT, y1: up.at(value), y2: up.at(value) }), s("text", { x: LEFT - 8, y: up.at(value) + 4, "text-anchor": "end" }, y.tell(value))]),
    s("text", { class: "axis", x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, x.name),
    s("text", { class: "axis", x: 14, y: (TOP + HEIGHT - BOTTOM) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(TOP + HEIGHT - BOTTOM) / 2})` }, y.name),
    line, dots);
}
