// Cards with predictions, side by side.

import { call, Problem } from "./api.js";
import { h, notice, replace } from "./dom.js";
import * as format from "./format.js";
import { METRICS, PARTS } from "./metrics.js";
import { asked, command, LETTERS, state } from "./state.js";

const shown = new Map(); // by configuration's place: what its card shows, and who waits for it

export async function refresh(place) {
  const config = state.configs[place];
  const before = shown.get(place);
  if (before && before.stop) before.stop.abort();
  const stop = new AbortController();
  const card = { stop, answers: before ? before.answers : new Map(), status: "working", problem: null, levers: null };
  shown.set(place, card);
  draw();
  if (config.kind === "program" && !config.program) return finish(card, { code: "empty", message: "Drop a .mlir file, or choose one." });
  if (config.kind === "config" && !config.config.trim()) return finish(card, { code: "empty", message: "Paste a config.json." });
  const answers = new Map();
  try {
    for (const on of config.on) {
      const heard = (job) => { card.status = `${job.state === "waiting" ? "waiting for a worker" : "working"}, ${job.seconds.toFixed(0)} s${job.said ? `: ${job.said}` : ""}`; progress(place, card); };
      try {
        answers.set(on, await call("POST", "/api/predict", asked(config, on), { signal: stop.signal, heard }));
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
        answers.set(on, { problem: error.error });
      }
    }
    card.answers = answers;
    card.status = "";
    draw();
    const first = answers.get(config.on[0]);
    if (first && !first.problem) {
      const more = await call("POST", "/api/predict", asked(config, config.on[0], { levers: true }), { signal: stop.signal });
      card.levers = more;
      draw();
    }
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    finish(card, error.error);
  }
}

function finish(card, problem) { card.status = ""; card.problem = problem; card.answers = new Map(); draw(); }

export function forget() { for (const card of shown.values()) if (card.stop) card.stop.abort(); shown.clear(); }

function progress(place, card) {
  const line = document.querySelector(`[data-card="${place}"] .working`);
  if (line) { line.hidden = false; line.querySelector("span").textContent = card.status; }
}

export function draw() {
  const place = document.getElementById("answers");
  place.dataset.count = state.configs.length;
  const first = shown.get(0) && shown.get(0).answers.get(state.configs[0].on[0]);
  replace(place, state.configs.map((config, index) => card(config, index, shown.get(index), first)));
  brief();
}

// On a phone the answer lies below the controls: its first numbers stay in sight.
function brief() {
  const held = shown.get(state.active);
  const p = held && held.answers.get(state.configs[state.active].on[0]);
  const said = !p ? "…" : p.problem ? p.problem.message : p.feasible ? `${format.time(p.step_time_s)} · MFU ${format.percent(p.mfu)} · ${format.bytes(p.memory_bytes.peak)}` : "does not fit";
  replace(document.getElementById("brief"), h("b", { class: `letter letter-${state.active}` }, LETTERS[state.active]), said);
}

function card(config, index, held, first) {
  const working = h("p", { class: "working", hidden: !held || !held.status }, h("i", { class: "spin" }), h("span", {}, held ? held.status : ""));
  const main = held && held.answers.get(config.on[0]);
  const children = [head(config, index, main), working];
  if (held && held.problem) children.push(problem(held.problem));
  else if (main && main.problem) children.push(problem(main.problem));
  else if (main) children.push(...prediction(main, index, first, held));
  if (held && config.on.length > 1) children.push(others(config, held));
  if (main && !main.problem) children.push(foot(config, main));
  return h("article", { class: `card${held && held.status ? " waits" : ""}`, "data-card": index, "aria-busy": Boolean(held && held.status) && "true" }, children);
}

function head(config, index, p) {
  const name = config.kind === "program" ? (config.program ? config.program.name : "program") : config.kind === "config" ? "config.json" : config.model;
  const where = p && !p.problem ? `${format.count(p.target.devices)} × ${p.on.device}${p.on.cluster ? ` (${p.on.cluster})` : ""}` : config.on[0];
  return h("header", {}, h("b", { class: `letter letter-${index}` }, LETTERS[index]),
    h("div", {}, h("h2", {}, name, config.mode !== "train" && config.kind !== "program" ? ` · ${config.mode}` : ""), h("p", { class: "sub" }, where, config.plan && config.kind !== "program" ? ` · ${config.plan}` : "")));
}

export function problem(error) {
  return h("div", { class: "problem", role: "alert" }, h("p", {}, error.message), error.where && h("p", { class: "sub" }, `at ${error.where}`), error.fix && h("p", { class: "fix" }, error.fix));
}

function prediction(p, index, first, held) {
  const figures = [headline(p, index, first), p.feasible && breakdown(p), table(p)];
  const parts = p.feasible ? [levers(held.levers), kernels(p)] : [];
  const warnings = p.warnings || [];
  if (warnings.length) parts.push(h("details", {}, h("summary", {}, `${warnings.length} remark${warnings.length > 1 ? "s" : ""}`), h("ul", { class: "remarks" }, warnings.map((text) => h("li", {}, text)))));
  return [h("div", { class: "cols" }, h("div", { class: "col" }, figures), h("div", { class: "col" }, parts))];
}

function headline(p, index, first) {
  if (!p.feasible) {
    const verdict = p.infeasible || {};
    const fixes = verdict.levers || [];
    return h("div", { class: "problem" }, h("p", { class: "big" }, "does not fit"),
      h("p", {}, `needs ${format.bytes(verdict.demand)} where there are ${format.bytes(verdict.bound)}: ${format.bytes(verdict.gap)} too much`),
      fixes.length > 0 && h("ul", {}, fixes.slice(0, 5).map((each) => h("li", {}, each.change || each, each.flag && h("code", {}, each.flag)))));
  }
  const [low, high] = p.step_time_interval_s || [null, null];
  const ratio = index > 0 && first && first.step_time_s ? p.step_time_s / first.step_time_s : null;
  return h("div", { class: "headline" },
    h("p", { class: "big", title: "Seconds of one step; the interval is what predictions of this kind are usually within.", "data-metric": "step_time_s", "data-value": p.step_time_s }, format.time(p.step_time_s)),
    h("p", { class: "sub" }, "a step", low !== null && `, between ${format.time(low)} and ${format.time(high)}`, ` (${p.fidelity})`),
    ratio !== null && h("p", { class: `ratio ${ratio < 0.995 ? "better" : ratio > 1.005 ? "worse" : ""}` }, `${format.ratio(ratio)} the time of A`));
}

function breakdown(p) {
  const whole = p.step_time_s;
  const bar = h("div", { class: "bar", role: "img", "aria-label": "Parts of the step" }, PARTS.map(([key, name]) => h("i", { class: `part-${key}`, width_share: p.breakdown_s[key] / whole, title: `${name}: ${format.time(p.breakdown_s[key])}` })));
  const rows = PARTS.filter(([key]) => p.breakdown_s[key] > 0).map(([key, name, meaning]) => h("tr", { title: meaning }, h("th", { scope: "row" }, h("i", { class: `dot part-${key}` }), name), h("td", { "data-part": key, "data-value": p.breakdown_s[key] }, format.time(p.breakdown_s[key])), h("td", {}, format.percent(p.breakdown_s[key] / whole))));
  return h("div", { class: "breakdown" }, bar, h("table", { class: "figures" }, h("tbody", {}, rows)));
}

function table(p) {
  const rows = METRICS.map(([key, name, of, tell, meaning]) => [key, name, of(p), tell, meaning]).filter(([, , value]) => value !== null && value !== undefined && !Number.isNaN(value));
  return h("table", { class: "figures metrics" }, h("tbody", {}, rows.map(([key, name, value, tell, meaning]) => h("tr", { title: meaning }, h("th", { scope: "row" }, name), h("td", { "data-metric": key, "data-value": value }, tell(value, p), key === "memory" && memoryBar(p))))));
}

function memoryBar(p) {
  const share = p.memory_bytes.peak / p.memory_bytes.capacity;
  return h("div", { class: `gauge ${share > 1 ? "over" : share > 0.9 ? "near" : ""}`, title: "Peak memory over capacity" }, h("i", { width_share: Math.min(1, share) }));
}

function levers(p) {
  if (!p) return h("p", { class: "sub quiet-line" }, "looking for what would help …");
  const found = p.levers || [];
  if (!found.length) return null;
  return h("div", { class: "levers" }, h("h3", {}, "What would help most"), h("ul", {}, found.slice(0, 3).map((each) => h("li", { title: each.flag || "" }, h("span", {}, each.change), h("b", {}, `−${format.percent(each.saved_share)}`)))));
}

function kernels(p) {
  const found = (p.top_kernels || []).slice(0, 8);
  if (!found.length) return null;
  return h("details", { open: state.configs.length === 1 }, h("summary", {}, "Where the time goes"), h("div", { class: "scroll" }, h("table", { class: "rows" }, h("thead", {}, h("tr", {}, h("th", {}, "kernel"), h("th", { class: "number" }, "times"), h("th", { class: "number" }, "time"), h("th", {}, "limited by"))), h("tbody", {}, found.map((k) => h("tr", { title: k.location || "" }, h("td", { class: "text" }, k.name), h("td", { class: "number" }, format.count(k.count)), h("td", { class: "number" }, format.time(k.seconds)), h("td", {}, k.limited_by)))))));
}

function others(config, held) {
  const rows = config.on.map((on) => {
    const p = held.answers.get(on);
    if (!p) return h("tr", {}, h("td", {}, on), h("td", { class: "number", colspan: 3 }, "…"));
    if (p.problem) return h("tr", { title: p.problem.message }, h("td", {}, on), h("td", { colspan: 3 }, p.problem.message));
    return h("tr", { "data-on": on }, h("td", {}, on), h("td", { class: "number", "data-value": p.step_time_s }, p.feasible ? format.time(p.step_time_s) : "does not fit"), h("td", { class: "number" }, format.percent(p.mfu)), h("td", { class: "number" }, format.percent(p.memory_bytes.peak / p.memory_bytes.capacity)));
  });
  return h("div", { class: "scroll" }, h("table", { class: "rows" }, h("thead", {}, h("tr", {}, h("th", {}, "on"), h("th", { class: "number" }, "step"), h("th", { class: "number" }, "MFU"), h("th", { class: "number" }, "memory"))), h("tbody", {}, rows)));
}

function foot(config, p) {
  const said = command(config, config.on[0]);
  const copy = async () => { try { await navigator.clipboard.writeText(said); notice("The command is copied."); } catch { notice(said); } };
  const save = () => {
    const link = h("a", { href: URL.createObjectURL(new Blob([JSON.stringify(p, null, 1)], { type: "application/json" })), download: `${p.target.name}.json` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  return h("footer", {}, h("button", { type: "button", class: "quiet", onclick: copy, title: said }, "Copy command"), h("button", { type: "button", class: "quiet", onclick: save }, "Save JSON"), reportButton((heard) => call("POST", "/api/reports", asked(config, config.on[0], { levers: true }), { heard })));
}

// A report takes some seconds, after which browsers open no window by themselves: the button becomes the link to it.
export function reportButton(ask) {
  const open = async (event) => {
    const button = event.target;
    button.disabled = true;
    const heard = (job) => { button.textContent = `Report … ${job.seconds.toFixed(0)} s`; };
    try {
      const made = await ask(heard);
      button.replaceWith(h("a", { class: "quiet button", href: made.url, target: "_blank", rel: "noopener" }, "Open report ↗"));
    } catch (error) {
      notice(error.message, "error");
      button.textContent = "Make report";
      button.disabled = false;
    }
  };
  return h("button", { type: "button", class: "quiet report", onclick: open, title: "One HTML file with timeline, roofline, memory and more, to keep or to mail" }, "Make report");
}
