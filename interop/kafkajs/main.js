"use strict";

/** KafkaJS against the broker whose address is the first argument. */

const kafkajs = require("kafkajs");
const SnappyCodec = require("kafkajs-snappy");
const lz4 = require("lz4js");
const { ZstdCodec } = require("zstd-codec");
const { check, until, assert, failures } = require("./checks");
const { MECHANISMS, logsIn } = require("./logins");
const transactions = require("./transactions");

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = kafkajs;
const kafka = new Kafka({ clientId: "interop", brokers: [process.argv[2]], logLevel: logLevel.WARN });
const COUNT = 200;

/** KafkaJS brings gzip; the others are plugged in, from packages without native code. */
async function plugCodecs() {
  const zstd = await new Promise((resolve) => ZstdCodec.run((codec) => resolve(new codec.Simple())));
  const codec = (compress, decompress) => () => ({
    compress: async (encoder) => Buffer.from(compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(decompress(buffer)),
  });
  CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec;
  CompressionCodecs[CompressionTypes.LZ4] = codec((data) => lz4.compress(data), (data) => lz4.decompress(data));
  CompressionCodecs[CompressionTypes.ZSTD] = codec((data) => zstd.compress(data), (data) => zstd.decompress(data));
}

async function withAdmin(action) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await action(admin);
  } finally {
    await admin.disconnect();
  }
}

async function withProducer(settings, action) {
  const producer = kafka.producer(settings);
  await producer.connect();
  try {
    return await action(producer);
  } finally {
    await producer.disconnect();
  }
}

const createTopic = (topic, numPartitions) =>
  withAdmin((admin) => admin.createTopics({ topics: [{ topic, numPartitions }] }));

/** Fills each partition with values 0, 1, 2, ... whose timestamps are 1000, 2000, 3000, ... */
const fill = (topic, partitions, count) =>
  withProducer({}, (producer) => {
    const messages = [];
    for (let partition = 0; partition < partitions; partition++) {
      for (let n = 0; n < count; n++) messages.push({ partition, value: `${n}`, timestamp: `${1000 * (n + 1)}` });
    }
    return producer.send({ topic, messages });
  });

/** A running member of a group and what it has seen. */
async function startMember(groupId, topic, settings = {}) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 300, maxWaitTimeInMs: 500, ...settings });
  const member = { consumer, records: [], partitions: [], stop: () => consumer.disconnect() };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => (member.partitions = payload.memberAssignment[topic] ?? []));
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    autoCommit: settings.autoCommit ?? false,
    eachMessage: async ({ partition, message }) => void member.records.push({ partition, ...message }),
  });
  return member;
}

async function admin() {
  await withAdmin(async (admin) => {
    const retention = (value) => [{ name: "retention.ms", value }];
    await admin.createTopics({ topics: [{ topic: "admin", numPartitions: 2, configEntries: retention("60000") }] });
    assert((await admin.listTopics()).includes("admin"));
    const { topics } = await admin.fetchTopicMetadata({ topics: ["admin"] });
    assert.equal(topics[0].partitions.length, 2);
    await admin.createPartitions({ topicPartitions: [{ topic: "admin", count: 3 }] });
    const resource = { type: ConfigResourceTypes.TOPIC, name: "admin" };
    await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: retention("70000") }] });
    const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [resource] });
    assert.equal(resources[0].configEntries.find((entry) => entry.configName === "retention.ms").configValue, "70000");
    const cluster = await admin.describeCluster();
    assert.equal(cluster.brokers.length, 1);
    assert.equal(cluster.controller, cluster.brokers[0].nodeId);
    await admin.deleteTopics({ topics: ["admin"] });
    assert(!(await admin.listTopics()).includes("admin"));
  });
}

async function deleteRecords() {
  await createTopic("records", 1);
  await fill("records", 1, 5);
  await withAdmin(async (admin) => {
    await admin.fetchTopicOffsets("records"); // KafkaJS deletes records only of topics whose metadata it has at hand
    await admin.deleteTopicRecords({ topic: "records", partitions: [{ partition: 0, offset: "3" }] });
    assert.deepEqual(await admin.fetchTopicOffsets("records"), [{ partition: 0, offset: "5", high: "5", low: "3" }]);
  });
}

/** Keys, values and headers that are absent, empty, short and long come back byte for byte. */
async function roundTrip(name, compression, settings) {
  const topic = `round-trip-${name}`;
  await createTopic(topic, 2);
  const messages = [];
  for (let n = 0; n < COUNT; n++) {
    messages.push({
      partition: n % 2,
      key: n % 5 === 0 ? null : n % 5 === 1 ? Buffer.alloc(0) : Buffer.from(`key-${n}`),
      value: n % 7 === 0 ? null : n % 7 === 1 ? Buffer.alloc(0) : Buffer.alloc(n * 3, n),
      headers: n % 3 === 0 ? { h: Buffer.from("first"), ü: Buffer.alloc(0) } : {},
      timestamp: `${1_700_000_000_000 + n}`,
    });
  }
  await withProducer(settings, (producer) => producer.send({ topic, compression, messages }));
  const member = await startMember(topic, topic);
  await until(() => member.records.length >= COUNT);
  await member.stop();
  assert.equal(member.records.length, COUNT);
  for (const got of member.records) {
    const { key, value, headers, timestamp } = messages[Number(got.offset) * 2 + got.partition];
    assert.deepEqual({ key: got.key, value: got.value, timestamp: got.timestamp }, { key, value, timestamp });
    assert.deepEqual({ ...got.headers }, headers);
  }
}

async function autoCreated() {
  const first = { topic: "unheard-of", messages: [{ value: "first" }] };
  const sent = await withProducer({}, (producer) => producer.send(first));
  assert.equal(sent[0].baseOffset, "0");
}

async function twoMembers() {
  await createTopic("two", 4);
  await fill("two", 4, 50);
  const first = await startMember("two", "two");
  await until(() => first.partitions.length === 4);
  const second = await startMember("two", "two");
  await until(() => first.partitions.length === 2 && second.partitions.length === 2);
  assert.deepEqual([...first.partitions, ...second.partitions].sort(), [0, 1, 2, 3]);
  const seen = () => new Set([...first.records, ...second.records].map((r) => `${r.partition}:${r.offset}`)).size;
  await until(() => seen() === 200);
  await withAdmin(async (admin) => {
    const { groups } = await admin.describeGroups(["two"]);
    assert.equal(groups[0].state, "Stable");
    assert.equal(groups[0].members.length, 2);
    assert((await admin.listGroups()).groups.some((group) => group.groupId === "two"));
  });
  await second.stop();
  await until(() => first.partitions.length === 4);
  await first.stop();
}

async function resumes() {
  await createTopic("resume", 1);
  await fill("resume", 1, 10);
  const first = await startMember("resume", "resume");
  await until(() => first.records.length === 10);
  await first.consumer.commitOffsets([{ topic: "resume", partition: 0, offset: "4", metadata: "half-way" }]);
  await first.stop();
  const second = await startMember("resume", "resume");
  await until(() => second.records.length === 6);
  await second.stop();
  assert.equal(second.records[0].offset, "4");
  await withAdmin(async (admin) => {
    const [{ partitions }] = await admin.fetchOffsets({ groupId: "resume", topics: ["resume"] });
    assert.equal(partitions[0].offset, "4");
    assert.equal(partitions[0].metadata, "half-way");
    await admin.resetOffsets({ groupId: "resume", topic: "resume", earliest: true });
    await admin.setOffsets({ groupId: "resume", topic: "resume", partitions: [{ partition: 0, offset: "2" }] });
    await admin.deleteGroups(["resume"]);
  });
}

async function autoCommit() {
  await createTopic("auto", 1);
  await fill("auto", 1, 5);
  const member = await startMember("auto", "auto", { autoCommit: true });
  await until(() => member.records.length === 5);
  await member.stop();
  const [{ partitions }] = await withAdmin((admin) => admin.fetchOffsets({ groupId: "auto", topics: ["auto"] }));
  assert.equal(partitions[0].offset, "5");
}

async function seek() {
  await createTopic("seek", 1);
  await fill("seek", 1, 10);
  const [found] = await withAdmin((admin) => admin.fetchTopicOffsetsByTimestamp("seek", 3500));
  assert.equal(found.offset, "3");
  const member = await startMember("seek", "seek");
  await until(() => member.records.length === 10);
  member.records.length = 0;
  member.consumer.seek({ topic: "seek", partition: 0, offset: found.offset });
  await until(() => member.records.length === 7);
  assert.equal(member.records[0].offset, "3");
  await member.stop();
}

async function main() {
  console.log(`version ${require("kafkajs/package.json").version}`);
  await plugCodecs();
  await check("topics, partitions, configs and cluster", admin);
  await check("delete records", deleteRecords);
  for (const name of ["None", "GZIP", "Snappy", "LZ4", "ZSTD"]) {
    await check(`produce and read back (${name.toLowerCase()})`, () => roundTrip(name, CompressionTypes[name], {}));
  }
  const idempotent = () => roundTrip("idempotent", CompressionTypes.None, { idempotent: true });
  await check("idempotent produce and read back", idempotent);
  await check("topic created by the first produce", autoCreated);
  await check("two members", twoMembers);
  await check("group resumes where it committed", resumes);
  await check("auto commit", autoCommit);
  await check("seek by offset and time", seek);
  const tools = { kafka, withAdmin, createTopic, fill, startMember };
  await check("transactions, committed and aborted", () => transactions.committedAndAborted(tools));
  await check("offsets in a transaction", () => transactions.offsets(tools));
  await check("a transaction in the format stream is rejected", () => transactions.notInStreams(tools));
  for (const mechanism of MECHANISMS) {
    await check(`login over TLS (${mechanism}), and a wrong secret`, () => logsIn(mechanism));
  }
  process.exit(failures() === 0 ? 0 : 1);
}

main();
