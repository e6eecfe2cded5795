import { cells, confirmByName, field, fill, h, link, notice, number, plot, stateBadge, table, whole } from "../dom.js";
import { get, part, post, remove } from "../api.js";

const POSITIONS = [{ title: "Topic", name: true }, { title: "Partition", num: true }, { title: "Committed", num: true }, { title: "End", num: true }, { title: "Lag", num: true }, { title: "Member" }];
const MEMBERS = [{ title: "Client", name: true }, { title: "Host" }, { title: "Member id", name: true }, { title: "Assignment", name: true }];
const PLAN = [{ title: "Topic", name: true }, { title: "Partition", num: true }, { title: "Before", num: true }, { title: "After", num: true }, { title: "Change", num: true }];

const assignment = (topics) => Object.entries(topics).map(([topic, list]) => h("div", {}, link(`#/topics/${part(topic)}`, topic), `: ${list.join(", ")}`));
const change = (row) => (row.before === null ? "–" : (BigInt(row.after) - BigInt(row.before) > 0n ? "+" : "") + whole(String(BigInt(row.after) - BigInt(row.before))));

function lagPlots(history) {
  return history.map((series) => h("div", {}, h("h3", {}, series.topic), plot(series.points, number, `Lag in ${series.topic}, over time`)));
}

function resetForm(group, found, done) {
  const topics = [...new Set(found.positions.map((row) => row.topic))];
  const topic = h("select", {}, h("option", { value: "" }, "all topics with offsets"), topics.map((name) => h("option", { value: name }, name)));
  const to = h("select", { onchange: shape }, [["earliest", "the beginning"], ["latest", "the end"], ["time", "a time"], ["offset", "an offset"], ["shift", "by a number of records"]].map(([key, text]) => h("option", { value: key }, text)));
  const value = h("input", { inputmode: "numeric", pattern: "-?[0-9]{1,19}", value: "0" }), when = h("input", { type: "datetime-local", step: "1" });
  const valueField = field("Number", value), whenField = field("Time (local)", when);
  const plan = h("div", {});
  function shape() { valueField.hidden = !["offset", "shift"].includes(to.value); whenField.hidden = to.value !== "time"; fill(plan); }
  const order = (execute) => ({ group, to: to.value, topic: topic.value, execute, value: to.value === "time" ? new Date(when.value).getTime() || 0 : (/^-?[0-9]+$/.test(value.value.trim()) ? value.value.trim() : "0") });
  async function preview(event) {
    event.preventDefault();
    try {
      const shown = await post("/groups/reset", order(false));
      const rows = shown.rows.map((row) => cells(PLAN, [row.topic, row.partition, whole(row.before), whole(row.after), change(row)]));
      fill(plan, table("Preview of the reset", PLAN, rows, "Nothing to change."), shown.rows.length ? h("p", {}, h("button", { class: "danger", type: "button", onclick: execute }, "Set these offsets …")) : null);
    } catch (error) { fill(plan, h("p", { class: "error" }, error.message)); }
  }
  function execute() {
    confirmByName("Set offsets", "The group continues from there.", group, async () => { await post("/groups/reset", order(true)); notice("The offsets were set."); fill(plan); done(); });
  }
  shape();
  if (found.type === "share") return h("p", { class: "soft" }, "A share group has no committed offsets to reset.");
  return h("section", { class: "panel" }, h("h2", {}, "Reset offsets"), found.members.length ? h("p", { class: "soft" }, "Only a group without members can be reset: stop its consumers first.") : null,
    h("form", { class: "row", onsubmit: preview }, field("Topic", topic), field("To", to), valueField, whenField, h("button", {}, "Preview")), plan);
}

export default async function groupPage(area, [group], _, session) {
  const head = h("div", { class: "head" }), lag = h("section", { class: "panel" }), positions = h("section", { class: "panel" }), members = h("section", { class: "panel" }), reset = h("div", {});
  fill(area, head, lag, positions, members, reset);
  async function load() {
    const found = await get("/groups/detail", { group });
    fill(head, h("h1", {}, group), stateBadge(found.state), h("span", { class: "soft" }, [found.type === "classic" ? "" : found.type, found.protocol].filter(Boolean).join(", ")), h("span", { class: "soft" }, `lag ${number(found.lag)}`),
      session.read_only ? null : h("div", { class: "push" }, h("button", { class: "danger", type: "button", onclick: () => confirmByName("Delete this group", "Its committed offsets are deleted, too.", group, async (typed) => { await remove("/groups/detail", { group, confirm: typed }); notice(`Group ${group} was deleted.`); location.hash = "#/groups"; }) }, "Delete")));
    fill(lag, h("h2", {}, "Lag over time"), found.history.length ? lagPlots(found.history) : h("p", { class: "soft" }, "Nothing was committed yet."));
    const clients = Object.fromEntries(found.members.map((member) => [member.member_id, member.client_id || member.member_id]));
    fill(positions, h("h2", {}, "Offsets"), table("Offsets", POSITIONS, found.positions.map((row) => cells(POSITIONS, [link(`#/topics/${part(row.topic)}`, row.topic), row.partition, whole(row.committed), whole(row.end), [number(row.lag), row.trouble ? h("div", { class: "told" }, row.trouble) : null], clients[row.member_id] || "–"])), "Nothing was committed."));
    fill(members, h("h2", {}, "Members"), table("Members", MEMBERS, found.members.map((member) => cells(MEMBERS, [member.client_id, member.host, h("span", { class: "mono" }, member.member_id), assignment(member.assignment)])), "No members."));
    return found;
  }
  const first = await load();
  if (!session.read_only) fill(reset, resetForm(group, first, load));
  const again = setInterval(() => { if (!document.hidden && !document.querySelector("dialog")) load().catch(() => {}); }, 5000);
  return () => clearInterval(again);
}
