// Points of a search: one objective over another, the front joined. By ECharts, which reports have too: zoomed by a frame or with
// Ctrl and the wheel, told under the pointer, its kinds switched off in the legend.

import { h } from "./dom.js";

const WIDE = 30; // times between the least and the most from which an axis counts in decades

// Points that no other is as good as in both and better in one.
export function front(points, x, y) {
  const sorted = [...points].sort((a, b) => x.sign * (x.of(a) - x.of(b)) || y.sign * (y.of(a) - y.of(b)));
  const found = [];
  let best = Infinity;
  for (const point of sorted) if (y.sign * y.of(point) < best) { best = y.sign * y.of(point); found.push(point); }
  return found;
}

const host = h("div", { class: "plot", role: "img" });
let chart = null, shown = null;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function axis(measure, points, more) {
  const values = points.map(measure.of);
  const decades = Math.max(...values) / Math.min(...values) > WIDE;
  return {
    type: decades ? "log" : "value", scale: true, name: measure.name, nameLocation: "middle", nameTextStyle: { color: colour("soft"), fontWeight: 600 },
    axisLabel: { color: colour("soft"), hideOverlap: true, formatter: (value) => measure.tell(value) }, axisLine: { lineStyle: { color: colour("line-strong") } }, axisTick: { show: false },
    splitLine: { lineStyle: { color: colour("line") } }, ...more,
  };
}

function options({ points, x, y, label, chosen }) {
  const edge = front(points, x, y), onEdge = new Set(edge);
  const datum = (point) => ({ value: [x.of(point), y.of(point)], point });
  const series = (id, name, held, more) => ({ id, name, type: "scatter", data: held.map(datum), ...more });
  const narrow = host.clientWidth < 560;
  return {
    animation: false, aria: { enabled: false }, textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
    grid: { left: narrow ? 66 : 86, right: 18, top: 44, bottom: 52 },
    legend: { top: 4, left: 0, itemWidth: 12, itemHeight: 12, textStyle: { color: colour("soft") }, inactiveColor: colour("line-strong"), data: ["front", "other plans"] },
    toolbox: { top: 0, right: 0, itemSize: 15, iconStyle: { borderColor: colour("soft") }, feature: { dataZoom: { title: { zoom: "Zoom to a frame", back: "One step back" }, filterMode: "none" }, restore: { title: "All of it" } } },
    dataZoom: [{ type: "inside", xAxisIndex: 0, zoomOnMouseWheel: "ctrl", moveOnMouseMove: "shift", filterMode: "none" }, { type: "inside", yAxisIndex: 0, zoomOnMouseWheel: "ctrl", moveOnMouseMove: "shift", filterMode: "none" }],
    xAxis: axis(x, points, { nameGap: 30 }), yAxis: axis(y, points, { nameGap: narrow ? 50 : 66 }),
    tooltip: {
      trigger: "item", confine: true, borderWidth: 0, backgroundColor: colour("ink"), textStyle: { color: colour("paper"), fontSize: 13 },
      formatter: ({ data: { point } }) => h("div", { class: "tip" }, h("b", {}, point.plan || point.target), label(point).map(([name, said]) => h("span", {}, h("i", {}, name), h("b", {}, said)))),
    },
    series: [
      series("others", "other plans", points.filter((point) => !onEdge.has(point)), { symbolSize: 8, itemStyle: { color: colour("idle"), opacity: 0.75 } }),
      series("front", "front", edge, { type: "line", symbol: "circle", symbolSize: 12, itemStyle: { color: colour("accent"), opacity: 1 }, lineStyle: { color: colour("accent"), width: 1.5, opacity: 0.6 }, triggerLineEvent: false, z: 3 }),
      series("chosen", "chosen", points.filter((point) => point.number === chosen), { symbolSize: 17, silent: true, itemStyle: { color: "transparent", borderColor: colour("ink"), borderWidth: 2.5 }, z: 4 }),
    ],
  };
}

function draw() {
  if (!shown || !host.clientWidth || !window.echarts) return;
  if (!chart) {
    chart = window.echarts.init(host);
    chart.on("click", ({ data }) => { if (data && data.point) shown.pick(data.point); });
    new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  }
  chart.setOption(options(shown)); // merged: what is zoomed or switched off stays so while points come
}

// From the start: what is drawn first may not lie in the document yet, or in a view that is hidden.
new ResizeObserver(() => { if (chart) chart.resize(); draw(); }).observe(host);

export function scatter(points, x, y, { label, chosen, pick }) {
  const drawn = points.filter((point) => x.of(point) > 0 && y.of(point) > 0);
  if (!drawn.length) return h("p", { class: "sub" }, "No point runs yet.");
  shown = { points: drawn, x, y, label, chosen, pick };
  host.dataset.points = drawn.length;
  host.dataset.front = front(drawn, x, y).length;
  host.setAttribute("aria-label", `${y.name} over ${x.name} of ${drawn.length} plans, ${host.dataset.front} of them on the front; the table below has them all`);
  draw();
  return host;
}
