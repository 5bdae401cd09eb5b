// A service worker that shows the notifications of activityd. Serve it from the root of
// your site; your page registers it, and subscribes after a click, like this:
//
//   const registration = await navigator.serviceWorker.register("/push-worker.js");
//   const subscription = await registration.pushManager.subscribe({
//     userVisibleOnly: true,
//     applicationServerKey: "…", // which activityd push keys printed
//   });
//   // Your back-end sends {"platform": "webpush", "subscription": subscription} to
//   // PUT /v1/users/{id}/devices. Do that at each visit: subscriptions are renewed.
"use strict";

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
  await self.registration.showNotification(push.title || "News", {
    body: push.body || "",
    dir: "auto",
    // It replaces the notification with the same tag: in silence, unless it is urgent.
    tag: push.tag || "",
    renotify: Boolean(push.tag && push.urgent),
    // What is in the event's data is up to your site; here it is the page to open.
    data: { url: push.data?.url || "/" },
  });
}

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(visit(new URL(event.notification.data.url, self.location.origin)));
});

// visit shows a page of this site, in the tab that shows it already if there is one.
async function visit(url) {
  if (url.origin !== self.location.origin) {
    return;
  }
  for (const tab of await self.clients.matchAll({ type: "window", includeUncontrolled: true })) {
    if (tab.url === url.href) {
      await tab.focus();
      return;
    }
  }
  await self.clients.openWindow(url.href);
}
