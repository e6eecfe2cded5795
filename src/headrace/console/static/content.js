// What is in a record, for people: JSON as a tree that folds, Avro, text, hex. Everything is made of text nodes.
import { h } from "./dom.js";

const DEPTH_MAX = 30;
const ENTRIES_MAX = 500;

export function bytesOf(content) {
  if (content.base64 !== null && content.base64 !== undefined) return Uint8Array.from(atob(content.base64), (c) => c.charCodeAt(0));
  return new TextEncoder().encode(content.text);
}

export function preview(content) {
  if (content === null) return h("span", { class: "soft" }, "null");
  if (content.text === "") return h("span", { class: "soft" }, "empty");
  if (content.text !== null && content.text !== undefined) return h("bdi", {}, content.text.slice(0, 300));
  const shown = bytesOf(content).slice(0, 24);
  return `${[...shown].map((b) => b.toString(16).padStart(2, "0")).join(" ")}${content.size > shown.length ? " …" : ""}`;
}

// A number with the digits it was written with: JavaScript's own end at 2^53.
export class Exact {
  constructor(source) { this.source = source; }
}

function parse(text) {
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && context?.source && context.source !== String(value) ? new Exact(context.source) : value);
}

function leaf(value) {
  if (value instanceof Exact) return h("span", { class: "n" }, value.source);
  return h("span", { class: typeof value === "string" ? "s" : "n" }, h("bdi", {}, JSON.stringify(value)));
}

function tree(value, label, depth) {
  const name = label === null ? null : [h("span", { class: "k" }, h("bdi", {}, label)), ": "];
  if (value === null || typeof value !== "object" || value instanceof Exact) return h("li", {}, name, leaf(value));
  const entries = Object.entries(value);
  const shape = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  if (!entries.length || depth >= DEPTH_MAX) return h("li", {}, name, h("span", { class: "soft" }, entries.length ? `${shape} nested too deeply to show: see the text` : shape));
  const shown = entries.slice(0, ENTRIES_MAX).map(([key, inner]) => tree(inner, key, depth + 1));
  if (entries.length > ENTRIES_MAX) shown.push(h("li", { class: "soft" }, `${entries.length - ENTRIES_MAX} more`));
  return h("li", {}, h("details", { open: depth < 2 }, h("summary", {}, name, h("span", { class: "soft" }, shape)), h("ul", {}, shown)));
}

export function asTree(value) {
  return h("ul", { class: "tree", tabindex: "0" }, tree(value, null, 0));
}

export function asJson(text) {
  const value = parse(text);
  if (value === null || typeof value !== "object") throw new Error("no structure");
  return asTree(value);
}

export function asHex(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, 4096); at += 16) {
    const row = [...bytes.slice(at, at + 16)];
    const hex = row.map((b) => b.toString(16).padStart(2, "0")).join(" ").padEnd(48);
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex} ${row.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : ".")).join("")}`);
  }
  if (bytes.length > 4096) lines.push(`… ${bytes.length - 4096} more bytes`);
  return h("pre", { tabindex: "0", class: "hex" }, lines.join("\n"));
}
