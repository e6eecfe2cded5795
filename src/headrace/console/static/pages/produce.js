import { field, fill, h, link, whole } from "../dom.js";
import { part, post } from "../api.js";

export default function produce(area, topic) {
  const again = JSON.parse(sessionStorage.getItem("send-again") || "null");
  sessionStorage.removeItem("send-again");
  const key = h("textarea", { rows: "2", value: again?.key ?? "" });
  const value = h("textarea", { rows: "8", value: again?.value ?? "" });
  const headers = h("textarea", { rows: "3", placeholder: "name=value", value: (again?.headers || []).map(([name, content]) => (content === null ? name : `${name}=${content}`)).join("\n") });
  const partition = h("select", {}, h("option", { value: "" }, "by the key"), topic.partitions.map((p) => h("option", { value: p.partition }, p.partition)));
  const noKey = h("input", { type: "checkbox", checked: again ? again.key === null : true });
  const noValue = h("input", { type: "checkbox", checked: again ? again.value === null : false });
  const isBase64 = h("input", { type: "checkbox", checked: Boolean(again?.base64) });
  const result = h("div", { role: "status" });
  key.addEventListener("input", () => { noKey.checked = !key.value; });
  value.addEventListener("input", () => { noValue.checked = false; });
  async function send(event) {
    event.preventDefault();
    const lines = headers.value.split("\n").filter((line) => line.trim());
    const pairs = lines.map((line) => { const at = line.indexOf("="); return at < 0 ? [line, null] : [line.slice(0, at), line.slice(at + 1)]; });
    try {
      const sent = await post(`/topics/${part(topic.name)}/messages`, {
        key: noKey.checked ? null : key.value, value: noValue.checked ? null : value.value, headers: pairs,
        partition: partition.value === "" ? null : Number(partition.value), base64: isBase64.checked,
      });
      fill(result, h("p", {}, "Sent: partition ", sent.partition, ", offset ", whole(sent.offset), ". ", link(`#/topics/${part(topic.name)}/messages?from=offset&partition=${sent.partition}&offset=${sent.offset}`, "Show it")));
    } catch (error) { fill(result, h("p", { class: "error" }, error.message)); }
  }
  fill(area, h("form", { onsubmit: send },
    h("div", { class: "row" }, field("Key", key, "grow"), h("label", { class: "check side" }, noKey, "no key")),
    h("div", { class: "row" }, field("Value", value, "grow"), h("label", { class: "check side" }, noValue, "no value (tombstone)")),
    h("div", { class: "row" }, field("Headers, one name=value per line", headers, "grow"), field("Partition", partition, "side")),
    h("div", { class: "row" }, h("button", { class: "primary" }, "Send"), h("label", { class: "check" }, isBase64, "key, value and headers are base64")), result));
  return undefined;
}
