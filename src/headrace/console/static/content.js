// What is in a record, for people: JSON as a tree that folds, text, hex. Everything is made of text nodes.
import { h } from "./dom.js";

export function bytesOf(content) {
  if (content.base64 !== null && content.base64 !== undefined) return Uint8Array.from(atob(content.base64), (c) => c.charCodeAt(0));
  return new TextEncoder().encode(content.text);
}

export function preview(content) {
  if (content === null) return h("span", { class: "soft" }, "null");
  if (content.text !== null && content.text !== undefined) return content.text.slice(0, 300);
  return `${[...bytesOf(content).slice(0, 24)].map((b) => b.toString(16).padStart(2, "0")).join(" ")} …`;
}

// Numbers keep the digits they were written with: JavaScript's own end at 2^53.
function parse(text) {
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && context?.source && context.source !== String(value) ? { exact: context.source } : value);
}

function leaf(value) {
  if (value !== null && typeof value === "object") return h("span", { class: "n" }, value.exact);
  return h("span", { class: typeof value === "string" ? "s" : "n" }, JSON.stringify(value));
}

function tree(value, label, depth) {
  const name = label === null ? null : [h("span", { class: "k" }, label), ": "];
  const isLeaf = value === null || typeof value !== "object" || (Object.keys(value).length === 1 && typeof value.exact === "string");
  if (isLeaf) return h("li", {}, name, leaf(value));
  const entries = Object.entries(value);
  const shape = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  const shown = entries.slice(0, 500).map(([key, inner]) => tree(inner, key, depth + 1));
  if (entries.length > 500) shown.push(h("li", { class: "soft" }, `${entries.length - 500} more`));
  return h("li", {}, h("details", { open: depth < 2 }, h("summary", {}, name, h("span", { class: "soft" }, shape)), h("ul", {}, shown)));
}

export function asJson(text) {
  const value = parse(text);
  if (value === null || typeof value !== "object") throw new Error("no structure");
  return h("ul", { class: "tree" }, tree(value, null, 0));
}

export function asHex(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, 4096); at += 16) {
    const row = [...bytes.slice(at, at + 16)];
    const hex = row.map((b) => b.toString(16).padStart(2, "0")).join(" ").padEnd(48);
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex} ${row.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : ".")).join("")}`);
  }
  if (bytes.length > 4096) lines.push(`… ${bytes.length - 4096} more bytes`);
  return h("pre", { tabindex: "0" }, lines.join("\n"));
}
