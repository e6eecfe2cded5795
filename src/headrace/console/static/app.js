// The shell: navigation, login and routing. A page is a function that fills `main` and returns its cleanup.
import { fill, h } from "./dom.js";
import { came, forgetFirst, get, post, remove } from "./api.js";

const PAGES = [
  { path: "", title: "Overview", file: "overview" },
  { path: "topics", title: "Topics", file: "topics" },
  { path: "groups", title: "Groups", file: "groups" },
  { path: "nodes", title: "Nodes", file: "nodes" },
  { path: "lake", title: "Lake", file: "lake" },
  { path: "streams", title: "Streams", file: "streams" },
  { path: "security", title: "Security", file: "security" },
];
const DETAILS = { topics: "topic", groups: "group" };
const main = document.getElementById("main");
const brand = document.querySelector(".brand");
export const session = {};
let leave = null;
let turn = 0;

function route() {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { parts, query: new URLSearchParams(search || "") };
}

function header(current) {
  const links = PAGES.map((page) =>
    h("a", { href: `#/${page.path}`, "aria-current": page.path === current ? "page" : null }, page.title));
  const who = [];
  if (session.read_only) who.push(h("span", { class: "badge" }, "read-only"));
  if (session.user) who.push(session.user, h("button", { type: "button", onclick: logOut }, "Log out"));
  fill(document.getElementById("top"),
    brand,
    session.is_logged_in ? h("nav", { "aria-label": "Pages" }, links) : null,
    h("div", { class: "who" }, session.bootstrap, who));
}

async function show() {
  const mine = ++turn;
  if (leave) { leave(); leave = null; }
  const { parts, query } = route();
  const page = PAGES.find((one) => one.path === (parts[0] || "")) || PAGES[0];
  header(page.path);
  if (!session.is_logged_in) return login();
  const file = parts.length > 1 && DETAILS[page.path] ? DETAILS[page.path] : page.file;
  const { default: render } = await import(`./pages/${file}.js`);
  if (mine !== turn) return;
  const area = h("div", {});
  fill(main, area);
  document.title = `${parts[1] || page.title} · Headrace`;
  try {
    const end = await render(area, parts.slice(1), query, session);
    if (mine === turn) leave = end || null;
    else end?.();
  } catch (error) {
    if (mine === turn) fill(area, h("h1", {}, page.title), h("p", { class: "error", role: "alert" }, error.message));
  }
}

function login() {
  const user = h("input", { name: "user", autocomplete: "username", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const trouble = h("div", { role: "alert" });
  document.title = "Log in · Headrace";
  fill(main, h("form", { class: "panel login", onsubmit: async (event) => {
    event.preventDefault();
    try {
      Object.assign(session, await post("/session", { user: user.value, password: password.value }));
      await show();
    } catch (error) { fill(trouble, h("p", { class: "error" }, error.message)); }
  } },
  h("h1", {}, "Log in"), h("p", { class: "soft" }, "As your user on the broker at ", session.bootstrap, "."), trouble,
  h("div", { class: "row" }, h("label", { class: "field grow" }, "User", user)),
  h("div", { class: "row" }, h("label", { class: "field grow" }, "Password", password)),
  h("p", {}, h("button", { class: "primary" }, "Log in"))));
  user.focus();
}

async function logOut() {
  Object.assign(session, await remove("/session"));
  location.reload();
}

window.addEventListener("hashchange", async () => { await show(); main.focus(); window.scrollTo(0, 0); });
window.addEventListener("trouble", ({ detail }) => {
  const box = document.getElementById("trouble");
  const said = detail ? `${detail} The page may be stale.` : "";
  if (box.textContent !== said) fill(box, said ? h("p", { class: "error" }, said) : null);
});
window.addEventListener("login-needed", () => { session.is_logged_in = false; show(); });
try {
  Object.assign(session, came("/session") ?? await get("/session"));
  await show();
  forgetFirst();
} catch (error) {
  fill(main, h("p", { class: "error", role: "alert" }, error.message));
}
