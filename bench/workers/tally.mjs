// The report of a Node worker on its drain; tally.py explains the figures.

const FIRST = 1000;
const CHANNELS = 1000;

export const channelOf = (i, messages) => `c${Math.floor((i * CHANNELS) / messages)}`;

export const yieldOnce = () => new Promise((resolve) => setImmediate(resolve));

export class Tally {
  constructor(messages, cap) {
    this.messages = messages;
    this.cap = cap;
    this.count = 0;
    this.first = 0;
    this.order = [];
    this.running = new Map();
    this.overlaps = 0;
    this.all = new Promise((resolve) => (this.end = resolve));
  }

  // Note that a handler ran that does nothing.
  handled() {
    if (this.count === 0) this.begin();
    this.done();
  }

  enter(channel) {
    if (!this.first) this.begin();
    if (this.order.length < FIRST) this.order.push(channel);
    const now = this.running.get(channel) ?? 0;
    if (now > 0) this.overlaps += 1;
    this.running.set(channel, now + 1);
  }

  leave(channel) {
    this.running.set(channel, this.running.get(channel) - 1);
    this.done();
  }

  begin() {
    this.cpu = process.cpuUsage();
    this.first = performance.now();
    console.log(JSON.stringify({ event: "started" }));
  }

  done() {
    this.count += 1;
    if (this.count === this.messages) this.end();
  }

  // Wait for the last handler and its ack, or until the cap. Then print, and end the process.
  async finish(remaining) {
    let capped = false;
    const cap = new Promise((resolve) =>
      setTimeout(() => {
        capped = true;
        resolve();
      }, this.cap * 1000),
    );
    const acknowledged = async () => {
      await this.all;
      while (!capped && (await remaining()) > 0) await new Promise((resolve) => setTimeout(resolve, 1));
    };
    await Promise.race([acknowledged(), cap]);
    const now = performance.now();
    if (!this.first) {
      console.error(`no handler ran within ${this.cap} s`);
      process.exit(1);
    }
    const cpu = process.cpuUsage(this.cpu);
    const figures = {
      handled: this.count,
      seconds: (now - this.first) / 1000,
      client_cpu: (cpu.user + cpu.system) / 1e6,
      capped,
    };
    if (this.order.length) {
      figures.distinct = new Set(this.order).size;
      figures.overlaps = this.overlaps;
    }
    console.log(JSON.stringify(figures));
    // Keep our connections until the parent has read PostgreSQL's CPU time.
    process.stdin.once("data", () => process.exit(0));
    process.stdin.once("end", () => process.exit(0));
  }
}
