// Live values: one event stream for all tabs of a browser. The tab that holds the lock shares it with the others.
import { tellTrouble } from "./api.js";

const channel = "BroadcastChannel" in window ? new BroadcastChannel("headrace-console") : null;
const listeners = new Set();
let started = false;
let closing = false;

window.addEventListener("pagehide", () => { closing = true; });

function tell(message) {
  if (message.name === "trouble") tellTrouble(message.data.error);
  if (message.name === "overview") tellTrouble("");
  for (const listener of listeners) listener(message);
}

function open() {
  return new Promise(() => {
    const source = new EventSource("/api/v1/events");
    source.onerror = () => { if (!closing) tell({ name: "trouble", data: { error: "The console does not answer." } }); };
    for (const name of ["overview", "trouble"]) {
      source.addEventListener(name, (event) => {
        const message = { name, data: JSON.parse(event.data) };
        tell(message);
        channel?.postMessage(message);
      });
    }
  });
}

function start() {
  if (started) return;
  started = true;
  if (channel) channel.onmessage = (event) => tell(event.data);
  if (navigator.locks && channel) navigator.locks.request("headrace-console-events", open);
  else open();
}

export function watch(listener) {
  start();
  listeners.add(listener);
  return () => listeners.delete(listener);
}
