// Walks every page of a console with a real Chromium, twice: with axe (the CSP bypassed, to inject it), then with the
// CSP on, counting violations, errors and requests to other hosts. `node walk.mjs URL TOPIC GROUP [SCREENSHOTS]`.
import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";

const require = createRequire(import.meta.url);
const { chromium } = require("playwright-core");
const axe = require.resolve("axe-core/axe.min.js");
const [url, topic, group, pictures] = process.argv.slice(2);
const PAGES = [
  ["overview", "#/", "Overview"],
  ["topics", "#/topics", topic],
  ["messages", `#/topics/${topic}/messages`, "at the end"],
  ["partitions", `#/topics/${topic}/partitions`, "Location"],
  ["tiered", "#/topics/measurements/partitions", "in the lake"],
  ["configs", `#/topics/${topic}/configs`, "default values"],
  ["produce", `#/topics/${topic}/produce`, "tombstone"],
  ["groups", "#/groups", group],
  ["group", `#/groups/${group}`, "Lag over time"],
  ["nodes", "#/nodes", "Controller"],
  ["lake", "#/lake", "agrees"],
  ["streams", "#/streams", "Pending entries"],
  ["security", "#/security", "ACLs"],
];
const results = new Map();
const check = (name, ok, detail = "") => {
  if (!results.has(name)) results.set(name, new Set());
  if (!ok) results.get(name).add(detail);
};

async function visit(page, [name, hash, expected]) {
  await page.goto(`${url}/${hash}`);
  try {
    await page.locator("main", { hasText: expected }).waitFor({ timeout: 15000 });
  } catch {
    check("every page shows what it is about", false, `${name} lacks ${expected}: ${(await page.locator("main").innerText()).slice(0, 300)}`);
  }
  check("every page shows what it is about", true);
  if (name === "overview" && pictures) await page.locator("path.area").waitFor({ timeout: 40000 });
  if (name === "messages") await page.locator("tr.message").first().click();
  await page.waitForTimeout(300);
}

// Bytes of a stranger: markup, binary keys, other scripts, JSON nested for ever, half a megabyte.
async function hostile() {
  const context = await browser.newContext();
  const page = await context.newPage();
  const name = "a stranger's records stay text, and open";
  check(name, true);
  page.on("dialog", (dialog) => { check(name, false, `a dialog opened: ${dialog.message()}`); dialog.dismiss(); });
  page.on("pageerror", (error) => check(name, false, error.message));
  await visit(page, ["hostile", "#/topics/hostile/messages", "at the end"]);
  const rows = page.locator("tr.message");
  for (let at = 0; at < await rows.count(); at += 1) {
    await rows.nth(at).click();
    await page.locator("tr.detail").waitFor();
    await rows.nth(at).click();
  }
  check(name, (await page.locator("main img, main script, main b, main iframe").count()) === 0, "it became markup");
  await rows.filter({ hasText: "00 ff" }).click();
  await page.getByRole("button", { name: "Send again" }).click();
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.getByText("Show it").click();
  await page.locator("tr.message", { hasText: "00 ff" }).first().waitFor();
  check("a binary message sent again keeps its bytes", (await page.locator("tr.message").first().innerText()).includes("00 01 02 ff"), "they changed");
  await rows.first().click();
  await page.locator("tr.detail").getByRole("button", { name: "Avro" }).first().click();
  await page.getByLabel("Avro schema").first().fill('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": {"type": "fixed", "name": "F", "size": 399}}]}');
  await page.getByRole("button", { name: "Decode" }).first().click();
  check("Avro is decoded by a schema", (await page.locator("tr.detail .tree").first().innerText()).includes("01 02 ff"), "it is not");
  await context.close();
}

// Only keys: open a message, close it; open a dialog, leave it.
async function keyboard() {
  const page = await browser.newPage();
  await visit(page, ["keys", `#/topics/${topic}/produce`, "tombstone"]);
  await page.goto(`${url}/#/topics/${topic}/messages`);
  await page.locator("tr.message button").first().waitFor();
  await page.locator("tr.message button").first().focus();
  await page.keyboard.press("Enter");
  check("the keyboard opens a message", (await page.locator("tr.detail").count()) === 1, "it does not");
  await page.getByRole("button", { name: "Delete" }).focus();
  await page.keyboard.press("Enter");
  const asked = await page.locator("dialog input").evaluate((input) => input === document.activeElement);
  await page.keyboard.press("Escape");
  check("a dialog takes the focus, and Escape leaves it", asked && (await page.locator("dialog").count()) === 0, "it does not");
  await page.close();
}

async function brokerDies() {
  const context = await browser.newContext();
  const pages = [];
  for (const one of PAGES.filter(([name]) => ["overview", "topics", "group"].includes(name))) {
    const page = await context.newPage();
    await visit(page, one);
    pages.push([one[0], page]);
  }
  process.kill(Number(process.env.BROKER_PID), "SIGKILL");
  for (const [name, page] of pages) {
    const told = await page.locator("#trouble .error").waitFor({ timeout: 30000 }).then(() => true, () => false);
    check("pages say that the broker is gone", told, `${name} does not`);
  }
  await context.close();
}

// What only a person would do: search, send a message, and see it come in live on another tab.
async function liveAndSearch() {
  const context = await browser.newContext();
  const tail = await context.newPage();
  await visit(tail, ["tail", `#/topics/${topic}/messages`, "at the end"]);
  await tail.getByRole("button", { name: "Live" }).click();
  const sender = await context.newPage();
  await visit(sender, ["produce", `#/topics/${topic}/produce`, "tombstone"]);
  const value = `<img src=x onerror=alert(1)> needle-${Date.now()}`;
  await sender.getByLabel("Value", { exact: true }).fill(value);
  await sender.getByRole("button", { name: "Send" }).click();
  await sender.getByText("Sent: partition").waitFor();
  try {
    await tail.locator("tr.message", { hasText: value }).waitFor({ timeout: 15000 });
    check("a message that is sent comes in live, as text", (await tail.locator("main img").count()) === 0, "it became markup");
  } catch { check("a message that is sent comes in live, as text", false, "it did not come"); }
  await tail.getByRole("button", { name: "Stop" }).click();
  await tail.locator("main form select").first().selectOption("oldest");
  await tail.locator("main input[type=search]").fill("needle-");
  await tail.getByRole("button", { name: "Show", exact: true }).click();
  await tail.getByText("read, at the end").waitFor();
  check("a search finds it", (await tail.locator("tr.message").count()) === 1, `it shows ${await tail.locator("tr.message").count()}`);
  await context.close();
}

async function firstPaint() {
  const page = await browser.newPage();
  const times = [];
  for (let at = 0; at < 5; at += 1) {
    await page.goto("about:blank");
    await page.goto(`${url}/`);
    await page.locator(".tile").first().waitFor();
    times.push(await page.evaluate(() => performance.getEntriesByType("paint").find((entry) => entry.name === "first-contentful-paint")?.startTime ?? 0));
  }
  console.log(`first contentful paint ${times.map((time) => Math.round(time)).join(", ")} ms`);
  await page.close();
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox"] });
for (const [scheme, width] of [["light", 1280], ["dark", 1280], ["light", 390]]) {
  const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height: 800 }, bypassCSP: true });
  const axed = `axe finds nothing, ${scheme}, ${width} pixels`;
  for (const one of PAGES) {
    const page = await context.newPage();
    await visit(page, one);
    await page.addScriptTag({ path: axe });
    const { violations } = await page.evaluate(() => globalThis.axe.run());
    check(axed, true);
    for (const found of violations) {
      check(axed, false, `${one[0]}: ${found.id}: ${found.nodes.slice(0, 2).map((node) => node.html.slice(0, 200)).join(" | ")}`);
    }
    if (pictures) {
      mkdirSync(pictures, { recursive: true });
      await page.screenshot({ path: `${pictures}/${one[0]}-${width < 640 ? "phone" : scheme}.png` });
    }
    await page.close();
  }
  await context.close();
}
for (const viewport of [{ width: 1280, height: 800 }, { width: 390, height: 800 }]) {
  const context = await browser.newContext({ viewport });
  let bytes = 0;
  check("no errors and no violations of the CSP", true);
  const page = await context.newPage();
  page.on("console", (message) => check("no errors and no violations of the CSP", message.type() !== "error", message.text()));
  page.on("pageerror", (error) => check("no errors and no violations of the CSP", false, error.message));
  page.on("request", (request) => check("no requests to other hosts", new URL(request.url()).origin === new URL(url).origin, request.url()));
  page.on("response", async (response) => { if (!response.url().includes("/events")) bytes += (await response.body().catch(() => Buffer.alloc(0))).length; });
  await page.addInitScript(() => document.addEventListener("securitypolicyviolation", (event) => console.error(`CSP ${event.violatedDirective} ${event.blockedURI}`)));
  for (const one of PAGES) {
    await visit(page, one);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    check(`pages fit a window of ${viewport.width} pixels`, wide <= 0, `${one[0]} is ${wide} pixels wider than the window`);
    if (one[0] === "overview") check("the first page has less than 100 KB", bytes < 100_000, `it has ${bytes} bytes`);
  }
  await visit(page, PAGES[1]);
  await page.keyboard.press("Tab");
  check("the keyboard reaches the page", await page.evaluate(() => document.activeElement !== document.body), "nothing has the focus after Tab");
  await context.close();
}
await liveAndSearch().catch((error) => check("search and live tail", false, error.message));
await hostile().catch((error) => check("a stranger's records stay text, and open", false, error.message));
await keyboard().catch((error) => check("the keyboard opens a message", false, error.message));
await firstPaint();
if (process.env.BROKER_PID) await brokerDies().catch((error) => check("pages say that the broker is gone", false, error.message));
console.log(`version Chromium ${browser.version()}`);
await browser.close();
let failed = false;
for (const [name, troubles] of results) {
  if (!troubles.size) console.log(`ok ${name}`);
  for (const trouble of troubles) { failed = true; console.log(`FAILED ${name}: ${trouble.replaceAll("\n", " ")}`); }
}
process.exit(failed ? 1 : 0);
