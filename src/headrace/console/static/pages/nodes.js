import { badge, bytes, cells, fill, h, number, table } from "../dom.js";
import { get } from "../api.js";

const NODES = [{ title: "Node", num: true }, { title: "Address" }, { title: "Role" }, { title: "Ready" }, { title: "Memory", num: true }, { title: "Connections", num: true }, { title: "Partitions led", num: true }, { title: "CPU seconds", num: true }, { title: "Configs" }];
const REDIS = [{ title: "Server", name: true }, { title: "Seen by node", num: true }, { title: "State" }, { title: "Memory", num: true }, { title: "Reconnects", num: true }, { title: "Restarts and failovers", num: true }];
const SERVERS = [{ title: "Server", name: true }, { title: "Version" }, { title: "Memory", num: true }, { title: "Limit", num: true }, { title: "When full" }, { title: "On disk", name: true }, { title: "Replicas", name: true }, { title: "Clients", num: true }, { title: "Uptime", num: true }];
const CONFIGS = [{ title: "Config", name: true }, { title: "Value", name: true }, { title: "Source" }];
const readiness = (ready) => (ready === null ? "–" : badge(ready ? "ready" : "not ready", ready ? "good" : "bad"));

const memory = (row) => (row.limit_bytes ? `${number(row.memory_percent)} % of ${bytes(row.limit_bytes)}` : bytes(row.used_bytes));
const span = (s) => (s < 120 ? `${s} s` : s < 7200 ? `${Math.round(s / 60)} min` : s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`);
const disk = (one) => [
  one.append_only ? ["append-only file ", badge(one.write_status || "–", one.write_status === "ok" ? "good" : "bad"), one.rewriting ? " being rewritten" : ""] : "no append-only file",
  h("div", { class: "soft small" }, one.last_save_s ? `snapshot ${span(Math.max(0, Math.round(Date.now() / 1000 - one.last_save_s)))} ago: ${one.save_status}` : "no snapshot"),
];
const replicas = (one) => (one.replicas.length ? one.replicas.map((copy) => h("div", {}, h("span", { class: "mono" }, copy.address), " ", badge(copy.state, copy.state === "online" ? "good" : "warn"), copy.behind_bytes ? ` ${bytes(copy.behind_bytes)} behind` : "")) : "none");

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
    const redis = found.redis.map((row) => cells(REDIS, [h("span", { class: "mono" }, row.server), row.node, badge(row.is_up ? (row.is_full ? "full" : "up") : "down", row.is_up && !row.is_full ? "good" : "bad"), memory(row), number(row.reconnects), number(row.timelines)]));
    const events = Object.entries(found.events).filter(([, count]) => count);
    const servers = found.servers.map((one) => cells(SERVERS, [h("span", { class: "mono" }, one.server), one.version, bytes(one.used_bytes), one.limit_bytes ? bytes(one.limit_bytes) : "none", one.policy, disk(one), replicas(one), number(one.clients), span(one.uptime_s)]));
    fill(list, h("section", { class: "panel" }, h("h2", {}, "Nodes"), table("Nodes", NODES, rows)),
      servers.length ? h("section", { class: "panel" }, h("h2", {}, servers.length > 1 ? `Store: ${servers.length} servers` : "Store"), table("Store", SERVERS, servers)) : null,
      found.redis.length ? h("section", { class: "panel" }, h("h2", {}, "As the nodes see it"), table("As the nodes see it", REDIS, redis), h("p", { class: "soft" }, found.durability ? `The embedded server's durability: ${found.durability}. ` : "", events.length ? `Problems detected: ${events.map(([kind, count]) => `${kind} ${number(count)}`).join(", ")}.` : "No problems detected.")) : null);
  }
  fill(area, h("div", { class: "head" }, h("h1", {}, "Nodes")), list, configs);
  await load();
  const again = setInterval(() => { if (!document.hidden) load().catch(() => {}); }, 5000);
  return () => clearInterval(again);
}
