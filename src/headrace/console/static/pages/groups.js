import { cells, field, fill, h, link, number, pager, stateBadge, table } from "../dom.js";
import { get, part } from "../api.js";

const COLUMNS = [{ title: "Group", name: true }, { title: "State" }, { title: "Type" }, { title: "Topics", num: true }, { title: "Lag in records", num: true }];

export default async function groups(area, _, query) {
  let page = 1, wait = null, asked = 0;
  const search = h("input", { type: "search", value: query.get("search") || "", placeholder: "billing", oninput: () => { clearTimeout(wait); page = 1; wait = setTimeout(load, 200); } });
  const state = h("select", { onchange: () => { page = 1; load(); } }, h("option", { value: "" }, "any"), ["Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"].map((name) => h("option", { value: name }, name)));
  const list = h("div", {});
  async function load() {
    const mine = ++asked;
    try {
      const found = await get("/groups", { search: search.value, state: state.value, page });
      if (mine !== asked) return;
      page = found.page;
      const rows = found.groups.map((group) => cells(COLUMNS, [link(`#/groups/${part(group.group)}`, group.group || "(no name)"), stateBadge(group.state), group.type || group.protocol_type || "–", number(group.topics), [number(group.lag), group.trouble ? h("div", { class: "told" }, group.trouble) : null]]));
      fill(list, found.trouble ? h("p", { class: "error" }, `Some groups may be missing. ${found.trouble}`) : null, table("Groups", COLUMNS, rows, "No groups."), pager(found, (to) => { page = to; load(); }));
    } catch (error) { if (mine === asked) fill(list, h("p", { class: "error" }, error.message)); }
  }
  fill(area, h("div", { class: "head" }, h("h1", {}, "Groups")),
    h("section", { class: "panel" }, h("div", { class: "row" }, field("Search", search, "grow"), field("State", state)), list));
  await load();
  const again = setInterval(() => { if (!document.hidden) load(); }, 10000);
  return () => { clearInterval(again); clearTimeout(wait); };
}
