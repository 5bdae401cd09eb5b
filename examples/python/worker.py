#!/usr/bin/env python3
"""A worker on a queue of your own: docs/queue-by-http.md. It needs Python's standard library only."""
import http.client, json, math, os, signal, sys, threading, time, urllib.error, urllib.request

QUEUE = os.environ.get("QUEUE_URL", "http://127.0.0.1:8080").rstrip("/") + "/v1/queues/" + os.environ.get("QUEUE", "mail")
HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("QUEUE_TOKEN", "")}
LEASE = int(os.environ.get("LEASE", "60"))  # seconds that a job may be held up when this process dies

def letter(args):  # a job may come again, after a crash or a pause that was too long
    time.sleep(args.get("seconds", 0))
    if not args.get("to"):
        raise ValueError("a letter to nobody")
    print("sent", args["to"], flush=True)

JOBS = {"letter": letter}

def call(action, body, until):
    """Returns the answer, which it awaits until then; None: the lease is lost."""
    while True:
        pause = 1.0
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{QUEUE}/{action}", json.dumps(body).encode(), HEADERS), timeout=40) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 409:
                return None
            if error.code < 500 and error.code != 429:
                sys.exit(f"{action}: {error.read().decode()}")
            pause = float(error.headers.get("Retry-After") or 1)
        except (OSError, http.client.HTTPException, ValueError) as error:  # no answer, or half of one: ask again
            print(f"{action}: {error}", file=sys.stderr, flush=True)
        if time.monotonic() + pause > until:
            return None
        time.sleep(pause)

def keep(token, finished):  # extends the lease while jobs take long
    while not finished.wait(LEASE / 3):
        call("extend", {"lease_token": token, "lease": f"{LEASE}s"}, time.monotonic() + LEASE / 3)

stopping = threading.Event()
while not stopping.is_set():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # while it waits it may be stopped at any time
    batch = call("claim", {"max": 10, "wait": "30s", "lease": f"{LEASE}s"}, math.inf)
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    token, tasks, finished = batch.get("lease_token"), batch["tasks"], threading.Event()
    if tasks:
        threading.Thread(target=keep, args=(token, finished), daemon=True).start()
    for place, task in enumerate(tasks):
        end = {"lease_token": token}
        if stopping.is_set():
            end["back"] = [other["id"] for other in tasks[place:]]
        elif task["type"] not in JOBS:
            end["failed"] = [{"id": task["id"], "error": "no such type of job", "permanent": True}]
        else:
            try:
                JOBS[task["type"]](task["args"])
                end["done"] = [task["id"]]
            except Exception as error:
                end["failed"] = [{"id": task["id"], "error": repr(error)[:1000]}]
        if call("finish", end, time.monotonic() + LEASE) is None or "back" in end:
            break
    finished.set()
