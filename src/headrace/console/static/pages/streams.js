import { bytes, cells, fill, h, link, number, pager, searchField, table } from "../dom.js";
import { get, part } from "../api.js";

const KEYS = [{ title: "Partition", num: true }, { title: "Redis key", name: true }, { title: "Entries", num: true }, { title: "Added", num: true }, { title: "First id" }, { title: "Last id" }, { title: "Memory", num: true }];
const GROUPS = [{ title: "Redis group", name: true }, { title: "Partition", num: true }, { title: "Consumers", num: true }, { title: "Pending", num: true }, { title: "Last delivered" }, { title: "Lag", num: true }];
const PENDING = [{ title: "Entry" }, { title: "Group", name: true }, { title: "Consumer", name: true }, { title: "Idle", num: true }, { title: "Deliveries", num: true }];
const mono = (text) => h("span", { class: "mono" }, text ?? "–");
const idle = (ms) => (ms < 10000 ? `${number(ms)} ms` : ms < 600000 ? `${number(Math.round(ms / 1000))} s` : `${number(Math.round(ms / 60000))} min`);

function shown(topic) {
  const keys = topic.keys.map((row) => cells(KEYS, [row.partition, mono(row.key), number(row.entries), number(row.entries_added), mono(row.first_id), mono(row.last_id), bytes(row.size_bytes)]));
  const groups = topic.keys.flatMap((row) => row.groups.map((group) => cells(GROUPS, [group.name, row.partition, number(group.consumers), number(group.pending), mono(group.last_delivered), number(group.lag)])));
  const pending = topic.keys.flatMap((row) => row.groups.flatMap((group) => group.oldest.map((entry) => cells(PENDING, [mono(entry.id), group.name, entry.consumer, idle(entry.idle_ms), number(entry.deliveries)]))));
  return h("section", { class: "panel" }, h("h2", {}, link(`#/topics/${part(topic.topic)}`, topic.topic)), table(`Streams of ${topic.topic}`, KEYS, keys, "The broker does not report it."),
    topic.missing.length ? h("p", { class: "error" }, `The servers of these partitions are away: ${topic.missing.join(", ")}.`) : null,
    groups.length ? [h("h3", {}, "Redis consumer groups"), table(`Redis groups of ${topic.topic}`, GROUPS, groups)] : null,
    pending.length ? h("details", {}, h("summary", {}, `Pending entries, the oldest ${number(pending.length)}`), table(`Pending entries of ${topic.topic}`, PENDING, pending)) : null);
}

export default async function streams(area) {
  const list = h("div", {});
  const search = searchField("clicks", () => load(1));
  async function load(page) {
    const found = await get("/streams", { page, search: search.input.value });
    fill(list, found.topics.length ? found.topics.map(shown) : h("section", { class: "panel" }, h("p", {}, search.input.value ? "No topic of format stream matches." : "No topic has the format stream (headrace.format=stream), which Redis code can read and write.")), found.pages > 1 ? pager(found, load) : null);
  }
  fill(area, h("div", { class: "head" }, h("h1", {}, "Streams"), h("span", { class: "soft" }, "topics shared with Redis code: one entry per record"), search.box), list);
  await load(1);
  return search.end;
}
