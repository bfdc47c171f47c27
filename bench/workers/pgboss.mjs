// pg-boss: fill a queue, or drain it with one worker.
//
// node pgboss.mjs fill|drain async|groups|fifo URL MESSAGES CAP
//
// A worker fetches `batchSize` jobs, hands them to its handler, completes them in one statement, and
// with burstWhenBatchFull goes on without waiting for its polling interval. The shortest interval it
// takes is 0.5 s. "groups": groupConcurrency 1, a group per channel. "fifo": a queue with the policy
// key_strict_fifo and a key per channel; every batch is full because batchSize is the number of keys.

import pg from "pg";
import { PgBoss } from "pg-boss";
import { Tally, channelOf, yieldOnce } from "./tally.mjs";

const [action, kind, url, messages, cap] = process.argv.slice(2);
const N = Number(messages);
const limited = kind !== "async";
const POLL = { pollingIntervalSeconds: 0.5, burstWhenBatchFull: true };
const OPTIONS = {
  async: { ...POLL, batchSize: 1000, localConcurrency: 2 },
  groups: { ...POLL, batchSize: 1000, localConcurrency: 8, groupConcurrency: 1 },
  fifo: { ...POLL, batchSize: 1000, localConcurrency: 1 },
}[kind];

async function start() {
  const boss = new PgBoss({ connectionString: url, max: 20, schedule: false });
  boss.on("error", (error) => {
    console.error(error);
    process.exit(1);
  });
  await boss.start();
  return boss;
}

async function fill() {
  const boss = await start();
  await boss.createQueue("noop", kind === "fifo" ? { policy: "key_strict_fifo" } : {});
  for (let first = 0; first < N; first += 5000) {
    const jobs = [];
    for (let i = first; i < Math.min(N, first + 5000); i++) {
      const channel = channelOf(i, N);
      const job = { data: limited ? { i, channel } : { i } };
      if (kind === "groups") job.group = { id: channel };
      if (kind === "fifo") job.singletonKey = channel;
      jobs.push(job);
    }
    await boss.insert("noop", jobs);
  }
  await boss.stop();
}

async function drain() {
  const observer = new pg.Client({ connectionString: url });
  await observer.connect();
  const boss = await start();
  const tally = new Tally(N, Number(cap));
  const one = async ({ data: { channel } }) => {
    tally.enter(channel);
    await yieldOnce();
    tally.leave(channel);
  };
  const handle = limited
    ? async (jobs) => void (await Promise.all(jobs.map(one)))
    : async (jobs) => jobs.forEach(() => tally.handled());
  await boss.work("noop", OPTIONS, handle);
  await tally.finish(async () => {
    const { rows } = await observer.query(
      "SELECT count(*)::int AS n FROM pgboss.job WHERE name = 'noop' AND state < 'completed'",
    );
    return rows[0].n;
  });
}

await (action === "fill" ? fill() : drain());
