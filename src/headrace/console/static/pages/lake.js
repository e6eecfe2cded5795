import { badge, bytes, cells, fill, h, link, number, pager, searchField, table, time } from "../dom.js";
import { get, part } from "../api.js";

const COLUMNS = [{ title: "Partition", num: true }, { title: "Log start", num: true }, { title: "Local start", num: true }, { title: "Archived up to", num: true }, { title: "End", num: true }, { title: "Lag", num: true }, { title: "Only in the lake", num: true }, { title: "Size in the lake", num: true }, { title: "Problem", name: true }];

function proof(found) {
  if (!found) return [badge("not yet"), " run ", h("code", {}, "headrace lake verify")];
  return [badge(found.findings ? `${number(found.findings)} findings` : "agrees", found.findings ? "bad" : "good"), ` ${number(found.rows)} rows in ${number(found.files)} files, ${time(found.at_ms).slice(0, 19)} UTC`];
}

function facts(one) {
  if (one.trouble) return h("p", { class: "error" }, one.trouble);
  const row = (name, value) => [h("dt", {}, name), h("dd", {}, value)];
  return h("dl", { class: "facts spaced" }, row("Table", h("span", { class: "mono" }, one.place)), row("Files", `${number(one.files)} with ${number(one.rows)} rows, ${bytes(one.size_bytes)}`),
    row("Last commit", one.last_commit_ms ? `${time(one.last_commit_ms).slice(0, 19)} UTC` : "–"), row("Proof", proof(one.proof)),
    row("Rejects", one.rejects === null ? "no typed table" : one.rejects ? badge(`${number(one.rejects)} records do not match the schema`, "warn") : "none"));
}

export default async function lake(area) {
  const list = h("div", {});
  let page = 1;
  const search = searchField("orders", () => { page = 1; load(page); });
  async function load(to) {
    const found = await get("/lake", { page: to, search: search.input.value });
    page = found.page;
    const topics = found.topics.map((topic) => h("section", { class: "panel" }, h("h2", {}, link(`#/topics/${part(topic.topic)}/partitions`, topic.topic), h("span", { class: "soft" }, ` · ${number(topic.cold_records)} records only in the lake`)), facts(topic.table),
      table(`Lake of ${topic.topic}`, COLUMNS, topic.partitions.map((p) => cells(COLUMNS, [p.partition, number(p.log_start), number(p.local_start), number(p.lake_end), number(p.end), number(p.lag), number(p.local_start - p.log_start), bytes(p.lake_bytes), p.trouble || "–"])), "The broker does not report its progress."),
      topic.missing.length ? h("p", { class: "error" }, `The servers of these partitions are away: ${topic.missing.join(", ")}.`) : null));
    fill(list, topics.length ? topics : h("section", { class: "panel" }, h("p", {}, search.input.value ? "No tiered topic matches." : "No topic is tiered (remote.storage.enable=true): all records are in Redis.")), found.pages > 1 ? pager(found, load) : null);
  }
  fill(area, h("div", { class: "head" }, h("h1", {}, "Lake"), h("span", { class: "soft" }, "topics whose old records are moved out of Redis"), search.box), list);
  await load(1);
  return search.end;
}
