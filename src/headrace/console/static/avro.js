// Avro records by a schema that the visitor gives: bytes do not say what they are. Nothing is trusted: depth, items and
// lengths are bounded, and what does not fit is an error with the place.
import { Exact } from "./content.js";

const DEPTH_MAX = 64;
const ITEMS_MAX = 20000;
const PRIMITIVES = new Set(["null", "boolean", "int", "long", "float", "double", "bytes", "string"]);

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.at = 0;
    this.items = 0;
  }
  take(count) {
    if (count < 0 || this.at + count > this.bytes.length) throw new Error(`the record ends too early, at byte ${this.at}`);
    this.at += count;
    return this.at - count;
  }
  long() {
    let shift = 0n, value = 0n, byte;
    do {
      byte = this.bytes[this.take(1)];
      value |= BigInt(byte & 0x7f) << shift;
      shift += 7n;
      if (shift > 70n) throw new Error(`a number is too long, at byte ${this.at}`);
    } while (byte & 0x80);
    return (value >> 1n) ^ -(value & 1n);
  }
  number() {
    const value = this.long();
    return value >= -9007199254740991n && value <= 9007199254740991n ? Number(value) : new Exact(String(value));
  }
  count() {
    const value = Number(this.long());
    this.items += Math.abs(value);
    if (this.items > ITEMS_MAX) throw new Error(`more than ${ITEMS_MAX} items`);
    return value;
  }
  slice() {
    const size = Number(this.long()), from = this.take(size);
    return this.bytes.subarray(from, from + size);
  }
}

const text = (bytes) => new TextDecoder().decode(bytes);
const hex = (bytes) => [...bytes].map((b) => b.toString(16).padStart(2, "0")).join(" ");
const full = (name, space) => (name.includes(".") || !space ? name : `${space}.${name}`);

function primitive(type, from) {
  switch (type) {
    case "null": return null;
    case "boolean": return from.bytes[from.take(1)] !== 0;
    case "int": case "long": return from.number();
    case "float": return from.view.getFloat32(from.take(4), true);
    case "double": return from.view.getFloat64(from.take(8), true);
    case "bytes": return hex(from.slice());
    default: return text(from.slice());
  }
}

function blocks(from, each) {
  for (let count = from.count(); count !== 0; count = from.count()) {
    if (count < 0) from.long();
    for (let at = 0; at < Math.abs(count); at += 1) each();
  }
}

function read(schema, from, names, space, depth) {
  if (depth > DEPTH_MAX) throw new Error("nested too deeply");
  const inner = (one, where = space) => read(one, from, names, where, depth + 1);
  if (Array.isArray(schema)) {
    const branch = Number(from.long());
    if (!(branch in schema)) throw new Error(`the union has no branch ${branch}, at byte ${from.at}`);
    return inner(schema[branch]);
  }
  const type = typeof schema === "string" ? schema : schema.type;
  if (PRIMITIVES.has(type)) return primitive(type, from);
  if (typeof schema === "string") {
    const known = names.get(full(schema, space)) || names.get(schema);
    if (!known) throw new Error(`the schema does not define ${schema}`);
    return inner(known);
  }
  const own = schema.namespace ?? (schema.name?.includes(".") ? schema.name.slice(0, schema.name.lastIndexOf(".")) : space);
  if (schema.name) names.set(full(schema.name, own), schema);
  if (type === "record" || type === "error") return Object.fromEntries(schema.fields.map((field) => [field.name, inner(field.type, own)]));
  if (type === "enum") {
    const at = Number(from.long());
    if (!(at in schema.symbols)) throw new Error(`the enum has no symbol ${at}, at byte ${from.at}`);
    return schema.symbols[at];
  }
  if (type === "fixed") { const at = from.take(schema.size); return hex(from.bytes.subarray(at, at + schema.size)); }
  if (type === "array") { const found = []; blocks(from, () => found.push(inner(schema.items))); return found; }
  if (type === "map") { const found = []; blocks(from, () => { const key = text(from.slice()); found.push([key, inner(schema.values)]); }); return Object.fromEntries(found); }
  if (type !== null && typeof type === "object") return inner(type, own);
  throw new Error(`the schema has an unknown type ${String(type)}`);
}

// Bytes as they are, behind the five bytes of Confluent's form, or behind the ten of Avro's single-object encoding.
export function decodeAvro(schema, bytes) {
  const starts = bytes[0] === 0xc3 && bytes[1] === 0x01 ? [10, 0] : bytes[0] === 0 ? [5, 0] : [0];
  let trouble;
  for (const start of starts) {
    const from = new Reader(bytes.subarray(start));
    try {
      const value = read(schema, from, new Map(), "", 0);
      if (from.at !== from.bytes.length) throw new Error(`${from.bytes.length - from.at} bytes follow the record`);
      return value;
    } catch (error) { trouble ??= error; }
  }
  throw trouble;
}
