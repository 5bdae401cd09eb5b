#!/usr/bin/env python3
"""conformance.py COMMAND...: plays the server to a worker, and says what the worker does wrong. It needs the standard library alone.

The worker has the environment of examples/*/worker (QUEUE_URL, QUEUE_TOKEN, QUEUE, LEASE) and knows one type of job, "letter", with
args {"to": ..., "seconds": ...}: it takes so long, fails where "to" is empty, and ends with the line "sent TO". docs/queue.md has the rules.
"""
import email.utils, http.server, json, os, queue, signal, socket, struct, subprocess, sys, threading, time

LEASE = 3
asked, answers = queue.Queue(), queue.Queue()  # (action, body, when) of the worker; (status, headers, body) for it

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/json" and self.headers["Authorization"] == "Bearer secret", self.headers
        action = self.path.removeprefix("/v1/queues/mail/")
        if action == "extend" and extensions is not None:
            extensions.append(time.monotonic())
            return self.answer(200, {}, {"lease_until_ms": 0})
        asked.put((action, json.loads(body), time.monotonic()))
        self.answer(*answers.get())

    def answer(self, status, headers, body):
        if status == 0:  # no answer: the connection is reset
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return self.connection.close()
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection |= "half" in body
        try:
            self.wfile.write(data[:-5] if "half" in body else data)
        except OSError:  # the worker has left
            self.close_connection = True

    def log_message(self, *_):
        pass

extensions = []  # when leases were extended; None: extensions are asked as all else
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
environment = dict(os.environ, QUEUE_URL=f"http://127.0.0.1:{server.server_port}", QUEUE_TOKEN="secret", QUEUE="mail", LEASE=str(LEASE))
sent, ids = [], iter(range(1, 1000))

def start():
    worker = subprocess.Popen(sys.argv[1:], env=environment, stdout=subprocess.PIPE, text=True)
    threading.Thread(target=lambda: sent.extend(line.strip() for line in worker.stdout), daemon=True).start()
    return worker

def await_call(action):
    got, body, when = asked.get(timeout=20)
    assert got == action, f"it asks {got} {body}, want {action}"
    if action == "claim":
        assert 1 <= body.pop("max", 1) <= 100 and body.pop("wait", "0s") and body.pop("lease", "1m") == f"{LEASE}s" and not body, f"it claims {body}"
    return body, when

def say(status=200, headers=None, **body):
    answers.put((status, dict(headers or {}), body))

def lend(*letters, token="t"):
    tasks = [{"id": str(next(ids)), "type": kind, "key": "0", "args": args, "attempt": 1, "max_attempts": 25, "enqueued_ms": 1} for kind, args in letters]
    say(lease_token=token, lease_until_ms=0, tasks=tasks)
    return [task["id"] for task in tasks]

def letter(to, seconds=0):
    return "letter", {"to": to, "seconds": seconds}

def await_end(done=(), failed=(), released=()):
    body, _ = await_call("finish")
    assert body.pop("lease_token") == "t", "it finishes without its token"
    got = body.get("done", []), [f["id"] for f in body.get("failed", [])], body.get("released", [])
    assert got == (list(done), list(failed), list(released)), f"it finishes {body}, want done {done}, failed {failed}, released {released}"
    return body

def works():
    await_call("claim")
    say(tasks=[])
    await_call("claim")
    a, b, c, d = lend(letter("Zoë's \"cat\" \\"), letter(""), ("parcel", {}), letter("Ada"))
    await_end(done=[a])
    say()
    assert await_end(failed=[b])["failed"][0].get("error"), "it says no reason"
    say()
    assert await_end(failed=[c])["failed"][0].get("permanent"), "a type that it does not know is to fail for good"
    say()
    await_end(done=[d])
    say()

def asks_again():
    date = email.utils.formatdate(time.time() + 3, usegmt=True)
    for name, status, headers, least, most in [
            ("a date", 503, {"Retry-After": date}, 1, 6), ("seconds", 429, {"Retry-After": "2"}, 1.9, 4), ("0", 503, {"Retry-After": "0"}, 0.5, 4),
            ("a negative number", 503, {"Retry-After": "-7"}, 0.5, 4), ("a date that has passed", 503, {"Retry-After": email.utils.formatdate(0, usegmt=True)}, 0.5, 4),
            ("no date", 503, {"Retry-After": "soon"}, 0.5, 4), ("408", 408, {}, 0.5, 4), ("500", 500, {}, 0.5, 4), ("no answer", 0, {}, 0.5, 4),
            ("half of an answer", 200, {}, 0.5, 4)]:
        _, before = await_call("claim")
        say(status, headers, **({"half": "of it"} if status == 200 else {}))
        after = asked.get(timeout=20)
        asked.queue.appendleft(after)
        assert after[0] == "claim" and least <= after[2] - before <= most, f"after {name} it asks {after[0]} {after[2] - before:.1f} s later"
    await_call("claim")
    one, = lend(letter("patience"))
    for status in 503, 0, 200:  # a finish is repeated, too
        await_end(done=[one])
        say(status)

def extends():
    await_call("claim")
    extensions.clear()
    one, = lend(letter("long", 2 * LEASE))
    began = time.monotonic()
    await_end(done=[one])
    say()
    times = [began] + extensions + [time.monotonic()]
    assert max(b - a for a, b in zip(times, times[1:])) < LEASE, "it let its lease run out"

def loses():
    global extensions
    await_call("claim")
    one, _ = lend(letter("first"), letter("second of a lost lease"))
    await_end(done=[one])
    say(409)
    await_call("claim")  # and not the second
    extensions = None
    lend(letter("long", LEASE), letter("second after a lost extension"))
    await_call("extend")
    say(409)
    await_call("claim")
    extensions = []
    assert not any("second" in line for line in sent), f"it goes on with a lease that is lost: {sent}"
    say(tasks=[])

def stops(worker):
    await_call("claim")
    one, two, three = lend(letter("last", 1.5), letter("too late"), letter("too late"))
    time.sleep(0.5)
    worker.send_signal(signal.SIGTERM)
    await_end(done=[one])
    say()
    await_end(released=[two, three])
    say()
    assert worker.wait(5) == 0, "stopped at work, it ends with an error"
    idle = start()
    await_call("claim")
    idle.send_signal(signal.SIGTERM)
    idle.wait(5)
    say(tasks=[])
    refused = start()
    await_call("claim")
    say(403)
    assert refused.wait(5) != 0, "refused, it goes on"

def main():
    worker = start()
    try:
        for check in works, asks_again, extends, loses:
            check()
            print("ok", check.__name__, flush=True)
        stops(worker)
        assert "sent Zoë's \"cat\" \\" in sent and "sent long" in sent and "sent too late" not in sent, sent
        print("ok stops", flush=True)
    except (AssertionError, queue.Empty, subprocess.TimeoutExpired) as error:
        sys.exit(f"not ok: {error!r}")
    finally:
        worker.kill()

main()
