import { badge, bytes, cells, field, fill, h, link, notice, number, pager, rate, table } from "../dom.js";
import { get, part, post } from "../api.js";

const COLUMNS = [
  { title: "Topic", name: true }, { title: "Partitions", num: true }, { title: "Records", num: true },
  { title: "Size in Redis", num: true }, { title: "In", num: true }, { title: "Format" },
];

function row(topic) {
  const href = `#/topics/${part(topic.name)}`;
  return cells(COLUMNS, [
    [link(href, topic.name), topic.is_internal ? [" ", badge("internal")] : null], number(topic.partitions),
    [number(topic.records), topic.trouble ? h("div", { class: "told" }, topic.trouble) : null], bytes(topic.size_bytes), rate(topic.records_per_s), topic.format || "–",
  ]);
}

function createDialog(done) {
  const name = h("input", { required: true, autocomplete: "off", pattern: "[a-zA-Z0-9._\\-]{1,249}" });
  const partitions = h("input", { type: "number", min: "1", placeholder: "default" });
  const configs = h("textarea", { placeholder: "retention.ms=86400000", rows: "3" });
  const trouble = h("div", { role: "alert" });
  const dialog = h("dialog", { "aria-labelledby": "create-title" }, h("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    const lines = configs.value.split("\n").map((line) => line.trim()).filter(Boolean);
    const pairs = Object.fromEntries(lines.map((line) => { const at = line.indexOf("="); return [line.slice(0, at).trim(), line.slice(at + 1).trim()]; }));
    try {
      await post("/topics", { name: name.value, partitions: Number(partitions.value) || -1, configs: pairs });
      dialog.close();
      notice(`Topic ${name.value} was created.`);
      done();
    } catch (error) { fill(trouble, h("p", { class: "error" }, error.message)); }
  } }, h("h2", { id: "create-title" }, "Create a topic"), trouble,
  h("div", { class: "row" }, field("Name", name, "grow"), field("Partitions", partitions)),
  h("div", { class: "row" }, field("Configs, one name=value per line", configs, "grow")),
  h("p", { class: "row" }, h("button", { class: "primary" }, "Create"), h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

export default async function topics(area, _, query, session) {
  let page = Number(query.get("page")) || 1;
  let wait = null;
  const search = h("input", { type: "search", value: query.get("search") || "", placeholder: "orders", oninput: () => { clearTimeout(wait); page = 1; wait = setTimeout(load, 200); } });
  const internal = h("input", { type: "checkbox", onchange: () => { page = 1; load(); } });
  const list = h("div", {});
  let asked = 0;
  async function load() {
    const mine = ++asked;
    try {
      const found = await get("/topics", { search: search.value, page, internal: internal.checked });
      if (mine !== asked) return;
      page = found.page;
      fill(list, table("Topics", COLUMNS, found.topics.map(row), "No topics."), pager(found, (to) => { page = to; load(); }));
    } catch (error) { if (mine === asked) fill(list, h("p", { class: "error" }, error.message)); }
  }
  fill(area,
    h("div", { class: "head" }, h("h1", {}, "Topics"),
      session.read_only ? null : h("div", { class: "push" }, h("button", { class: "primary", type: "button", onclick: () => createDialog(load) }, "Create a topic"))),
    h("section", { class: "panel" },
      h("div", { class: "row" }, field("Search", search, "grow"), h("label", { class: "check" }, internal, "internal topics")), list));
  await load();
  const again = setInterval(() => { if (!document.hidden && !document.querySelector("dialog")) load(); }, 5000);
  return () => { clearInterval(again); clearTimeout(wait); };
}
