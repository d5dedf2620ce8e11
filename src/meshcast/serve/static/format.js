// Numbers with their units, three digits, as the command line prints them.

function digits(value) {
  if (!value) return "0";
  const size = Math.abs(value);
  if (size >= 99.95) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

function scaled(value, steps) {
  for (const [least, unit] of steps) if (Math.abs(value) >= least * 0.9995) return `${digits(value / least)} ${unit}`;
  const [least, unit] = steps[steps.length - 1];
  return `${digits(value / least)} ${unit}`;
}

const blank = (value) => value === null || value === undefined || Number.isNaN(value);
export const time = (v) => blank(v) ? "–" : v === 0 ? "0 s" : scaled(v, [[86400 * 2, "days"], [3600 * 2, "h"], [1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]]);
export const bytes = (v) => blank(v) ? "–" : scaled(v, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]);
export const energy = (v) => blank(v) ? "–" : scaled(v, [[1e6, "MJ"], [1e3, "kJ"], [1, "J"], [1e-3, "mJ"], [1e-6, "uJ"]]);
export const percent = (v) => blank(v) ? "–" : v !== 0 && Math.abs(v) < 0.0005 ? "<0.1 %" : `${(100 * v).toFixed(1)} %`;
export const count = (v) => blank(v) ? "–" : Math.round(v).toLocaleString("en");
export const rate = (v) => blank(v) ? "–" : v >= 1e9 ? `${digits(v / 1e9)} billion` : v >= 1e6 ? `${digits(v / 1e6)} million` : v >= 100 ? Math.round(v).toLocaleString("en") : digits(v);
export const ratio = (v) => blank(v) ? "–" : `${v.toFixed(v < 10 ? 2 : 1)}×`;
export const billions = (v) => blank(v) ? "" : v >= 1e9 ? `${digits(v / 1e9)} B parameters` : `${digits(v / 1e6)} M parameters`;
