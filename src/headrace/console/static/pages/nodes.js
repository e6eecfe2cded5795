import { badge, bytes, cells, fill, h, number, table } from "../dom.js";
import { get } from "../api.js";

const NODES = [{ title: "Node", num: true }, { title: "Address" }, { title: "Role" }, { title: "Ready" }, { title: "Memory", num: true }, { title: "Connections", num: true }, { title: "Partitions led", num: true }, { title: "CPU seconds", num: true }, { title: "Configs" }];
const REDIS = [{ title: "Server", name: true }, { title: "Seen by node", num: true }, { title: "State" }, { title: "Memory", num: true }, { title: "Reconnects", num: true }, { title: "Other runs seen", num: true }];
const CONFIGS = [{ title: "Config", name: true }, { title: "Value", name: true }, { title: "Source" }];
const readiness = (ready) => (ready === null ? "–" : badge(ready ? "ready" : "not ready", ready ? "good" : "bad"));

export default async function nodes(area) {
  const list = h("div", {}), configs = h("div", {});
  async function showConfigs(node) {
    try {
      const found = await get("/nodes/configs", { node });
      fill(configs, h("section", { class: "panel" }, h("h2", {}, `Configs of node ${node}`), table("Configs", CONFIGS, found.configs.map((config) => cells(CONFIGS, [config.name, h("span", { class: "mono" }, config.value ?? "–"), config.source], { class: config.source === "default" ? null : "changed" })))));
      configs.scrollIntoView();
    } catch (error) { fill(configs, h("p", { class: "error" }, error.message)); }
  }
  async function load() {
    const found = await get("/nodes");
    const rows = found.nodes.map((node) => cells(NODES, [node.id, h("span", { class: "mono" }, `${node.host}:${node.port}`), node.is_controller ? "Controller" : "–", readiness(node.ready), bytes(node.numbers.memory), number(node.numbers.connections), number(node.numbers["partitions led"]), number(node.numbers["CPU seconds"]), h("button", { type: "button", "aria-label": `Show configs of node ${node.id}`, onclick: () => showConfigs(node.id) }, "Show")]));
    const redis = found.redis.map((row) => cells(REDIS, [h("span", { class: "mono" }, row.server), row.node, badge(row.is_up ? (row.is_full ? "full" : "up") : "down", row.is_up && !row.is_full ? "good" : "bad"), row.memory_percent ? `${number(Math.round(row.memory_percent))} %` : "no limit", number(row.reconnects), number(row.timelines)]));
    const events = Object.entries(found.events);
    fill(list, h("section", { class: "panel" }, h("h2", {}, "Nodes"), table("Nodes", NODES, rows)),
      found.redis.length ? h("section", { class: "panel" }, h("h2", {}, "Redis"), table("Redis", REDIS, redis), h("p", { class: "soft" }, found.durability ? `The embedded server's durability: ${found.durability}. ` : "", events.length ? `Trouble noticed: ${events.map(([kind, count]) => `${kind} ${number(count)}`).join(", ")}.` : "No trouble was noticed.")) : null);
  }
  fill(area, h("div", { class: "head" }, h("h1", {}, "Nodes")), list, configs);
  await load();
  const again = setInterval(() => { if (!document.hidden) load().catch(() => {}); }, 5000);
  return () => clearInterval(again);
}
