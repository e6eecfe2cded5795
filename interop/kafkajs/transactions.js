"use strict";

/** Transactions as KafkaJS uses them: version 1 of the protocol. */

const { assert, until } = require("./checks");

async function withTransactional({ kafka }, transactionalId, action) {
  const producer = kafka.producer({ transactionalId, maxInFlightRequests: 1, idempotent: true });
  await producer.connect();
  try {
    await action(producer);
  } finally {
    await producer.disconnect();
  }
}

const valuesOf = (member) => member.records.map((record) => record.value.toString());

/** Aborted records are there, and only who asks for them reads them. */
async function committedAndAborted(tools) {
  await tools.createTopic("transactions", 1);
  const sent = [];
  await withTransactional(tools, "t", async (producer) => {
    for (const end of ["commit", "abort", "commit", "abort", "commit"]) {
      const transaction = await producer.transaction();
      for (let n = 0; n < 3; n++) {
        sent.push(`${end} ${sent.length}`);
        await transaction.send({ topic: "transactions", messages: [{ value: sent.at(-1) }] });
      }
      await transaction[end]();
    }
  });
  const committed = sent.filter((value) => value.startsWith("commit"));
  const careful = await tools.startMember("careful", "transactions");
  const careless = await tools.startMember("careless", "transactions", { readUncommitted: true });
  await until(() => valuesOf(careful).includes(sent.at(-1)) && valuesOf(careless).includes(sent.at(-1)));
  await careful.stop();
  await careless.stop();
  assert.deepEqual(valuesOf(careful), committed);
  assert.deepEqual(valuesOf(careless), sent);
}

/** Offsets are the group's once the transaction is committed, and never if it is aborted. */
async function offsets(tools) {
  await tools.createTopic("transaction-offsets", 1);
  await tools.fill("transaction-offsets", 1, 5);
  const committed = async (groupId) => {
    const wanted = { groupId, topics: ["transaction-offsets"] };
    const [{ partitions }] = await tools.withAdmin((admin) => admin.fetchOffsets(wanted));
    return partitions[0].offset;
  };
  await withTransactional(tools, "offsets", async (producer) => {
    for (const [end, groupId, offset] of [["commit", "kept", "2"], ["abort", "dropped", "4"], ["commit", "kept", "3"]]) {
      const transaction = await producer.transaction();
      const topics = [{ topic: "transaction-offsets", partitions: [{ partition: 0, offset }] }];
      await transaction.sendOffsets({ consumerGroupId: groupId, topics });
      await transaction[end]();
      // KafkaJS does not ask for stable offsets, and a transaction's end is answered before its offsets count.
      if (end === "commit") await until(async () => (await committed(groupId)) === offset);
    }
  });
  assert.equal(await committed("dropped"), "-1"); // the abort is done with, since a later transaction is
}

/** Readers of Redis would see what is not committed. */
async function notInStreams(tools) {
  const configEntries = [{ name: "headrace.format", value: "stream" }];
  await tools.withAdmin((admin) => admin.createTopics({ topics: [{ topic: "shared-stream", configEntries }] }));
  await withTransactional(tools, "streams", async (producer) => {
    const transaction = await producer.transaction();
    const sending = transaction.send({ topic: "shared-stream", messages: [{ value: "x" }] });
    await assert.rejects(sending, { type: "UNSUPPORTED_FOR_MESSAGE_FORMAT" });
    await transaction.abort();
  });
}

module.exports = { committedAndAborted, offsets, notInStreams };
