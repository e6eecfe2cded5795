// Elements made by hand: text is only ever text, so nothing in a record can become markup.
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(9)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

function s(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const numbers = new Intl.NumberFormat("en");
export const number = (value) => (value === null || value === undefined ? "–" : numbers.format(value));
export const whole = (text) => (text === null || text === undefined ? "–" : numbers.format(BigInt(text)));

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export const rate = (value, form = number) =>
  value === null || value === undefined ? "–" : `${form(value < 10 ? Math.round(value * 10) / 10 : Math.round(value))}/s`;

export function time(ms) {
  if (ms === null || ms < 0) return "no time";
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? String(ms) : date.toISOString().replace("T", " ").replace("Z", "");
}

export const link = (href, ...text) => h("a", { href }, text);
export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);
export const stateBadge = (state) =>
  badge(state, { Stable: "good", Empty: "", Dead: "bad" }[state] ?? "warn");

export function table(caption, columns, rows, empty = "Nothing here.") {
  const head = columns.map((column) => h("th", { scope: "col", class: column.num ? "num" : null }, column.title));
  const body = rows.length ? rows : [h("tr", {}, h("td", { colspan: columns.length, class: "soft" }, empty))];
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: "cards" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export const cells = (columns, values, props) =>
  h("tr", props || {}, values.map((value, at) =>
    h("td", { class: columns[at].num ? "num" : columns[at].name ? "name" : null, "data-label": columns[at].title }, h("div", {}, value))));

export function pager(found, go) {
  const button = (text, page, off) => h("button", { type: "button", disabled: off, onclick: () => go(page) }, text);
  return h("div", { class: "pages" }, `${number(found.total)} in all · page ${found.page} of ${found.pages}`,
    button("Previous", found.page - 1, found.page <= 1), button("Next", found.page + 1, found.page >= found.pages));
}

export const field = (label, input, more = "") => h("label", { class: `field ${more}` }, label, input);

// A field that asks again a moment after the last key.
export function searchField(placeholder, act) {
  let wait = null;
  const input = h("input", { type: "search", placeholder, "aria-label": "Search", oninput: () => { clearTimeout(wait); wait = setTimeout(() => Promise.resolve(act()).catch((error) => notice(error.message)), 200); } });
  return { input, box: h("div", { class: "push" }, input), end: () => clearTimeout(wait) };
}

export function plot(points, form, label) {
  const [width, height, left, bottom] = [Math.min(1160, Math.max(300, window.innerWidth - 70)), 160, 64, 20];
  const svg = s("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  if (points.length < 2) {
    svg.append(s("text", { x: 10, y: 30 }, "Two points are needed: wait a moment."));
    return svg;
  }
  const times = points.map((point) => point[0]);
  const first = times[0], last = times[times.length - 1];
  const top = Math.max(1, ...points.map((point) => point[1]));
  const x = (t) => left + ((t - first) / (last - first || 1)) * (width - left - 8);
  const y = (v) => height - bottom - (v / top) * (height - bottom - 10);
  for (const part of top > 1 ? [0, 0.5, 1] : [0, 1]) {
    svg.append(s("line", { x1: left, x2: width - 8, y1: y(top * part), y2: y(top * part) }));
    svg.append(s("text", { x: left - 6, y: y(top * part) + 4, "text-anchor": "end" }, form(Math.round(top * part))));
  }
  const clock = (t) => new Date(t * 1000).toTimeString().slice(0, 8);
  svg.append(s("text", { x: left, y: height - 5 }, clock(first)));
  svg.append(s("text", { x: width - 8, y: height - 5, "text-anchor": "end" }, clock(last)));
  const line = points.map((point, at) => `${at ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`).join("");
  svg.append(s("path", { class: "area", d: `${line}L${x(last).toFixed(1)} ${y(0)}L${left} ${y(0)}Z` }));
  svg.append(s("path", { d: line }));
  return svg;
}

export function notice(text) {
  const box = h("div", {}, text);
  document.getElementById("notice").append(box);
  setTimeout(() => box.remove(), 6000);
}

// A dialog that asks; `ask` gets what was typed. With `name` it has to be typed before the button works.
export function confirmByName(title, text, name, act) {
  const typed = h("input", { id: "typed", autocomplete: "off", spellcheck: "false", oninput: () => { go.disabled = typed.value !== name; } });
  const go = h("button", { class: "danger", disabled: true, type: "submit" }, title);
  const trouble = h("div", {});
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" },
    h("form", { method: "dialog", onsubmit: async (event) => {
      event.preventDefault();
      try { await act(typed.value); dialog.close(); } catch (error) { fill(trouble, h("p", { class: "error" }, error.message)); }
    } },
    h("h2", { id: "dialog-title" }, title), h("p", {}, text), trouble,
    field(h("span", { class: "any" }, "Type ", h("strong", {}, name), " to confirm"), typed),
    h("p", { class: "row" }, go, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
