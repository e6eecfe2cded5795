import { badge, cells, fill, h, number, table } from "../dom.js";
import { get } from "../api.js";

const USERS = [{ title: "User", name: true }, { title: "Logs in with", name: true }];
const ACLS = [{ title: "Principal", name: true }, { title: "May" }, { title: "Operation" }, { title: "On" }, { title: "Name", name: true }, { title: "From host" }];
const QUOTAS = [{ title: "Who", name: true }, { title: "Limits", name: true }];

function section(title, rows, trouble, columns, row) {
  return h("section", { class: "panel" }, h("h2", {}, title), rows === null ? h("p", { class: "soft" }, trouble) : table(title, columns, rows.map(row), "None."));
}

export default async function security(area) {
  const found = await get("/security");
  fill(area, h("div", { class: "head" }, h("h1", {}, "Security")),
    section("Users", found.users, found.users_trouble, USERS, (user) => cells(USERS, [user.name, Object.keys(user.mechanisms).join(", ")])),
    section("ACLs", found.acls, found.acls_trouble, ACLS, (acl) => cells(ACLS, [acl.principal, badge(acl.permission, acl.permission === "deny" ? "bad" : "good"), acl.operation, acl.resource, [acl.name, acl.pattern === "prefixed" ? " …" : ""], acl.host])),
    section("Quotas", found.quotas, found.quotas_trouble, QUOTAS, (quota) => cells(QUOTAS, [Object.entries(quota.entity).map(([type, name]) => `${type} ${name ?? "(default)"}`).join(", "), Object.entries(quota.values).map(([key, value]) => `${key} ${number(value)}`).join(", ")])));
}
