import { bytes, field, fill, h, notice, number, time, whole } from "../dom.js";
import { get, part } from "../api.js";
import { decodeAvro } from "../avro.js";
import { asHex, asJson, asTree, bytesOf, preview } from "../content.js";

const SHOWN_MAX = 500;
const SEARCH_MAX_BYTES = 2e9;
const LIVE_WAIT_MS = 2000;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const COLUMNS = ["Partition", "Offset", "Time (UTC)", "Key", "Value"];

// Schemas are stored in this browser, per topic, and separately for keys and values.
function avroView(content, place) {
  const stored = `avro:${place}`;
  const input = h("textarea", { rows: "5", spellcheck: "false", value: localStorage.getItem(stored) || "", placeholder: '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}' });
  const result = h("div", { role: "status" });
  function decode() {
    try {
      const schema = JSON.parse(input.value);
      localStorage.setItem(stored, input.value);
      const value = decodeAvro(schema, bytesOf(content));
      fill(result, value !== null && typeof value === "object" ? asTree(value) : h("pre", { tabindex: "0" }, JSON.stringify(value)));
    } catch (error) { fill(result, h("p", { class: "error" }, `The schema does not match: ${error.message}.`)); }
  }
  if (input.value) decode();
  return h("form", { onsubmit: (event) => { event.preventDefault(); decode(); } }, result, field("Avro schema (kept in this browser)", input), h("p", {}, h("button", {}, "Decode")));
}

function contentView(content, download, place) {
  if (content === null) return h("p", { class: "soft" }, "null");
  const body = h("div", {});
  const isText = content.text !== null && content.text !== undefined;
  const views = { Avro: () => avroView(content, place), Hex: () => asHex(bytesOf(content)) };
  let first = localStorage.getItem(`avro:${place}`) ? "Avro" : "Hex";
  if (isText) {
    views.Text = () => h("pre", { tabindex: "0" }, content.text);
    first = "Text";
    try { const ready = asJson(content.text); views.JSON = () => ready; first = "JSON"; } catch { /* not JSON */ }
  }
  const buttons = Object.keys(views).reverse().map((name) => h("button", { type: "button", "aria-pressed": "false", onclick: () => open(name) }, name));
  function open(name) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === name));
    fill(body, views[name]());
  }
  open(first);
  return h("div", {}, h("div", { class: "row" }, buttons, h("a", { class: "button", href: download, download: true }, "Download"),
    h("span", { class: "soft" }, bytes(content.size), content.is_cut ? ", only the beginning is shown" : "")), body);
}

// A form holds only text with one kind of line ending: anything else is sent as base64, and truncated content not at all.
function sendAgain(topic, message) {
  const parts = [message.key, message.value, ...message.headers.map((one) => one.value)].filter((part) => part !== null);
  if (parts.some((part) => part.is_cut)) { notice("This message is too large for the form: download it, and send the file with a client."); return; }
  if (message.headers.some((one) => /[=\n]/.test(one.name))) { notice("A header name contains = or a line break, which the form cannot send."); return; }
  const base64 = parts.some((part) => typeof part.text !== "string" || /[\r]/.test(part.text)) || message.headers.some((one) => one.value?.text?.includes("\n"));
  const shape = (part) => (part === null ? null : base64 ? btoa(String.fromCharCode(...bytesOf(part))) : part.text);
  sessionStorage.setItem("send-again", JSON.stringify({ base64, key: shape(message.key), value: shape(message.value), headers: message.headers.map((one) => [one.name, shape(one.value)]) }));
  location.hash = `#/topics/${part(topic.name)}/produce`;
}

function detail(topic, message, session) {
  const download = (what) => `/api/v1/topics/${part(topic.name)}/download?partition=${message.partition}&offset=${message.offset}&part=${what}`;
  const headers = message.headers.map((header) => h("tr", {}, h("td", { class: "mono name" }, h("bdi", {}, header.name)), h("td", { class: "mono name" }, preview(header.value))));
  return h("td", { colspan: "5" }, h("h2", {}, "Value"), contentView(message.value, download("value"), `${topic.name}/value`), h("h2", {}, "Key"), contentView(message.key, download("key"), `${topic.name}/key`),
    headers.length ? [h("h2", {}, "Headers"), h("table", {}, h("tbody", {}, headers))] : null,
    session.read_only ? null : h("p", {}, h("button", { type: "button", onclick: () => sendAgain(topic, message) }, "Send again …")));
}

export default async function messages(area, topic, query, session) {
  const address = `/topics/${part(topic.name)}/messages`;
  const place = h("select", { value: query.get("from") || "newest", onchange: shape }, [["newest", "newest"], ["oldest", "oldest"], ["offset", "from an offset"], ["time", "from a time"]].map(([key, text]) => h("option", { value: key }, text)));
  place.value = query.get("from") || "newest";
  const offset = h("input", { inputmode: "numeric", value: query.get("offset") || "0", pattern: "[0-9]{1,19}" });
  const when = h("input", { type: "datetime-local", step: "1" });
  const partition = h("select", {}, h("option", { value: "" }, "all"), topic.partitions.map((p) => h("option", { value: p.partition }, p.partition)));
  partition.value = query.get("partition") || "";
  const search = h("input", { type: "search", value: query.get("search") || "", placeholder: "text in the message" });
  const where = ["key", "value", "headers"].map((name) => h("input", { type: "checkbox", checked: true, name }));
  const offsetField = field("Offset", offset), whenField = field("Time (local)", when);
  const load = h("button", { class: "primary" }, "Show");
  const live = h("button", { type: "button", "aria-pressed": "false", onclick: () => (running === "live" ? stop() : tail()) }, "Live");
  const halt = h("button", { type: "button", disabled: true, onclick: () => stop() }, "Stop");
  const more = h("button", { type: "button", hidden: true, onclick: () => run(false) }, "More");
  const status = h("p", { class: "soft", role: "status" });
  const rows = h("tbody", {});
  let cursor = "", running = "", aborter = new AbortController(), shown = 0;

  function shape() { offsetField.hidden = place.value !== "offset"; whenField.hidden = place.value !== "time"; }
  function state(name) {
    running = name;
    halt.disabled = !name;
    load.disabled = Boolean(name);
    live.setAttribute("aria-pressed", String(name === "live"));
  }
  function stop() { aborter.abort(); aborter = new AbortController(); state(""); }
  function question() {
    const within = where.filter((box) => box.checked).map((box) => box.name).join(",");
    return { partition: partition.value, search: search.value, in: search.value ? within : "", limit: 50 };
  }
  function row(message) {
    let open = null;
    const toggle = () => {
      if (open) { open.remove(); open = null; } else { open = h("tr", { class: "detail" }, detail(topic, message, session)); line.after(open); }
      button.setAttribute("aria-expanded", String(Boolean(open)));
    };
    const button = h("button", { type: "button", class: "linkish", "aria-expanded": "false" }, whole(message.offset));
    const line = h("tr", { class: "message", onclick: (event) => { if (!window.getSelection().toString() || event.target === button) toggle(); } },
      COLUMNS.map((title, at) => h("td", { class: at < 2 ? "num" : "mono", "data-label": title }, h("div", {}, [
        () => message.partition, () => button, () => time(message.timestamp),
        () => h("span", { class: "cut" }, preview(message.key)), () => h("span", { class: "cut" }, preview(message.value))][at]()))));
    return line;
  }
  function put(found, onTop) {
    const lines = found.messages.map(row);
    if (!shown && lines.length) rows.replaceChildren();
    if (onTop) rows.prepend(...lines.reverse()); else rows.append(...lines);
    shown += lines.length;
    while (onTop && rows.children.length > SHOWN_MAX) rows.lastElementChild.remove();
  }
  // A search reads page after page until there are enough matches, the end, the budget or the stop button.
  async function run(isNew) {
    stop();
    if (isNew) { rows.replaceChildren(); cursor = ""; shown = 0; }
    const { signal } = aborter;
    state("search");
    const asked = question(), from = shown;
    let scanned = 0, size = 0, found;
    const newest = isNew && place.value === "newest" && !search.value;
    try {
      do {
        const start = cursor ? { cursor } : { from: place.value, offset: place.value === "offset" ? offset.value : "", time: place.value === "time" && when.value ? new Date(when.value).getTime() : "" };
        found = await get(address, { ...asked, ...start }, signal);
        cursor = found.cursor;
        scanned += found.scanned;
        size += found.scanned_bytes;
        put(found, newest);
        if (!shown && found.at_end) fill(rows, h("tr", {}, h("td", { colspan: "5", class: "soft" }, search.value ? "No message matches." : "No messages.")));
        status.textContent = `${number(shown)} shown, ${number(scanned)} messages (${bytes(size)}) read${found.at_end ? ", at the end" : ""}${found.trouble ? `; ${found.trouble}` : ""}`;
      } while (search.value && !found.at_end && shown - from < 50 && size < SEARCH_MAX_BYTES && !signal.aborted);
      more.hidden = found.at_end || newest;
      if (size >= SEARCH_MAX_BYTES) status.textContent += "; the search ends here, More goes on";
    } catch (error) { if (error.name !== "AbortError") notice(error.message); }
    if (!signal.aborted) state("");
  }
  async function tail() {
    stop();
    const { signal } = aborter;
    state("live");
    more.hidden = true;
    let at = "";
    while (!signal.aborted) {
      const began = Date.now();
      try {
        const found = at ? await get(address, { ...question(), cursor: at, limit: 100, wait_ms: LIVE_WAIT_MS }, signal) : await get(address, { ...question(), from: "end", limit: 1 }, signal);
        at = found.cursor;
        put(found, true);
        status.textContent = `live: ${number(shown)} shown`;
        await pause(Math.max(0, 300 - (Date.now() - began)));
      } catch (error) {
        if (error.name === "AbortError") return;
        if (error.status && error.status < 500) { notice(error.message); state(""); return; }
        status.textContent = "live: waiting for the broker";
        await pause(2000);
      }
    }
  }

  shape();
  fill(area,
    h("form", { onsubmit: (event) => { event.preventDefault(); run(true); } },
      h("div", { class: "row" }, field("Show", place), offsetField, whenField, field("Partition", partition), field("Search", search, "grow"), load, live, halt),
      h("div", { class: "row middle" }, h("span", { class: "soft" }, "search in"), where.map((box) => h("label", { class: "check" }, box, box.name)))),
    status,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Messages" }, h("table", { class: "cards" }, h("thead", {}, h("tr", {}, COLUMNS.map((title, at) => h("th", { scope: "col", class: at < 2 ? "num" : null }, title)))), rows)),
    h("div", { class: "pages" }, more));
  await run(true);
  return stop;
}
