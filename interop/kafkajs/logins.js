"use strict";

/** Each mechanism over TLS, with the right secret and with a wrong or expired one. */

const fs = require("node:fs");
const { Kafka, logLevel } = require("kafkajs");
const { assert } = require("./checks");

const MECHANISMS = ["plain", "scram-sha-256", "scram-sha-512", "oauthbearer"];

async function connect(mechanism, secret) {
  const sasl =
    mechanism === "oauthbearer"
      ? { mechanism, oauthBearerProvider: async () => ({ value: secret }) }
      : { mechanism, username: process.env.LOGIN_USER, password: secret };
  const admin = new Kafka({
    clientId: "interop",
    brokers: [process.env.LOGIN_ADDRESS],
    ssl: { ca: [fs.readFileSync(process.env.LOGIN_CA, "utf-8")], servername: "localhost" },
    sasl,
    logLevel: logLevel.NOTHING,
    retry: { retries: 0 },
  }).admin();
  await admin.connect();
  try {
    await admin.describeCluster();
  } finally {
    await admin.disconnect();
  }
}

async function logsIn(mechanism) {
  if (mechanism === "oauthbearer") {
    // KafkaJS does not read what is said of a bad token: it goes on, and its connection is closed.
    await connect(mechanism, process.env.LOGIN_TOKEN);
    await assert.rejects(connect(mechanism, process.env.LOGIN_EXPIRED_TOKEN));
    return;
  }
  await connect(mechanism, process.env.LOGIN_PASSWORD);
  await assert.rejects(
    connect(mechanism, "wrong"),
    (error) => /SASLAuthenticationError/.test(error.name) || /authentication failed/i.test(error.message),
  );
}

module.exports = { MECHANISMS, logsIn };
