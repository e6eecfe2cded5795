"use strict";

/** Runs checks one after the other, each within a time limit, and prints a line for each. */

const assert = require("node:assert/strict");

const LIMIT_MS = 60_000;
let failures = 0;

async function check(name, action) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not finished after ${LIMIT_MS} ms`)), LIMIT_MS);
  });
  try {
    await Promise.race([action(), limit]);
    console.log(`ok ${name}`);
  } catch (error) {
    failures += 1;
    console.error(error);
    console.log(`FAILED ${name}: ${String(error.message).replace(/\s+/g, " ")}`);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits for a state that something else brings about. */
async function until(holds) {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 20));
}

module.exports = { check, until, assert, failures: () => failures };
