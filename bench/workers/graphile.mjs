// graphile-worker: fill a queue, or drain it with one worker.
//
// node graphile.mjs fill|drain async|channels URL MESSAGES CAP
//
// The preset is the one of its performance page (24 parallel jobs, a local queue of 500, completions
// and failures batched without delay); NO_LOG_SUCCESS keeps it from logging every job, as its own
// perfTest does. "channels": a named queue per channel, of which one job runs at a time. There a fetch
// cannot fill the local queue, and it waits for pollInterval (default: 2 s) before the next one.

import { makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { Tally, channelOf, yieldOnce } from "./tally.mjs";

const [action, kind, url, messages, cap] = process.argv.slice(2);
const N = Number(messages);
const preset = {
  worker: {
    connectionString: url,
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    ...(kind === "channels" ? { pollInterval: 10 } : {}),
  },
};

async function fill() {
  const utils = await makeWorkerUtils({ connectionString: url });
  await utils.migrate();
  for (let start = 0; start < N; start += 5000) {
    const jobs = [];
    for (let i = start; i < Math.min(N, start + 5000); i++) {
      const channel = kind === "channels" ? channelOf(i, N) : undefined;
      jobs.push({ identifier: "noop", payload: { i, channel }, queueName: channel });
    }
    await utils.addJobs(jobs);
  }
  await utils.release();
}

async function drain() {
  const observer = new pg.Client({ connectionString: url });
  await observer.connect();
  const tally = new Tally(N, Number(cap));
  const noop = async () => tally.handled();
  const limited = async ({ channel }) => {
    tally.enter(channel);
    await yieldOnce();
    tally.leave(channel);
  };
  await run({ preset, taskList: { noop: kind === "channels" ? limited : noop }, noHandleSignals: true });
  await tally.finish(async () => {
    const { rows } = await observer.query("SELECT count(*)::int AS n FROM graphile_worker._private_jobs");
    return rows[0].n;
  });
}

await (action === "fill" ? fill() : drain());
