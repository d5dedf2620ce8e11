// What a prediction is told by: names, units, and what each means on hover.

import * as format from "./format.js";

export const PARTS = [
  ["compute", "compute", "Time in which arithmetic is what limits."],
  ["memory", "memory", "Time in which the device's memory bandwidth is what limits."],
  ["exposed_communication", "communication", "Communication that nothing else hides."],
  ["overhead", "overhead", "Launching kernels, and what the host takes."],
  ["idle", "idle", "Waiting: the bubble of a pipeline, slower peers."],
];

const per = (p) => p.throughput || {};
export const METRICS = [
  ["throughput", "throughput", (p) => per(p).per_s, (v, p) => `${format.rate(v)} ${per(p).unit}/s`, "What all devices get done in a second."],
  ["per_device", "per device", (p) => per(p).per_device_s, (v, p) => `${format.rate(v)} ${per(p).unit}/s`, "The same, for one device."],
  ["mfu", "MFU", (p) => p.mfu, (v) => format.percent(v), "Model FLOPs utilisation: what the model needs, over time times the device's dense peak."],
  ["memory", "peak memory", (p) => p.memory_bytes.peak, (v, p) => `${format.bytes(v)} of ${format.bytes(p.memory_bytes.capacity)}`, "What the fullest device must hold, and what one has."],
  ["exposed", "exposed comm.", (p) => p.breakdown_s && p.breakdown_s.exposed_communication / p.step_time_s, (v) => format.percent(v), "The share of the step that only communicates."],
  ["energy", "energy", (p) => p.energy_j, (v) => `${format.energy(v)} a device and step`, "Of one device and one step."],
  ["flops", "FLOPs", (p) => p.flops, (v) => `${format.flops(v)} a device and step`, "Operations that a device carries out in a step, recomputation among them."],
  ["communicated", "communicated", (p) => p.communication_bytes, (v) => `${format.bytes(v)} a device and step`, "Bytes that a device sends in a step."],
  ["kernels", "kernels", (p) => p.kernels, (v) => format.count(v), "Launches of a step on one device."],
];
