// Perfetto's trace processor (WebAssembly, as its UI has it) under Node: FOLDER TRACE, a JSON list of SQL on stdin,
// a JSON line for each answer on stdout.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");
const [folder, trace] = process.argv.slice(2);

// What a browser's worker has, as far as the engine looks for it.
class FileRequest {
  open(method, url) { this.url = url; }
  send() {
    const data = fs.readFileSync(path.join(folder, path.basename(this.url)));
    this.status = 200;
    this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
  }
}
const worker = {
  XMLHttpRequest: FileRequest, WorkerGlobalScope: function () {}, TextDecoder, TextEncoder, performance, URL,
  crypto: require("crypto").webcrypto, setTimeout, clearTimeout, location: { href: "http://localhost/engine_bundle.js" },
  console: { log: () => {}, warn: (line) => process.stderr.write(line + "\n"), error: (line) => process.stderr.write(line + "\n") },
};
worker.self = worker;
worker.globalThis = worker;
vm.createContext(worker);
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), worker);

// Protocol buffers by hand: what Perfetto's trace_processor.proto numbers.
function varint(value) {
  const bytes = [];
  let left = BigInt(value);
  do {
    const low = Number(left & 127n);
    left >>= 7n;
    bytes.push(left ? low | 128 : low);
  } while (left);
  return Buffer.from(bytes);
}
const field = (number, content) => Buffer.concat([varint(number * 8 + 2), varint(content.length), content]);
const whole = (number, value) => Buffer.concat([varint(number * 8), varint(value)]);
function* fields(buffer) {
  let at = 0;
  const next = () => {
    let value = 0n, shift = 0n, byte;
    do { byte = buffer[at++]; value |= BigInt(byte & 127) << shift; shift += 7n; } while (byte & 128);
    return value;
  };
  while (at < buffer.length) {
    const tag = Number(next()), kind = tag & 7;
    if (kind === 0) yield [tag >> 3, next()];
    else if (kind === 1) { yield [tag >> 3, buffer.subarray(at, at + 8)]; at += 8; }
    else if (kind === 2) { const size = Number(next()); yield [tag >> 3, buffer.subarray(at, at + size)]; at += size; }
    else throw new Error(`wire type ${kind}`);
  }
}
function* packed(buffer) {
  let at = 0;
  while (at < buffer.length) {
    let value = 0n, shift = 0n, byte;
    do { byte = buffer[at++]; value |= BigInt(byte & 127) << shift; shift += 7n; } while (byte & 128);
    yield Number(BigInt.asIntN(64, value));
  }
}

const WorkerBytes = vm.runInContext("Uint8Array", worker);
let answers = Buffer.alloc(0);
const port = { postMessage: (data) => { answers = Buffer.concat([answers, Buffer.from(data)]); } };
worker.onmessage({ data: port });
let sequence = 0;
function request(method, ...content) {
  answers = Buffer.alloc(0);
  const message = Buffer.concat([whole(1, sequence++), whole(2, method), ...content]);
  port.onmessage({ data: new WorkerBytes(field(1, message)) });
  return [...fields(answers)].map(([, reply]) => [...fields(reply)]);
}

function query(sql) {
  const names = [], cells = [], pools = { 2: [], 3: [], 4: [], 5: [] };
  let error = "";
  for (const reply of request(3, field(103, field(1, Buffer.from(sql))))) {
    for (const [number, value] of reply) {
      if (number === 5) throw new Error(value.toString());
      if (number !== 203) continue;
      for (const [part, content] of fields(value)) {
        if (part === 1) names.push(content.toString());
        if (part === 2) error = content.toString();
        if (part !== 3) continue;
        for (const [kind, data] of fields(content)) {
          if (kind === 1) cells.push(...packed(data));
          if (kind === 2) pools[2].push(...packed(data));
          if (kind === 3) for (let at = 0; at < data.length; at += 8) pools[3].push(data.readDoubleLE(at));
          if (kind === 5) pools[4].push(...data.toString().split("\0").slice(0, -1));
        }
      }
    }
  }
  if (error) return { error };
  const taken = { 2: 0, 3: 0, 4: 0 }, rows = [];
  cells.forEach((kind, index) => {
    if (index % names.length === 0) rows.push({});
    rows[rows.length - 1][names[index % names.length]] = kind === 1 ? null : pools[kind][taken[kind]++];
  });
  return { rows };
}

setTimeout(() => {
  const data = fs.readFileSync(trace);
  for (let at = 0; at < data.length; at += 16 << 20) request(1, field(101, data.subarray(at, at + (16 << 20))));
  request(2);
  const answered = JSON.parse(fs.readFileSync(0, "utf8")).map((sql) => JSON.stringify(query(sql)) + "\n");
  process.stdout.write(answered.join(""), () => process.exit(0));
}, 0);
