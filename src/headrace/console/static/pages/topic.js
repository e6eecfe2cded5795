import { badge, bytes, cells, confirmByName, field, fill, h, notice, number, rate, table, whole } from "../dom.js";
import { get, part, post, remove } from "../api.js";
import messages from "./messages.js";
import produce from "./produce.js";

const PARTITIONS = [
  { title: "Partition", num: true }, { title: "Leader", num: true }, { title: "In sync" }, { title: "Log start", num: true },
  { title: "Local start", num: true }, { title: "End", num: true }, { title: "In Redis", num: true }, { title: "Location" },
];
const CONFIGS = [{ title: "Config", name: true }, { title: "Value", name: true }, { title: "Source" }, { title: "Change" }];

// An offset is -1 while the partition's server is away.
const UNKNOWN = "-1";
const known = (offset) => whole(offset === UNKNOWN ? null : offset);

// Words in backticks, as documentation has them.
const marked = (text) => text.split("`").map((piece, at) => (at % 2 ? h("code", {}, piece) : piece));
const size = (to, from) => Math.max(0, Number(BigInt(to) - BigInt(from)));

// Cold offsets are only in the lake, archived ones in both, the rest in Redis; the newest are also in memory.
function bar(p, isStream) {
  const span = Math.max(1, size(p.end, p.log_start));
  const archived = p.lake_end === null ? p.local_start : String([p.lake_end, p.local_start].map(BigInt).reduce((a, b) => (a > b ? a : b)));
  const cold = size(p.local_start, p.log_start), hot = size(p.end, p.local_start), both = Math.min(hot, size(archived, p.local_start));
  const parts = [["lake", cold], ["both", both], ["redis", hot - both]];
  const cached = p.cached_from === null ? 0 : Math.min(hot, size(p.end, p.cached_from));
  const words = { lake: "in the lake", both: "in Redis and the lake", redis: "in Redis" };
  const said = parts.filter(([, count]) => count > 0).map(([kind, count]) => (isStream ? words[kind] : `${number(count)} ${words[kind]}`));
  if (cached) said.push(isStream ? "the newest also in memory" : `the last ${number(cached)} also in memory`);
  const box = h("div", { class: "bar", role: "img", "aria-label": said.join(", ") || "empty", title: said.join(", ") || "empty" });
  for (const [kind, count] of parts) {
    if (count <= 0) continue;
    const piece = h("span", { class: kind });
    piece.style.width = `${(100 * count) / span}%`;
    box.append(piece);
  }
  const memory = h("div", { class: "bar memory", "aria-hidden": "true" }, h("span", {}));
  memory.firstChild.style.width = `${(100 * cached) / span}%`;
  return [box, cached ? memory : null, h("div", { class: "soft small" }, said.join(", ") || "empty")];
}

function partitions(area, topic, session, again) {
  const rows = topic.partitions.map((p) => cells(PARTITIONS, [
    p.partition, p.leader, p.isr.join(", "), known(p.log_start), known(p.local_start), known(p.end), bytes(p.size_bytes),
    [p.end === UNKNOWN ? null : bar(p, topic.format === "stream"), p.trouble ? h("div", { class: "told" }, p.trouble) : null],
  ]));
  const count = h("input", { type: "number", min: topic.partitions.length + 1, value: topic.partitions.length + 1 });
  fill(area, table("Partitions", PARTITIONS, rows),
    h("div", { class: "legend", "aria-hidden": "true" }, h("span", {}, h("i", { class: "redis" }), "Redis"), topic.is_tiered ? [h("span", {}, h("i", { class: "both" }), "Redis and lake"), h("span", {}, h("i", { class: "lake" }), "lake")] : null, h("span", {}, h("i", { class: "memory" }), "also in memory")),
    session.read_only ? null : h("form", { class: "row", onsubmit: async (event) => {
      event.preventDefault();
      try { await post(`/topics/${part(topic.name)}/partitions`, { count: Number(count.value) }); notice("Partitions were added."); again(); }
      catch (error) { notice(error.message); }
    } }, field("Increase partitions to", count), h("button", {}, "Add partitions")));
}

function configs(area, topic, session, again) {
  const all = h("input", { type: "checkbox", onchange: draw });
  const list = h("div", {});
  async function set(name, value) {
    try { await post(`/topics/${part(topic.name)}/configs`, { configs: { [name]: value } }); notice(`${name} was changed.`); again(); }
    catch (error) { notice(error.message); }
  }
  function edit(config, cell) {
    const input = h("input", { value: config.value ?? "", "aria-label": config.name });
    fill(cell, h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); set(config.name, input.value); } },
      input, h("button", { class: "primary" }, "Save"), config.differs ? h("button", { type: "button", onclick: () => set(config.name, null) }, "Reset to default") : null));
    input.focus();
  }
  function draw() {
    const shown = topic.configs.filter((config) => all.checked || config.differs);
    const rows = shown.map((config) => {
      const cell = h("div", { class: "mono" }, config.value === "" ? "empty" : config.value ?? "–");
      return h("tr", { class: config.differs ? "changed" : null }, h("td", { class: "name", "data-label": "Config" }, h("div", {}, config.name, config.documentation ? h("div", { class: "soft prose" }, marked(config.documentation)) : null)), h("td", { class: "name", "data-label": "Value" }, cell),
        h("td", { "data-label": "Source" }, config.source), h("td", { "data-label": "Change" }, config.read_only || session.read_only ? null : h("button", { type: "button", "aria-label": `Change ${config.name}`, onclick: () => edit(config, cell) }, "Change")));
    });
    fill(list, table("Configs", CONFIGS, rows, "Every config has its default."));
  }
  fill(area, h("label", { class: "check" }, all, "include configs with default values"), list);
  draw();
}

export default async function topicPage(area, [name, tab = "messages"], query, session) {
  const head = h("div", { class: "head" });
  const facts = h("dl", { class: "tiles" });
  const tabs = h("nav", { "aria-label": "About this topic" });
  const body = h("section", { class: "panel" });
  fill(area, head, facts, tabs, body);
  const address = `#/topics/${part(name)}`;
  const names = [["messages", "Messages"], ["partitions", "Partitions"], ["configs", "Configs"], ...(session.read_only ? [] : [["produce", "Produce"]])];
  fill(tabs, names.map(([key, title]) => h("a", { href: `${address}/${key}`, "aria-current": key === tab ? "page" : null }, title)));
  let topic;
  async function load() {
    topic = await get(`/topics/${part(name)}`);
    const tile = (title, value) => h("div", { class: "tile" }, h("dt", {}, title), h("dd", {}, value));
    fill(head, h("h1", {}, name), topic.format ? badge(`format ${topic.format}`) : null, topic.is_tiered ? badge("tiered", "good") : null,
      session.read_only ? null : h("div", { class: "push" },
        h("button", { type: "button", class: "danger", onclick: () => confirmByName("Delete all records", "The topic stays; all its records are deleted.", name, (typed) => post(`/topics/${part(name)}/delete-records`, { offsets: Object.fromEntries(topic.partitions.map((p) => [p.partition, -1])) }, { confirm: typed }).then(load)) }, "Empty"),
        h("button", { type: "button", class: "danger", onclick: () => confirmByName("Delete this topic", "The topic and all its records are deleted permanently.", name, async (typed) => { await remove(`/topics/${part(name)}`, { confirm: typed }); notice(`Topic ${name} was deleted.`); location.hash = "#/topics"; }) }, "Delete")));
    fill(facts, tile("Partitions", number(topic.partitions.length)), tile("Records", number(topic.records)), tile("Size in Redis", bytes(topic.size_bytes)), tile("In", rate(topic.records_per_s)));
  }
  await load();
  if (tab === "partitions" || tab === "configs") {
    const draw = () => (tab === "configs" ? configs : partitions)(body, topic, session, async () => { await load(); draw(); });
    draw();
  }
  if (tab === "produce") return produce(body, topic, query);
  if (tab === "messages") return messages(body, topic, query, session);
  return undefined;
}
