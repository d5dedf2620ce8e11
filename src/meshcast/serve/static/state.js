// What is configured, in one object that the address keeps: a link is all of it.

export const MOST = 4;
export const LETTERS = ["A", "B", "C", "D"];

export function fresh() {
  return {
    kind: "model", model: "llama3-8b", config: "", program: null, mode: "train",
    on: ["dgx-h100"], devices: 64, plan: "fsdp=64", settings: { batch: "64", seq: "8192" },
    fidelity: "auto", network: "alpha-beta", lowering: "modelled", clocks: "sustained", stack: "",
  };
}

export const state = { view: "predict", active: 0, configs: [fresh()], run: null };

const packed = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text))).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
const unpacked = (text) => new TextDecoder().decode(Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0)));

export function remember() {
  const kept = { v: 1, a: state.active, c: state.configs };
  const parts = new URLSearchParams({ view: state.view, s: packed(JSON.stringify(kept)) });
  if (state.run) parts.set("run", state.run);
  history.replaceState(null, "", `#${parts}`);
}

// A configuration of a link, which anybody may have written: what is not what it should be is as usual.
const text = (value) => typeof value === "string";
const object = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const SOUND = {
  kind: (value) => ["model", "config", "program"].includes(value),
  on: (value) => Array.isArray(value) && value.length > 0 && value.every(text),
  devices: (value) => Number.isInteger(value) && value > 0,
  settings: (value) => object(value) && Object.values(value).every((each) => text(each) || Number.isFinite(each)),
  program: (value) => value === null || (object(value) && text(value.id) && text(value.name) && Number.isInteger(value.devices) && object(value.mesh)),
};
function sound(given) {
  const usual = fresh();
  const kept = Object.entries(object(given) ? given : {}).filter(([name, value]) => name in usual && (SOUND[name] || text)(value));
  return { ...usual, ...Object.fromEntries(kept) };
}

export function recall() {
  const parts = new URLSearchParams(location.hash.slice(1));
  if (["predict", "search", "runs"].includes(parts.get("view"))) state.view = parts.get("view");
  if (parts.get("run")) state.run = parts.get("run");
  if (!parts.get("s")) return;
  try {
    const kept = JSON.parse(unpacked(parts.get("s")));
    const configs = kept.c.slice(0, MOST).map(sound);
    if (!configs.length) return;
    state.configs = configs;
    state.active = Math.min(Math.max(0, kept.a | 0), configs.length - 1);
  } catch { /* a link that was cut off opens the page as it is */ }
}

// How it is predicted, of a prediction and of a search.
export function how(config) {
  const { fidelity, network, lowering, clocks, stack } = config;
  return { fidelity, network, lowering, clocks, ...(stack ? { stack } : {}) };
}

// The model with its sizes.
export function sized(config) {
  const settings = { ...config.settings, ...(config.mode !== "train" ? { mode: config.mode } : {}) };
  return { settings, ...(config.kind === "config" ? { config: config.config } : { model: config.model }) };
}

// What the server is asked: as `meshcast predict` would be.
export function asked(config, on, more = {}) {
  if (config.kind === "program") return { on, ...how(config), ...more, program: config.program && config.program.id };
  const found = { on, ...how(config), ...more, ...sized(config) };
  if (config.plan) found.plan = config.plan;
  found.devices = config.devices;
  return found;
}

// The same question for a shell; what a link or a file is called is one word of it, whatever its name says.
const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);
export function command(config, on) {
  const said = asked(config, on);
  const words = ["meshcast", "predict", config.kind === "program" ? (config.program ? `${config.program.name}.mlir` : "FILE.mlir") : config.kind === "config" ? "config.json" : config.model, "--on", on];
  if (said.plan) words.push("--plan", said.plan); else if (said.devices > 1) words.push("--devices", said.devices);
  for (const [name, value] of Object.entries(said.settings || {})) words.push("--set", `${name}=${value}`);
  for (const [name, usual] of [["fidelity", "auto"], ["network", "alpha-beta"], ["lowering", "auto"], ["clocks", "sustained"], ["stack", ""]]) {
    if (config[name] !== usual) words.push(`--${name}`, config[name]);
  }
  return words.map(String).map(quoted).join(" ");
}
