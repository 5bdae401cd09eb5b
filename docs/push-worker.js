// A service worker that shows the notifications of activityd. Serve it from the root of
// your site; your page registers it, and subscribes after a click, like this:
//
//   const key = "…"; // which activityd push keys printed
//   const registration = await navigator.serviceWorker.register("/push-worker.js?key=" + key);
//   const subscription = await registration.pushManager.subscribe({
//     userVisibleOnly: true,
//     applicationServerKey: key,
//   });
//   await fetch("/push-subscription", {
//     method: "PUT",
//     headers: { "Content-Type": "application/json" },
//     body: JSON.stringify({ platform: "webpush", subscription }),
//   });
//
// /push-subscription is of your back-end: it knows the member by its session, and passes the
// body on to PUT /v1/users/{id}/devices. Do that at each visit. If it has another address,
// register "/push-worker.js?key=…&to=/another".
"use strict";

const settings = new URL(self.location).searchParams;
const key = settings.get("key");
const backEnd = settings.get("to") ?? "/push-subscription";

self.addEventListener("push", (event) => event.waitUntil(show(event.data)));

// Each push has to be shown, whatever is in it: browsers take the permission away from
// sites that do not.
async function show(data) {
  let push = {};
  try {
    push = data.json() ?? {};
  } catch {
    // It is shown without text.
  }
  const title = push.title || "News";
  const options = {
    body: push.body || "",
    dir: "auto",
    // It replaces the notification with the same tag: in silence, unless it is urgent.
    tag: push.tag || "",
    renotify: Boolean(push.tag && push.urgent),
    // What is in the event's data is up to your site; here it is the page to open.
    data: { url: push.data?.url || "/" },
  };
  try {
    await self.registration.showNotification(title, {
      ...options,
      image: push.image,
      silent: push.sound === "none",
      actions: push.actions ?? [],
      data: { ...options.data, actions: push.actions ?? [] },
      ...push.options, // what the event has in webpush.options: an icon, for example
    });
  } catch {
    await self.registration.showNotification(title, options); // one of them is none that this browser takes
  }
  if (push.badge !== undefined) {
    await navigator.setAppBadge?.(push.badge).catch(() => {});
  }
}

// A browser, or its push service, may end a subscription at any time, and renews it or not.
self.addEventListener("pushsubscriptionchange", (event) => event.waitUntil(renew(event)));

// When there is a network again, in browsers that say so.
self.addEventListener("sync", (event) => {
  if (event.tag === "push-subscription") {
    event.waitUntil(register());
  }
});

// renew has the back-end register the new subscription. It subscribes if the browser did not:
// that fails if the member has taken the permission back, and nothing is to be done.
async function renew(event) {
  const manager = self.registration.pushManager;
  if (!event.newSubscription && !(await manager.getSubscription())) {
    await manager.subscribe({
      userVisibleOnly: true,
      applicationServerKey: event.oldSubscription?.options?.applicationServerKey ?? key,
    });
  }
  try {
    await register(event.newSubscription);
  } catch (error) {
    if (!self.registration.sync) {
      throw error; // the page registers it at the next visit
    }
    await self.registration.sync.register("push-subscription");
  }
}

// register gives the back-end a subscription, by default the one in force. It repeats what
// another time may do better.
async function register(given) {
  const subscription = given ?? (await self.registration.pushManager.getSubscription());
  if (!subscription) {
    return;
  }
  let answer = "no answer";
  for (const seconds of [0, 1, 4, 10]) {
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
    try {
      const response = await fetch(backEnd, {
        method: "PUT",
        credentials: "same-origin",
        redirect: "error", // to a login, that is
        signal: AbortSignal.timeout(10000),
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ platform: "webpush", subscription }),
      });
      answer = response.status;
      if (answer < 500 && answer !== 408 && answer !== 429) {
        return; // also if the member is logged out: then it is registered at the next visit
      }
    } catch {
      // There is no network, or no answer in time.
    }
  }
  throw new Error(`registering the subscription at ${backEnd}: ${answer}`);
}

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const { url, actions } = event.notification.data ?? {};
  const button = event.action && actions?.find((a) => a.action === event.action);
  event.waitUntil(visit(page(button?.url ?? url)));
});

// page returns the URL of a page of this site: the first one if text names none.
function page(text) {
  try {
    const url = new URL(text, self.location.origin);
    if (url.origin === self.location.origin) {
      return url;
    }
  } catch {
    // It is no URL.
  }
  return new URL("/", self.location.origin);
}

// visit shows a page, in the tab that shows it already if there is one.
async function visit(url) {
  for (const tab of await self.clients.matchAll({ type: "window", includeUncontrolled: true })) {
    if (tab.url === url.href) {
      await tab.focus();
      return;
    }
  }
  await self.clients.openWindow(url.href);
}
