// Searches: started, watched, stopped; their front, their points; and runs that lie in the runs folder.

import { call, Problem } from "./api.js";
import { h, notice, replace, settled } from "./dom.js";
import * as format from "./format.js";
import { open } from "./controls.js";
import { front, scatter } from "./plot.js";
import { problem, reportButton } from "./results.js";
import { fresh, how, remember, sized, state } from "./state.js";

const MEASURES = {
  time: { name: "step time", of: (p) => p.step_time_s, tell: format.time, sign: 1 },
  throughput: { name: "units a second", meaning: "Tokens, images or samples that all devices together get done in a second", of: (p) => p.units_per_s, tell: format.rate, sign: -1 },
  energy: { name: "energy a unit", meaning: "Joules of all devices for one token, image or sample", of: (p) => p.energy_j / (p.units_per_s * p.step_time_s), tell: format.energy, sign: 1 },
  memory: { name: "share of memory", of: (p) => p.memory_share, tell: format.percent, sign: 1 },
  devices: { name: "devices", of: (p) => p.devices, tell: format.count, sign: 1 },
};
const SECOND = { time: "memory", throughput: "memory", energy: "time", memory: "time", devices: "time" };

let catalogue = null;
let watching = 0;
let chosen = null;
let show = null;
let stopping = null; // the search that was asked to end
let showView = () => {};
const form = { on: null, devices: null, first: "time", second: "memory", fixed: "" };
export const give = (found, view) => { catalogue = found; showView = view; };

const config = () => state.configs[state.active];

export function searchForm() {
  const mine = config();
  const place = document.getElementById("search-form");
  if (mine.kind === "program") { replace(place, h("fieldset", {}, h("legend", {}, "Search"), h("p", { class: "sub" }, "Plans are searched for models: choose one under Predict."))); return; }
  const on = form.on || [mine.on[0]], devices = form.devices ?? String(mine.devices); // as under Predict until they are set here
  const all = [...catalogue.clusters, ...catalogue.devices].map((each) => each.name);
  const chips = on.map((name) => h("span", { class: "chip" }, name, on.length > 1 && h("button", { type: "button", "aria-label": `Remove ${name}`, onclick: () => { form.on = on.filter((each) => each !== name); searchForm(); } }, "×")));
  const more = h("select", { id: "search-on", onchange: (event) => { if (event.target.value) form.on = [...on, event.target.value]; searchForm(); } }, h("option", { value: "" }, "add …"), all.filter((each) => !on.includes(each)).map((each) => h("option", { value: each }, each)));
  const measure = (id, key) => h("select", { id, onchange: (event) => { form[key] = event.target.value; } }, Object.entries(MEASURES).map(([name, each]) => h("option", { value: name, selected: form[key] === name }, each.name)));
  const field = (label, control, hint) => h("div", { class: "field" }, h("label", { for: control.id, title: hint || "" }, label), control);
  const usual = fresh();
  const others = Object.entries(how(mine)).filter(([name, value]) => value !== usual[name]);
  const set = [...Object.entries(sized(mine).settings), ...others].map(([name, value]) => `${name}=${value}`).join(", ");
  replace(place, h("fieldset", {}, h("legend", {}, "Search for plans"),
    h("p", { class: "sub" }, `Every plan that divides ${mine.kind === "config" ? "the config" : mine.model}${set ? ` with ${set}` : ""}, as set under Predict; what cannot be among the best by its bound is not predicted.`),
    h("div", { class: "chips" }, chips), h("div", { class: "grid" }, field("hardware", more), field("devices", h("input", { id: "search-devices", value: devices, inputmode: "numeric", placeholder: "64, 128", oninput: (event) => { form.devices = event.target.value; } }), "One number or several with commas between")),
    h("div", { class: "grid" }, field("wanted first", measure("search-first", "first")), field("and", measure("search-second", "second"))),
    field("decided keys", h("input", { id: "search-fixed", value: form.fixed, placeholder: "such as tp=8,remat=full", oninput: (event) => { form.fixed = event.target.value; } }), "Keys of the plan that are not searched over"),
    h("button", { type: "button", id: "search-start", class: "primary", onclick: start }, "Start search")));
}

async function start() {
  const mine = config();
  const devices = (form.devices ?? String(mine.devices)).split(/[,\s]+/).filter(Boolean).map(Number);
  if (!devices.length || devices.some((each) => !Number.isInteger(each) || each < 1)) { notice("Devices are whole numbers with commas between.", "error"); return; }
  const objectives = form.first === form.second ? [form.first] : [form.first, form.second];
  const asked = { on: form.on || [mine.on[0]], devices, objectives, fixed: form.fixed.trim(), ...how(mine), ...sized(mine) };
  try {
    const begun = await call("POST", "/api/searches", asked);
    settled();
    watch(begun.name);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    notice(`${error.error.message}${error.error.fix ? ` (${error.error.fix})` : ""}`, "error");
  }
}

export function watch(name) {
  clearTimeout(watching);
  state.run = name;
  chosen = null;
  remember();
  const look = async () => {
    try {
      show = await call("GET", `/api/runs/${encodeURIComponent(name)}`);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      replace(document.getElementById("search-answer"), problem(error.error));
      return;
    }
    if (state.run !== name) return;
    drawRun();
    if (show.state === "running") watching = setTimeout(look, 1000);
  };
  look();
}

function measures() {
  // Some are known of a report alone, such as what a run costs; two axes of one measure would be a line.
  const [first = "time", second = SECOND[first]] = [...new Set(show.objectives)].filter((each) => each in MEASURES);
  return [MEASURES[first], MEASURES[second]];
}

const label = (p) => [["step", format.time(p.step_time_s)], ["MFU", format.percent(p.mfu)], ["memory", format.percent(p.memory_share)], ["on", `${format.count(p.devices)} × ${p.on}`], ["limited by", p.binds]].filter(([, said]) => said);
const spoken = (p) => `${p.plan || p.target}: ${format.time(p.step_time_s)}, MFU ${format.percent(p.mfu)}, memory ${format.percent(p.memory_share)} · ${p.devices} × ${p.on}`;

// Columns of the points: name, class, what a cell has, and what that means. Narrow screens show a row as a stack of cells, each with its column's name.
const POINTS = 60; // rows of the table
const columns = (wanted) => [
  ["front", "mark", (p, edge) => (edge.has(p.number) ? h("span", { role: "img", "aria-label": "on the front", title: "On the front: no other is better in both" }, "●") : "")],
  ["plan", "plan", (p) => (p.plan || "–").split(/(?<=,)/).flatMap((key, at) => (at ? [h("wbr"), key] : [key]))], // broken between keys, not within
  ["step", "number", (p) => format.time(p.step_time_s), "Seconds of one step"],
  ...wanted.filter((each) => each.meaning).map((each) => [each.name, "number", (p) => each.tell(each.of(p)), each.meaning]), // what is searched for and stands in no other column
  ["MFU", "number", (p) => format.percent(p.mfu), "Model FLOPs utilisation: matrix FLOPs that the model asks for / (step time × dense peak of the device)"],
  ["memory", "number", (p) => format.percent(p.memory_share), "Peak memory / what a device has"], ["limited by", "name", (p) => p.binds, "The largest part of the step, with its share"],
  ["devices", "number", (p) => format.count(p.devices), "How many devices share the work"], ["on", "name", (p) => p.on],
  ["open", "act", (p) => h("button", { type: "button", class: "quiet small", onclick: (event) => { event.stopPropagation(); openPoint(p); } }, "Open")],
];

function heads(columns) {
  const cell = ([name, kind, , meaning]) => h("th", { title: meaning, class: kind === "number" ? kind : "", role: "columnheader", scope: "col" }, ["mark", "act"].includes(kind) ? h("span", { class: "visually-hidden" }, name) : name);
  return h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(cell)));
}

function drawRun() {
  const [first, second] = measures();
  const runs = show.points.filter((each) => each.step_time_s);
  const best = [...runs].sort((a, b) => first.sign * first.of(a) - first.sign * first.of(b));
  const edge = new Set(front(runs.filter((p) => second.of(p) > 0 && first.of(p) > 0), second, first).map((each) => each.number));
  const states = { running: "running", done: "done", stopped: "stopped", failed: "failed" };
  const head = h("header", { class: "run-head" }, h("div", {}, h("h2", {}, show.title || show.name), h("p", { class: "sub" }, h("span", { class: `state ${show.state}` }, states[show.state]), show.seconds ? ` ${format.time(show.seconds)}` : "", ` · ${format.count(show.found)} ${show.kind === "comparison" ? "answers" : "predicted"}`, show.summary ? ` · ${format.count(show.summary.left_out)} of ${format.count(show.summary.space)} left out by their bounds` : "")),
    show.state !== "running" && (runs.length > 0 || show.kind === "comparison") && reportButton((heard) => call("POST", `/api/runs/${encodeURIComponent(show.name)}/report`, undefined, { heard })),
    show.state === "running" && h("button", { type: "button", id: "search-stop", class: "quiet", disabled: stopping === show.name, onclick: stop }, stopping === show.name ? "Stopping …" : "Stop"));
  const shown = columns([first, second]);
  const picked = runs.find((each) => each.number === chosen);
  const rows = best.slice(0, POINTS).map((p) => h("tr", { class: p.number === chosen ? "chosen" : "", role: "row", "data-point": p.number, onclick: () => pick(p) }, shown.map(([name, kind, cell, meaning]) => h("td", { class: kind, role: "cell", title: meaning, "data-label": name, "data-value": name === "step" && p.step_time_s }, cell(p, edge)))));
  replace(document.getElementById("search-answer"), head, show.state === "running" && bar(), show.error && problem(show.error),
    runs.length > 0 && h("article", { class: "card" }, scatter(runs, second, first, { label, chosen, pick }), picked && h("p", { class: "picked" }, spoken(picked), h("button", { type: "button", class: "quiet small", onclick: () => openPoint(picked) }, "Open"))),
    rows.length > 0 && h("article", { class: "card" }, h("div", { class: "scroll" }, h("table", { class: "rows points stacked", role: "table" }, heads(shown), h("tbody", { role: "rowgroup" }, rows))), best.length > POINTS && h("p", { class: "sub" }, `the ${POINTS} best of ${format.count(best.length)} by ${first.name}; the report has all`)));
}

// It ends once what is under way is done, and keeps what it has found.
async function stop() {
  stopping = show.name;
  drawRun();
  const told = await call("DELETE", `/api/searches/${encodeURIComponent(stopping)}`);
  if (state.run === told.name) { show = told; drawRun(); }
}

// One bar over bounds and predictions: how far the search is, and what it says of the time left.
function bar() {
  return h("div", { class: "far" }, h("progress", { max: 1, value: show.share ?? null, "aria-label": "How far the search is" }), h("span", { class: "sub" }, show.said || "counting plans and looking at layers for their bounds …"));
}

function pick(point) { chosen = point.number; drawRun(); }

// A point with everything that its run was asked: its number is then the table's.
const CONTROLS = ["fidelity", "network", "lowering", "clocks", "stack"];

async function openPoint(p) {
  const run = show.name;
  const settings = Object.fromEntries(Object.entries(p).filter(([name, value]) => name.startsWith("set.") && value !== null).map(([name, value]) => [name.slice(4), String(value)]));
  const given = Object.fromEntries(Object.entries(p.asked || {}).filter(([name, value]) => CONTROLS.includes(name) && value !== null));
  let target = { kind: "model", model: p.target };
  if (p.own_config) {
    try {
      target = { kind: "config", config: (await call("GET", `/api/runs/${encodeURIComponent(run)}/config`)).config };
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      notice(`${error.error.message}${error.error.fix ? ` (${error.error.fix})` : ""}`, "error");
      return;
    }
  }
  if (given.fidelity === "compiled" && !given.lowering) given.lowering = "auto"; // modelled, as runs have it by themselves, is no kernel of a compiler
  const others = Object.keys(p.asked || {}).filter((name) => !CONTROLS.includes(name));
  if (given.lowering === "compiled") { given.lowering = "auto"; others.push("lowering=compiled"); }
  showView("predict");
  open({ ...target, on: [p.on], devices: p.devices, plan: p.plan || "", settings, mode: "train", ...given });
  if (others.length) notice(`The run has set ${others.join(", ")} besides, which this page has no control for: its numbers are others.`, "error");
}

// A comparison has nothing to watch: its report takes the page's place, and "back" comes back.
async function openReport(name, button) {
  button.disabled = true;
  try {
    const made = await call("POST", `/api/runs/${encodeURIComponent(name)}/report`, undefined, { heard: (job) => { button.textContent = `opening … ${job.seconds.toFixed(0)} s`; } });
    location.assign(made.url);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    notice(error.message, "error");
  }
  button.textContent = name;
  button.disabled = false;
}

const KINDS = { exploration: "search", comparison: "comparison" };

export async function runsList() {
  const place = document.getElementById("runs-list");
  replace(place, h("p", { class: "sub" }, "…"));
  const { runs } = await call("GET", "/api/runs");
  if (!runs.length) { replace(place, h("div", { class: "empty" }, h("h2", {}, "No runs yet"), h("p", { class: "sub" }, "Searches started here, and run folders of meshcast explore and meshcast compare in the folder that the server was given, are listed here."))); return; }
  const columns = [["run", "name"], ["kind", ""], ["about", "text"], ["state", ""], ["best plan", "plan"], ["step", "number"], ["answers", "number"], ["changed", "name"]];
  const look = (each) => (event) => { if (each.kind === "comparison") openReport(each.name, event.target); else { showView("search"); watch(each.name); } };
  const cells = (each) => [
    h("button", { type: "button", class: "link", onclick: look(each) }, each.name), KINDS[each.kind], each.title, h("span", { class: `state ${each.state}` }, each.state),
    each.best.plan || "–", format.time(each.best.step_time_s), format.count(each.evaluated), each.changed.replace("T", " ").slice(0, 16),
  ];
  // Narrow screens show a row as a stack of cells, each with its column's name: `data-label`.
  const row = (each) => h("tr", { "data-run": each.name, role: "row" }, cells(each).map((cell, at) => h("td", { class: columns[at][1], role: "cell", "data-label": columns[at][0] }, cell)));
  replace(place, h("article", { class: "card" }, h("div", { class: "scroll" }, h("table", { class: "rows runs stacked", role: "table" }, heads(columns), h("tbody", { role: "rowgroup" }, runs.map(row))))));
}
