import { cells, fill, h, link, pager, table } from "../dom.js";
import { get, part } from "../api.js";

const COLUMNS = [{ title: "Partition", num: true }, { title: "Redis key", name: true }, { title: "Look at it", name: true }];

export default async function streams(area) {
  const list = h("div", {});
  async function load(page) {
    const found = await get("/streams", { page });
    const topics = found.topics.map((topic) => h("section", { class: "panel" }, h("h2", {}, link(`#/topics/${part(topic.topic)}`, topic.topic)),
      table(`Streams of ${topic.topic}`, COLUMNS, topic.keys.map((row) => cells(COLUMNS, [row.partition, h("span", { class: "mono" }, row.key), h("code", {}, `XINFO STREAM "${row.key}"`)])))));
    fill(list, topics.length ? topics : h("section", { class: "panel" }, h("p", {}, "No topic has the format stream (headrace.format=stream), which Redis code can read and write.")), found.pages > 1 ? pager(found, load) : null);
  }
  fill(area, h("div", { class: "head" }, h("h1", {}, "Streams"), h("span", { class: "soft" }, "topics that Redis code shares: an entry for each record")), list);
  await load(1);
}
