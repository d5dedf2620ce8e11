// Numbers for people, as report/numbers.py writes them: a test holds both against each other.
"use strict";
const Units = (() => {
  const digits = (value) => {
    const size = Math.abs(value);
    if (size >= 999.5 && size < 1e6) return value.toFixed(0);
    if (size && (size >= 1e6 || size < 1e-4)) return value.toExponential(2).replace(/\.?0+e/, "e").replace(/e([+-])(\d)$/, "e$10$2");
    return String(Number(value.toPrecision(3)));
  };
  const scaled = (value, steps) => {
    const [size, unit] = steps.find(([least]) => Math.abs(value) >= 0.9995 * least) || steps[steps.length - 1];
    return `${digits(value / size)} ${unit}`;
  };
  const decimal = (unit) => [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]].map(([s, p]) => [s, p + unit]);
  const time = [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]];
  const bytes = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
  const energy = [[1e6, "MJ"], [1e3, "kJ"], [1, "J"], [1e-3, "mJ"], [1e-6, "uJ"]];
  // Three digits of a count, as results/throughput.py writes them.
  const count = (value) => {
    for (const [size, name] of [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"]]) {
      if (value >= 0.9995 * size) return value / size >= 999.5 ? `${count(value / size)} ${name}` : `${digits(value / size)} ${name}`;
    }
    if (value < 999.5) return digits(value);
    const tens = 10 ** (String(Math.round(value)).length - 3);
    return (Math.round(value / tens) * tens).toLocaleString("en-US");
  };
  const shown = (value, unit) => {
    if (value === null || value === undefined || value === "") return "–";
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (typeof value === "string") return value;
    switch (unit) {
      case "s": return value ? scaled(value, time) : "0 s";
      case "B": return scaled(value, bytes);
      case "FLOP": case "B/s": case "FLOP/s": return scaled(value, decimal(unit));
      case "J": return scaled(value, energy);
      case "share": return value > 0 && value < 0.0005 ? "<0.1 %" : `${(100 * value).toFixed(1)} %`;
      case "W": return Math.abs(value) >= 10 ? `${Math.round(value).toLocaleString("en-US")} W` : `${digits(value)} W`;
      case "ratio": return `${digits(value)}×`;
      case "1": return digits(value);
      case "FLOP/B": return `${digits(value)} ${unit}`;
      case "count": return Number.isInteger(value) || Math.abs(value) >= 999.5 ? (Math.abs(value) < 1e15 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(4)))) : String(Number(value.toPrecision(4)));
      case "": case undefined: return Number.isInteger(value) ? value.toLocaleString("en-US") : String(Number(value.toPrecision(4)));
      default: return `${count(value)} ${unit}`;
    }
  };
  return { shown, count };
})();
