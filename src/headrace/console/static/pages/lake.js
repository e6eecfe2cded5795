import { cells, fill, h, link, number, pager, table } from "../dom.js";
import { get, part } from "../api.js";

const COLUMNS = [{ title: "Partition", num: true }, { title: "Log start", num: true }, { title: "Local start", num: true }, { title: "Archived up to", num: true }, { title: "In the lake alone", num: true }, { title: "Trouble", name: true }];

export default async function lake(area) {
  const list = h("div", {});
  async function load(page) {
    const found = await get("/lake", { page });
    const topics = found.topics.map((topic) => h("section", { class: "panel" }, h("h2", {}, link(`#/topics/${part(topic.topic)}/partitions`, topic.topic), h("span", { class: "soft" }, ` · ${number(topic.cold_records)} records in the lake alone`)),
      table(`Lake of ${topic.topic}`, COLUMNS, topic.partitions.map((p) => cells(COLUMNS, [p.partition, number(p.log_start), number(p.local_start), number(p.lake_end), number(p.local_start - p.log_start), p.trouble || "–"])), "The broker does not say how far it is.")));
    fill(list, topics.length ? topics : h("section", { class: "panel" }, h("p", {}, "No topic is tiered (remote.storage.enable=true): all records are in Redis.")), found.pages > 1 ? pager(found, load) : null);
  }
  fill(area, h("div", { class: "head" }, h("h1", {}, "Lake"), h("span", { class: "soft" }, "topics whose old records leave Redis")), list);
  await load(1);
}
