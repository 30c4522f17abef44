// Calls the service by node-redis and ioredis. Arguments: port, token. The tests run it.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { createClient } from "redis";
import Redis from "ioredis";

const [port, token] = [Number(process.argv[2]), process.argv[3]];
const version = (name) => createRequire(import.meta.url)(`./node_modules/${name}/package.json`).version;

for (const RESP of [3, 2]) {
  const client = createClient({ RESP, socket: { host: "127.0.0.1", port, reconnectStrategy: false }, password: token, name: `node${RESP}` });
  await client.connect();
  assert.equal(await client.ping(), "PONG");
  assert.equal(await client.clientGetName(), `node${RESP}`);
  const reply = await client.sendCommand(["RL.CHECK", "search", `node${RESP}`, "acme"]);
  if (RESP === 3) assert.deepEqual([reply.allowed, reply.rule, reply.limit, reply.remaining], [true, "search", 2, 1]);
  else assert.deepEqual(reply, [1, 2, 1, 0, 10000]);
  const replies = await Promise.all([1, 2, 3].map(() => client.sendCommand(["CL.THROTTLE", `node${RESP}`, "1", "1", "60"])));
  assert.deepEqual(replies.map((reply) => reply[0]), [0, 0, 1]);
  await assert.rejects(client.sendCommand(["RL.CHECK", "serch", "1"]), /unknown-rule/);
  await client.close();
}
const wrong = createClient({ socket: { host: "127.0.0.1", port, reconnectStrategy: false }, password: "x".repeat(16) });
wrong.on("error", () => {});
await assert.rejects(wrong.connect(), /WRONGPASS/);
console.log("node-redis", version("redis"));

const client = new Redis({ host: "127.0.0.1", port, password: token, connectionName: "io", retryStrategy: null });
assert.equal(await client.ping(), "PONG");
assert.equal(await client.client("GETNAME"), "io");
const reply = await client.call("RL.CHECK", "search", "io", "acme");
// It speaks RESP 3, and returns a map as a list of names and values, with 1 for true.
assert.deepEqual(reply.slice(0, 8), ["allowed", 1, "rule", "search", "limit", 2, "remaining", 1]);
const replies = await client.pipeline([1, 2, 3].map(() => ["call", "CL.THROTTLE", "io", "1", "1", "60"])).exec();
assert.deepEqual(replies.map(([, reply]) => reply[0]), [0, 0, 1]);
await assert.rejects(client.call("RL.CHECK", "serch", "1"), /unknown-rule/);
await client.quit();
console.log("ioredis", version("ioredis"));
