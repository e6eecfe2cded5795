import { badge, bytes, fill, h, link, number, plot, rate } from "../dom.js";
import { came, get } from "../api.js";
import { watch } from "../live.js";

const tile = (title, value, small) => h("div", { class: "tile" }, h("dt", {}, title), h("dd", {}, value, small ? h("small", {}, small) : null));

function rates(points) {
  const found = [];
  for (let at = 1; at < points.length; at += 1) {
    const [before, now] = [points[at - 1], points[at]];
    found.push([now[0], Math.max(0, now[1] - before[1]) / (now[0] - before[0] || 1)]);
  }
  return found;
}

function health(found) {
  if (found.nodes_ready === null) return badge("reachable", "good");
  const well = found.nodes_ready === found.nodes_here;
  return badge(well ? "ready" : `${found.nodes_ready} of ${found.nodes_here} ready`, well ? "good" : "bad");
}

function draw(area, found) {
  const here = found.nodes_ready !== null;
  fill(area,
    h("div", { class: "head" }, h("h1", {}, "Overview"), health(found)),
    h("dl", { class: "tiles" },
      tile("Topics", link("#/topics", number(found.topics)), `${number(found.partitions)} partitions`),
      tile("Groups", link("#/groups", number(found.groups))),
      tile("Nodes", link("#/nodes", number(found.nodes.length))),
      here ? tile("Produced", rate(found.bytes_in_per_s, bytes), `${rate(found.records_in_per_s).replace("/s", "")} records/s`) : null,
      here ? tile("Consumed", rate(found.bytes_out_per_s, bytes)) : null,
      here ? tile("Requests", rate(found.requests_per_s), `${number(found.connections)} connections`) : null),
    here ? h("section", { class: "panel" }, h("h2", {}, "Bytes produced"), plot(rates(found.rates), bytes, "Bytes produced per second, over time")) : null,
    h("div", { class: "columns" },
      h("section", { class: "panel" }, h("h2", {}, "A crash now would lose"), h("p", {}, found.crash_loss),
        found.crash_loss_bytes !== null ? h("p", { class: "soft" }, `About ${bytes(found.crash_loss_bytes)} at the current rate. `, `Durability: ${found.durability}.`) : null,
        found.gaps ? h("p", { class: "error" }, `${number(found.gaps)} gaps: records were lost before.`) : null),
      h("section", { class: "panel" }, h("h2", {}, "Cluster"),
        h("dl", { class: "facts" }, h("dt", {}, "Id"), h("dd", { class: "mono" }, found.cluster_id || "–"),
          h("dt", {}, "Nodes"), h("dd", {}, found.nodes.map((node) => h("div", {}, `${node.id}: `, h("span", { class: "mono" }, `${node.host}:${node.port}`), node.is_controller ? " · controller" : ""))),
          here ? [h("dt", {}, "Store memory"), h("dd", {}, found.memory_limit_bytes ? `${bytes(found.memory_bytes)} of ${bytes(found.memory_limit_bytes)}` : `${bytes(found.memory_bytes)}, no limit set`)] : null,
          here ? [h("dt", {}, "Failures"), h("dd", {}, number(found.failures))] : null))));
}

export default async function overview(area) {
  draw(area, came("/overview") ?? await get("/overview"));
  return watch((message) => { if (message.name === "overview") draw(area, message.data); });
}
