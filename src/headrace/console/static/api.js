// All requests to the server: JSON under /api/v1. Errors are sentences.
export class ApiError extends Error {
  constructor(status, body) {
    super(body.error || `The server answered ${status}.`);
    this.status = status;
    this.code = body.code || "";
  }
}

// Shown on top of every page while the broker or the console is unavailable; empty: all is well.
export function tellTrouble(sentence) {
  window.dispatchEvent(new CustomEvent("trouble", { detail: sentence }));
}

async function ask(method, path, { query = {}, body, signal } = {}) {
  const params = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false));
  const text = params.toString();
  let response;
  try {
    response = await fetch(`/api/v1${path}${text ? `?${text}` : ""}`, {
      method, signal, credentials: "same-origin",
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    tellTrouble("The console does not answer.");
    throw new ApiError(0, { error: "The console does not answer." });
  }
  const answer = await response.json().catch(() => ({}));
  if (response.status === 503) tellTrouble(answer.error || "The broker does not answer.");
  else if (response.ok && path !== "/session") tellTrouble("");
  if (!response.ok) {
    if (response.status === 401 && path !== "/session") window.dispatchEvent(new Event("login-needed"));
    throw new ApiError(response.status, answer);
  }
  return answer;
}

// What came with the page saves the first requests. It is used once: later it would be old.
let first = JSON.parse(document.getElementById("first").textContent);
export const came = (path) => first[path];
export const forgetFirst = () => { first = {}; };

export const get = (path, query, signal) => ask("GET", path, { query, signal });
export const post = (path, body, query) => ask("POST", path, { body, query });
export const remove = (path, query) => ask("DELETE", path, { query });
export const part = encodeURIComponent;
