#!/usr/bin/env python3
"""A worker on a queue of your own: docs/queue.md. It needs Python's standard library alone."""
import email.utils, http.client, json, math, os, re, signal, sys, threading, time, urllib.error, urllib.request

QUEUE = os.environ.get("QUEUE_URL", "http://127.0.0.1:8080").rstrip("/") + "/v1/queues/" + os.environ.get("QUEUE", "mail")
HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("QUEUE_TOKEN", "")}
LEASE = int(os.environ.get("LEASE", "60"))  # seconds that a job may be held up when this process dies

def letter(args):  # a job may come again, after a crash or a pause that was too long
    time.sleep(args.get("seconds", 0))
    if not args.get("to"):
        raise ValueError("a letter to nobody")
    print("sent", args["to"], flush=True)

JOBS = {"letter": letter}

def pause_of(header):
    """Returns how long to wait: Retry-After is seconds or a date, and from 1 to 60 seconds here."""
    try:
        text = (header or "").strip()
        seconds = float(text) if re.fullmatch(r"-?\d{1,9}", text) else email.utils.parsedate_to_datetime(text).timestamp() - time.time()
    except (TypeError, ValueError):
        seconds = 1
    return min(max(seconds, 1), 60)

def call(action, body, until):
    """Returns the answer, and asks again until then. None: the lease is lost."""
    while True:
        pause = 1
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{QUEUE}/{action}", json.dumps(body).encode(), HEADERS), timeout=40) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 409:
                return None
            print(f"{action}: {error.code} {error.read(1000).decode(errors='replace')}", file=sys.stderr, flush=True)
            if error.code < 500 and error.code not in (408, 429):  # no repetition would help
                os._exit(1)
            pause = pause_of(error.headers.get("Retry-After"))
        except (OSError, http.client.HTTPException, ValueError) as error:  # no answer, or half of an answer
            print(f"{action}: {error}", file=sys.stderr, flush=True)
        if time.monotonic() + pause > until:
            return None
        time.sleep(pause)

def keep(token, over, lost):
    """Extends the lease while jobs take long, and says when it is lost."""
    ends = time.monotonic() + LEASE
    while not over.wait(LEASE / 3):
        if call("extend", {"lease_token": token, "lease": f"{LEASE}s"}, ends) is None:
            return lost.set()
        ends = time.monotonic() + LEASE

stopping = threading.Event()
while not stopping.is_set():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # while it waits it may be stopped at any time
    claimed = call("claim", {"max": 10, "wait": "30s", "lease": f"{LEASE}s"}, math.inf)
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    token, tasks, over, lost = claimed.get("lease_token"), claimed["tasks"], threading.Event(), threading.Event()
    if tasks:
        threading.Thread(target=keep, args=(token, over, lost), daemon=True).start()
    for place, task in enumerate(tasks):
        end = {"lease_token": token}
        if stopping.is_set():
            end["released"] = [later["id"] for later in tasks[place:]]
        elif task["type"] not in JOBS:
            end["failed"] = [{"id": task["id"], "error": "no such type of job", "permanent": True}]
        else:
            try:
                JOBS[task["type"]](task["args"])
                end["done"] = [task["id"]]
            except Exception as error:
                end["failed"] = [{"id": task["id"], "error": repr(error)[:1000]}]
        if lost.is_set() or call("finish", end, time.monotonic() + LEASE) is None or "released" in end:
            break
    over.set()
