// The form of one configuration. What divides is asked of the server: controls offer nothing else.

import { call, Problem } from "./api.js";
import { debounce, h, notice, replace, settled } from "./dom.js";
import * as format from "./format.js";
import { asked, fresh, LETTERS, MOST, remember, state } from "./state.js";
import { clear, forget, refresh, draw } from "./results.js";

let catalogue = null;
let choices = null; // of the active configuration
const asking = new WeakMap(); // by configuration: who waits for what it can be changed to
export const give = (found) => { catalogue = found; };

const config = () => state.configs[state.active];
const DEGREES = [["tp", "Tensor parallel: heads, widths and the vocabulary are split"], ["pp", "Pipeline stages"], ["cp", "Context parallel: sequences are split"], ["ep", "Expert parallel"], ["fsdp", "Weights are stored in shares and gathered where they are used"], ["dp", "Replicas"]];

export function slots() {
  const made = state.configs.map((each, index) => h("span", { class: `slot${index === state.active ? " active" : ""}` },
    h("button", { type: "button", "aria-pressed": index === state.active ? "true" : "false", onclick: () => select(index), title: `Configuration ${LETTERS[index]}` }, h("b", { class: `letter letter-${index}` }, LETTERS[index])),
    state.configs.length > 1 && h("button", { type: "button", class: "close", "aria-label": `Remove ${LETTERS[index]}`, onclick: () => remove(index) }, "×")));
  if (state.configs.length < MOST) made.push(h("button", { type: "button", class: "add", onclick: add, title: "A copy of this one, to change and compare" }, "+ Compare"));
  replace(document.getElementById("slots"), made);
}

function select(index) {
  change.now(); // a change that was about to be carried out belongs to the configuration that it was made to
  state.active = index;
  choices = null;
  remember();
  slots();
  form();
  draw();
  return offer(config());
}

function add() {
  state.configs.push(structuredClone(config()));
  const mine = state.configs.at(-1);
  select(state.configs.length - 1).then((fits) => answer(mine, fits)); // the copied plan may be half changed: what divides is asked first
}

function remove(index) {
  state.configs.splice(index, 1);
  state.active = Math.min(state.active, state.configs.length - 1);
  forget();
  select(state.active);
  state.configs.forEach((_, each) => refresh(each));
}

// A change: the plan is moved to what divides first, then the prediction is asked for.
const change = debounce(120, (mine) => offer(mine).then((fits) => { settled(); remember(); answer(mine, fits); }));
const changed = () => {
  asking.get(config())?.abort(); // what it brings was asked before this change, and must not take its place
  change(config());
};

function answer(mine, fits) {
  const place = state.configs.indexOf(mine);
  if (place < 0) return; // it was taken away
  if (fits) refresh(place); else draw();
}

function set(name, value) { config()[name] = value; changed(); }

async function offer(mine) {
  const shown = (found) => { if (mine === config()) { choices = found; form(); } };
  if (asking.has(mine)) asking.get(mine).abort();
  if (mine.kind === "program" || (mine.kind === "config" && !mine.config.trim())) { shown(null); return true; }
  const stop = new AbortController();
  asking.set(mine, stop);
  try {
    const found = await call("POST", "/api/choices", { ...asked(mine, mine.on[0]) }, { signal: stop.signal });
    if (found.plan !== undefined && !found.problem) mine.plan = found.plan;
    // A link may call them otherwise: from here on they have the names that the controls offer.
    if (mine.kind === "model") { mine.model = found.name; mine.mode = found.mode; delete mine.settings.mode; }
    mine.on[0] = found.on;
    shown(found);
    return true;
  } catch (error) {
    if (error.name === "AbortError") return false;
    if (!(error instanceof Problem)) throw error;
    shown(null);
    return true;
  }
}

export function form() {
  const mine = config();
  const open = new Set([...document.querySelectorAll("#controls details[open]")].map((each) => each.dataset.name));
  const focused = document.activeElement && document.activeElement.id;
  replace(document.getElementById("controls"), section("Model", model(mine)), mine.kind !== "program" && sizes(mine, open), section("Hardware", hardware(mine)), mine.kind !== "program" && section("Plan", plan(mine)), how(mine, open));
  if (focused && document.activeElement.id !== focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

const section = (title, ...children) => h("fieldset", {}, h("legend", {}, title), children);
function field(label, control, hint, wide) {
  const name = control.id;
  return h("div", { class: `field${wide ? " wide" : ""}` }, h("label", { for: name, title: hint || "" }, label), control);
}
const options = (values, chosen, tell = String) => values.map((value) => h("option", { value, selected: String(value) === String(chosen) }, tell(value)));
const pick = (id, values, chosen, then, tell) => h("select", { id, disabled: values.length < 2, onchange: (event) => then(event.target.value) }, options(values, chosen, tell));

function grouped(items, chosen, group, name) {
  const groups = new Map();
  for (const item of items) { if (!groups.has(group(item))) groups.set(group(item), []); groups.get(group(item)).push(item); }
  return [...groups].map(([label, members]) => h("optgroup", { label }, members.map((each) => h("option", { value: name(each), selected: name(each) === chosen }, name(each)))));
}

function model(mine) {
  const kinds = [["model", "Zoo"], ["config", "Hugging Face"], ["program", "Program"]];
  const tabs = h("div", { class: "segments", role: "radiogroup", "aria-label": "Where the model comes from" }, kinds.map(([kind, label]) => h("button", { type: "button", role: "radio", id: `kind-${kind}`, "aria-checked": mine.kind === kind ? "true" : "false", onclick: () => { mine.kind = kind; if (kind !== "program" && !mine.plan) mine.plan = ""; form(); changed(); } }, label)));
  if (mine.kind === "config") {
    return [tabs, field("config.json", h("textarea", { id: "config", rows: 7, spellcheck: "false", placeholder: '{"model_type": "llama", "hidden_size": 4096, …}', value: mine.config, oninput: (event) => set("config", event.target.value) }), "The text of a Hugging Face config.json", true), about()];
  }
  if (mine.kind === "program") return [tabs, drop(mine)];
  const chosen = h("select", { id: "model", onchange: (event) => { mine.model = event.target.value; mine.settings = kept(mine.settings); mine.mode = "train"; changed(); } }, grouped(catalogue.models, mine.model, (each) => each.family, (each) => each.name));
  return [tabs, field("Model", chosen, "", true), about()];
}

const kept = (settings) => ("batch" in settings ? { batch: settings.batch } : {});

function about() {
  if (!choices) return null;
  return h("p", { class: "sub" }, `${choices.summary.replace(/: training step$/, "")}, ${format.billions(choices.parameters)}`);
}

function drop(mine) {
  const hand = async (file) => {
    if (!file) return;
    if (file.size > 32 * 2 ** 20) { notice("Programs over 32 MiB are for the command line.", "error"); return; }
    notice(`reading ${file.name} …`);
    try {
      const found = await call("POST", `/api/programs?name=${encodeURIComponent(file.name)}`, file, { raw: true });
      mine.program = { id: found.program, name: found.name, devices: found.devices, mesh: found.mesh };
      mine.devices = found.devices;
      notice("");
      form();
      changed();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      notice(`${file.name}: ${error.error.message}`, "error");
    }
  };
  const input = h("input", { type: "file", id: "program", accept: ".mlir,.mlirbc", class: "visually-hidden", onchange: (event) => hand(event.target.files[0]) });
  const held = mine.program;
  const zone = h("label", { class: "drop", for: "program", ondragover: (event) => { event.preventDefault(); zone.classList.add("over"); }, ondragleave: () => zone.classList.remove("over"), ondrop: (event) => { event.preventDefault(); zone.classList.remove("over"); hand(event.dataTransfer.files[0]); } },
    h("b", {}, held ? held.name : "Drop a .mlir file"), h("span", {}, held ? `${held.devices} device${held.devices > 1 ? "s" : ""}${Object.keys(held.mesh).length ? `, mesh ${Object.entries(held.mesh).map(([k, v]) => `${k}=${v}`).join(",")}` : ""}` : "or choose one: StableHLO, text or bytecode, up to 32 MiB"));
  return [input, zone];
}

function number(id, value, placeholder, then) {
  return h("input", { id, type: "number", min: 1, step: 1, inputmode: "numeric", placeholder, value: value ?? "", onchange: (event) => then(event.target.value) });
}

function sizes(mine, open) {
  const settings = choices ? choices.settings : [];
  const put = (name) => (text) => { const value = String(text).trim(); if (value) mine.settings[name] = value; else delete mine.settings[name]; changed(); };
  const mode = choices && pick("mode", choices.modes, mine.mode, (value) => { mine.mode = value; mine.settings = kept(mine.settings); changed(); });
  const first = settings.filter((each) => ["seq", "context", "image"].includes(each.name));
  const rest = settings.filter((each) => !first.includes(each));
  const one = (each) => {
    const value = mine.settings[each.name];
    const control = each.kind === "switch" ? pick(`set-${each.name}`, ["false", "true"], value ?? each.value, put(each.name))
      : h("input", { id: `set-${each.name}`, value: value ?? "", placeholder: each.value || "by the model", inputmode: each.kind === "number" ? "numeric" : "text", onchange: (event) => put(each.name)(event.target.value) });
    return field(each.name.replaceAll("_", " "), control);
  };
  return section("Sizes", h("div", { class: "grid" },
    mode && field("mode", mode, "What the model does: a training step, a forward pass, a prompt, a decoding step, whole requests"),
    field("global batch", number("batch", mine.settings.batch, choices ? choices.batch : "", put("batch")), "Sequences of a step, of all devices"),
    first.map(one)),
    rest.length > 0 && h("details", { "data-name": "settings", open: open.has("settings") }, h("summary", {}, "All settings"), h("div", { class: "grid" }, rest.map(one))));
}

function hardware(mine) {
  const all = [...catalogue.clusters.map((each) => ({ ...each, group: "clusters" })), ...catalogue.devices.map((each) => ({ ...each, group: "single devices" }))];
  const main = h("select", { id: "on", onchange: (event) => { mine.on = [event.target.value, ...mine.on.slice(1).filter((each) => each !== event.target.value)]; changed(); } }, grouped(all, mine.on[0], (each) => each.group, (each) => each.name));
  const more = h("select", { id: "also-on", onchange: (event) => { if (event.target.value && !mine.on.includes(event.target.value)) mine.on.push(event.target.value); form(); changed(); } }, h("option", { value: "" }, "add …"), grouped(all.filter((each) => !mine.on.includes(each.name)), "", (each) => each.group, (each) => each.name));
  const chips = mine.on.slice(1).map((on) => h("span", { class: "chip" }, on, h("button", { type: "button", "aria-label": `Remove ${on}`, onclick: () => { mine.on = mine.on.filter((each) => each !== on); form(); changed(); } }, "×")));
  const counts = mine.kind !== "program" && field("devices", number("devices", mine.devices, "1", (value) => set("devices", Math.max(1, Number.parseInt(value, 10) || 1))), "How many devices share the work");
  return [h("div", { class: "grid" }, field("on", main, "A cluster or a device of the catalogue"), counts, mine.on.length < 6 && field("also on", more, "The same on other hardware, beside it")), chips.length > 0 && h("div", { class: "chips" }, chips)];
}

function plan(mine) {
  if (!choices) return h("p", { class: "sub" }, "…");
  if (choices.problem) return h("div", { class: "problem" }, h("p", {}, choices.problem.message), choices.problem.fix && h("p", { class: "fix" }, choices.problem.fix));
  const keys = { ...choices.keys };
  const put = (name, value) => { keys[name] = value; mine.plan = text(keys, name); changed(); };
  const degrees = DEGREES.filter(([name]) => choices.degrees[name]).map(([name, meaning]) => field(name, pick(`plan-${name}`, choices.degrees[name], keys[name], (value) => put(name, Number(value))), meaning));
  const rest = [];
  if (choices.training) {
    rest.push(field("microbatch", pick("plan-mbs", choices.mbs, keys.mbs, (value) => put("mbs", Number(value))), "Sequences of a microbatch (mbs)"));
    rest.push(field("vp", pick("plan-vp", choices.vp, keys.vp, (value) => put("vp", Number(value))), "Parts of the model that each stage holds"));
    rest.push(field("recompute", pick("plan-remat", choices.words.remat, keys.remat, (value) => put("remat", value)), "What the backward pass computes again (remat)"));
    rest.push(field("precision", pick("plan-precision", choices.words.precision, keys.precision, (value) => put("precision", value))));
    rest.push(field("zero", pick("plan-zero", [0, 1, 2, 3], keys.zero, (value) => put("zero", Number(value))), "What replicas share out: optimizer, gradients, weights"));
  }
  rest.push(field("sp", pick("plan-sp", choices.sp ? [0, 1] : [0], keys.sp ? 1 : 0, (value) => put("sp", value === "1"), (v) => (Number(v) ? "on" : "off")), "Sequence parallel beside tp"));
  return [h("div", { class: "grid three" }, degrees), h("div", { class: "grid three" }, rest), h("p", { class: "sub plan-text", id: "plan-text" }, mine.plan || "one device")];
}

// A plan's text with one key changed: the server moves the others to what divides.
function text(keys, just) {
  const usual = { dp: 1, fsdp: 1, tp: 1, pp: 1, vp: 1, cp: 1, ep: 1, mbs: 1, zero: 0, sp: false, remat: "none", precision: "bf16", schedule: null, attention: null, offload: "none", gradients: "fp32" };
  const rest = ["fsdp", "dp"].includes(just) ? (just === "fsdp" ? ["dp"] : ["fsdp"]) : [];
  return Object.entries(keys).filter(([name, value]) => name in usual && value !== usual[name] && !rest.includes(name)).map(([name, value]) => `${name}=${value === true ? 1 : value}`).join(",");
}

function how(mine, open) {
  const put = (name) => (value) => set(name, value);
  return h("details", { class: "fieldset", "data-name": "how", open: open.has("how") }, h("summary", {}, "How it is predicted"), h("div", { class: "grid" },
    field("fidelity", pick("fidelity", catalogue.fidelities, mine.fidelity, put("fidelity"))),
    field("kernels", pick("lowering", ["modelled", "auto"], mine.lowering, put("lowering"), (v) => (v === "auto" ? "real compiler" : "modelled")), "The real compiler takes some ten seconds a program, where it is installed"),
    field("network", pick("network", ["alpha-beta", "flow"], mine.network, put("network"))),
    field("clocks", pick("clocks", ["sustained", "burst"], mine.clocks, put("clocks"))),
    field("stack", pick("stack", ["", ...catalogue.stacks], mine.stack, put("stack"), (v) => v || "none"))));
}

export function open(point) {
  const mine = { ...fresh(), ...point };
  if (state.configs.length < MOST && state.configs.length > 1) state.configs.push(mine);
  else { clear(state.active); state.configs[state.active] = mine; } // the answer about another must not stand under this one's name
  select(state.configs.indexOf(mine)).then((fits) => answer(mine, fits));
}

export async function begin() { slots(); form(); await offer(config()); remember(); state.configs.forEach((_, index) => refresh(index)); }
