#!/usr/bin/env node
// A worker on a queue of your own: docs/queue-by-http.md. It needs Node 18 or later, and no package.
import { setTimeout as sleep } from "node:timers/promises";

const queue = (process.env.QUEUE_URL ?? "http://127.0.0.1:8080").replace(/\/+$/, "") + "/v1/queues/" + (process.env.QUEUE ?? "mail");
const headers = { "Content-Type": "application/json", Authorization: "Bearer " + (process.env.QUEUE_TOKEN ?? "") };
const lease = Number(process.env.LEASE ?? 60); // seconds that a job may be held up when this process dies

const jobs = {
  async letter(args) { // a job may come again, after a crash or a pause that was too long
    await sleep(1000 * (args.seconds ?? 0));
    if (!args.to) throw new Error("a letter to nobody");
    console.log("sent " + args.to);
  },
};

// call returns the answer, which it awaits until then; null: the lease is lost.
async function call(action, body, until) {
  for (;;) {
    let pause = 1;
    try {
      const answer = await fetch(queue + "/" + action, { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(40_000) });
      if (answer.ok) return await answer.json();
      if (answer.status === 409) return null;
      const text = await answer.text();
      if (answer.status < 500 && answer.status !== 429) {
        console.error(action + ": " + text);
        process.exit(1);
      }
      pause = Number(answer.headers.get("Retry-After") ?? 1);
    } catch (error) { // no answer, or half of one: ask again
      console.error(action + ": " + (error.cause ?? error));
    }
    if (performance.now() + 1000 * pause > until) return null;
    await sleep(1000 * pause);
  }
}

let stopping = false, waiting = false;
process.on("SIGTERM", () => {
  stopping = true;
  if (waiting) process.exit(); // what is claimed meanwhile is given back
});
while (!stopping) {
  waiting = true;
  const { lease_token, tasks } = await call("claim", { max: 10, wait: "30s", lease: lease + "s" }, Infinity);
  waiting = false;
  const keeper = setInterval(() => { // extends the lease while jobs take long
    if (tasks.length > 0) call("extend", { lease_token, lease: lease + "s" }, performance.now() + 1000 * lease / 3);
  }, 1000 * lease / 3);
  for (const [place, task] of tasks.entries()) {
    const end = { lease_token };
    if (stopping) {
      end.back = tasks.slice(place).map((other) => other.id);
    } else if (!Object.hasOwn(jobs, task.type)) {
      end.failed = [{ id: task.id, error: "no such type of job", permanent: true }];
    } else {
      try {
        await jobs[task.type](task.args);
        end.done = [task.id];
      } catch (error) {
        end.failed = [{ id: task.id, error: String(error).slice(0, 1000) }];
      }
    }
    if (await call("finish", end, performance.now() + 1000 * lease) === null || end.back) break;
  }
  clearInterval(keeper);
}
