// Cards with predictions, side by side.

import { call, Problem } from "./api.js";
import { h, notice, replace } from "./dom.js";
import * as format from "./format.js";
import { SectionsView } from "./sections.js";
import { asked, command, LETTERS, state } from "./state.js";

const shown = new Map(); // by configuration's place: what its card shows, and who waits for it

export async function refresh(place) {
  // As it is now: what is changed while answers come has a question of its own, once the server has moved its plan to what divides.
  const config = structuredClone(state.configs[place]);
  const before = shown.get(place);
  if (before) before.stop.abort();
  const stop = new AbortController(), signal = stop.signal;
  const card = { stop, answers: before ? before.answers : new Map(), view: before ? before.view : null, config, status: "working", later: "", whole: false, problem: null };
  shown.set(place, card);
  draw();
  if (config.kind === "program" && !config.program) return finish(card, { code: "empty", message: "Drop a .mlir file, or choose one." });
  if (config.kind === "config" && !config.config.trim()) return finish(card, { code: "empty", message: "Paste a config.json." });
  const heard = (job) => { card.status = far(job); progress(place, card); };
  const answers = new Map();
  try {
    const first = await orProblem(call("POST", "/api/sections?part=summary", asked(config, config.on[0]), { signal, heard }));
    answers.set(config.on[0], first.problem ? first : first.prediction);
    for (const on of config.on.slice(1)) answers.set(on, await orProblem(call("POST", "/api/predict", asked(config, on), { signal, heard })));
    const old = card.view;
    card.answers = answers;
    card.view = first.problem ? null : new SectionsView();
    if (card.view) await card.view.give(first);
    if (old) old.end();
    card.status = "";
    draw();
    if (first.problem) return;
    // What has to be drawn, then what would help: neither is waited for by what is there already.
    const more = async (said, path, question) => {
      const hears = (job) => { card.later = `${said}: ${far(job)}`; progress(place, card); };
      card.later = `${said} …`;
      progress(place, card);
      const found = await call("POST", path, question, { signal, heard: hears });
      await card.view.give(found);
    };
    await more("drawing timeline and memory", "/api/sections?part=details", asked(config, config.on[0]));
    await more("looking for what would help", "/api/sections?part=summary", asked(config, config.on[0], { levers: true }));
    card.later = "";
    card.whole = true;
    draw();
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    finish(card, error.error);
  }
}

const far = (job) => `${job.state === "waiting" ? "waiting for a worker" : "working"}, ${job.seconds.toFixed(0)} s${job.said ? `: ${job.said}` : ""}`;

async function orProblem(answer) {
  try { return await answer; } catch (error) {
    if (error instanceof Problem) return { problem: error.error };
    throw error;
  }
}

function letGo(card) { if (card.view) { card.view.end(); card.view = null; } }

function finish(card, problem) { card.status = card.later = ""; card.problem = problem; card.answers = new Map(); letGo(card); draw(); }

export function clear(place) { const card = shown.get(place); if (card) { card.stop.abort(); letGo(card); shown.delete(place); } }

export function forget() { for (const card of shown.values()) { card.stop.abort(); letGo(card); } shown.clear(); }

function progress(place, card) {
  for (const [name, text] of [["working", card.status], ["later", card.later]]) {
    const line = document.querySelector(`[data-card="${place}"] .${name}`);
    if (line) { line.hidden = !text; line.querySelector("span").textContent = text; }
  }
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
  replace(document.getElementById("brief"), h("span", { class: "visually-hidden" }, "To the answer: "), h("b", { class: `letter letter-${state.active}` }, LETTERS[state.active]), said);
}

function card(config, index, held, first) {
  const line = (name, text) => h("p", { class: name, hidden: !text }, h("i", { class: "spin" }), h("span", {}, text || ""));
  const main = held && held.answers.get(config.on[0]);
  const children = [head(config, index, main), line("working", held && held.status)];
  if (held && held.problem) children.push(problem(held.problem));
  else if (main && main.problem) children.push(problem(main.problem));
  else if (main) children.push(ratio(main, index, first));
  if (held && config.on.length > 1) children.push(others(config, held));
  if (main && !main.problem && !held.problem) children.push(held.view && held.view.host, line("later", held.later));
  if (main && !main.problem) children.push(foot(held.config, main));
  const waits = Boolean(held && held.status);
  return h("article", { class: `card${waits ? " waits" : ""}`, "data-card": index, "data-whole": Boolean(held && held.whole) && "yes", "aria-busy": waits && "true" }, children);
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

function ratio(p, index, first) {
  // A line in each of them, so that cards side by side keep their rows.
  if (!index) return state.configs.length > 1 ? h("p", { class: "baseline" }, "others are held against this one") : null;
  if (!p.step_time_s || !first || !first.step_time_s) return null;
  const found = p.step_time_s / first.step_time_s;
  return h("p", { class: `ratio ${found < 0.995 ? "better" : found > 1.005 ? "worse" : ""}`, title: "Step time / that of configuration A." }, `${format.ratio(found)} the time of A`);
}

function others(config, held) {
  const main = held.answers.get(config.on[0]);
  const against = (p) => (main && main.step_time_s && p.step_time_s ? format.ratio(p.step_time_s / main.step_time_s) : "");
  const rows = config.on.map((on) => {
    const p = held.answers.get(on);
    if (!p) return h("tr", {}, h("td", {}, on), h("td", { class: "number", colspan: 4 }, "…"));
    if (p.problem) return h("tr", { title: p.problem.message }, h("td", {}, on), h("td", { colspan: 4 }, p.problem.message));
    return h("tr", { "data-on": on }, h("td", {}, on), h("td", { class: "number", "data-value": p.step_time_s }, p.feasible ? format.time(p.step_time_s) : "does not fit"), h("td", { class: "number" }, against(p)), h("td", { class: "number" }, format.percent(p.mfu)), h("td", { class: "number" }, format.percent(p.memory_bytes.peak / p.memory_bytes.capacity)));
  });
  return h("div", { class: "scroll hardware" }, h("table", { class: "rows" }, h("thead", {}, h("tr", {}, h("th", {}, "on"), h("th", { class: "number" }, "step"), h("th", { class: "number", title: "Step time / that of the first" }, "to first"), h("th", { class: "number" }, "MFU"), h("th", { class: "number", title: "Peak memory / what a device has" }, "memory"))), h("tbody", {}, rows)));
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
