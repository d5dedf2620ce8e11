// Numbers with their units, as reports write them (report/units.js); what they do not know is null or left out.

const blank = (value) => value === null || value === undefined || Number.isNaN(value);
const as = (unit) => (value) => (blank(value) ? "–" : Units.shown(value, unit));
export const time = as("s");
export const bytes = as("B");
export const energy = as("J");
export const percent = as("share");
export const count = as("count");
export const rate = (value) => (blank(value) ? "–" : Units.count(value));
export const ratio = (value) => (blank(value) ? "–" : `${value.toFixed(value < 10 ? 2 : 1)}×`);
export const billions = (value) => (blank(value) ? "" : value >= 1e9 ? `${Number((value / 1e9).toPrecision(3))} B parameters` : `${Number((value / 1e6).toPrecision(3))} M parameters`);
