package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/serviceworker"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/webpush"
	"github.com/activityd/activityd/internal/testing/browsertest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/webpushtest"
)

// workerFile is the service worker that sites may use.
const workerFile = "../../docs/push-worker.js"

// shownNotifications are the notifications that the browser shows.
const shownNotifications = `navigator.serviceWorker.getRegistration()
	.then((registration) => registration.getNotifications())
	.then((all) => all.map((n) => [n.title, n.body, n.tag, n.data.url].join("|")))`

// tellShown tells the page the titles that are shown. If the page asks Chromium for notifications while
// Chromium shows a new notification, Chromium forgets the new notification.
const tellShown = `
	const showUntold = self.registration.showNotification.bind(self.registration);
	self.registration.showNotification = async (title, options) => {
		await showUntold(title, options);
		for (const page of await self.clients.matchAll({includeUncontrolled: true})) page.postMessage(title);
	};`

// openWorker opens a page of a site that registers the service worker by an address, with a script behind the worker's own, and
// waits until the worker is active.
func openWorker(t *testing.T, site *http.ServeMux, script, address string, prepare func(b *browsertest.Tab, url string)) (b *browsertest.Tab, url string) {
	t.Helper()
	file, err := os.ReadFile(workerFile)
	if err != nil {
		t.Fatal(err)
	}
	site.HandleFunc("GET /push-worker.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = fmt.Fprintf(w, "%s\n%s", file, script)
	})
	site.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!DOCTYPE html><html lang="en"><title>site</title><link rel="icon" href="data:,">
			<script>
				window.shown = [];
				navigator.serviceWorker.onmessage = (event) => window.shown.push(event.data);
				navigator.serviceWorker.register(%q);
			</script>`, address)
	})
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	b, url = browsertest.New(t), server.URL
	prepare(b, url)
	if _, err := chromedp.Call(b.Ctx, serviceworker.Enable, cdp.Empty{}); err != nil {
		t.Fatal(err)
	}
	b.Do(chromedp.Navigate(url + "/"))
	servertest.Eventually(t, "the service worker is active", func() bool {
		return browsertest.Eval[string](b, `navigator.serviceWorker.getRegistration().then((registration) => registration?.active?.state ?? "")`) == "activated"
	})
	return b, url
}

// A real browser's service worker shows notifications that were encrypted and sent, and that a push service
// took and decrypted. DevTools takes the last step, from the push service into the browser.
func TestABrowserShowsTheNotification(t *testing.T) {
	t.Parallel()
	var registrations iter.Seq2[serviceworker.EventWorkerRegistrationUpdated, error]
	b, url := openWorker(t, http.NewServeMux(), tellShown, "/push-worker.js", func(b *browsertest.Tab, url string) {
		if _, err := chromedp.CallBrowser(b.Ctx, browser.SetPermission, browser.SetPermissionParams{
			Origin: url, Permission: &browser.PermissionDescriptor{Name: "notifications"}, Setting: browser.PermissionSettingGranted,
		}); err != nil {
			t.Fatal(err)
		}
		registrations = chromedp.Events(b.Ctx, serviceworker.WorkerRegistrationUpdated)
	})
	var registration serviceworker.RegistrationID
	for event, err := range registrations {
		if err != nil {
			t.Fatal(err)
		}
		if len(event.Registrations) > 0 {
			registration = event.Registrations[0].RegistrationID
			break
		}
	}

	give := func(data string) {
		t.Helper()
		if _, err := chromedp.Call(b.Ctx, serviceworker.DeliverPushMessage, serviceworker.DeliverPushMessageParams{
			Origin: url, RegistrationID: registration, Data: data,
		}); err != nil {
			t.Fatal(err)
		}
	}
	// Chromium drops DevTools' messages until it has stored the registration, and no event tells when it has.
	servertest.Eventually(t, "the service worker receives", func() bool {
		give(`{"title":"ready","tag":"ready"}`)
		return browsertest.Eval[bool](b, `window.shown.includes("ready")`)
	})

	send := sending(t)
	deliver := func(title, collapse, data string) {
		t.Helper()
		give(send(push.Notification{
			Event: "e1", Type: "upload", Actor: 5, Title: title, Body: "Grüße & <b>mehr</b>", Data: json.RawMessage(data),
			Count: 1, Collapse: collapse, Expires: time.Now().Add(time.Hour),
		}))
		b.Await(fmt.Sprintf(`window.shown.includes(%q)`, title))
	}
	await := func(want ...string) {
		t.Helper()
		servertest.Eventually(t, fmt.Sprintf("%q is shown", want), func() bool {
			shown := slices.DeleteFunc(browsertest.Eval[[]string](b, shownNotifications), func(n string) bool { return n == "ready||ready|/" })
			slices.Sort(shown)
			return slices.Equal(shown, want)
		})
	}
	deliver("maya", "uploads", `{"url":"/photos/901"}`)
	await("maya|Grüße & <b>mehr</b>|uploads|/photos/901")
	deliver("noor", "comments", `{"url":"/photos/12"}`)
	await("maya|Grüße & <b>mehr</b>|uploads|/photos/901", "noor|Grüße & <b>mehr</b>|comments|/photos/12")
	// A later notification of a collapse key replaces the earlier notification.
	deliver("maya (2)", "uploads", `{"url":"https://elsewhere.example/"}`)
	await("maya (2)|Grüße & <b>mehr</b>|uploads|https://elsewhere.example/", "noor|Grüße & <b>mehr</b>|comments|/photos/12")

	deliver("pim", "broken", `{"url":"https://:"}`)
	await("maya (2)|Grüße & <b>mehr</b>|uploads|https://elsewhere.example/", "noor|Grüße & <b>mehr</b>|comments|/photos/12",
		"pim|Grüße & <b>mehr</b>|broken|https://:")

	// A click closes the notification, and opens only pages of this site: without a page, the first.
	clicked := evalInWorker[[]string](b, `(async () => {
		const opened = [];
		const work = [];
		self.clients.openWindow = async (url) => opened.push(url);
		WindowClient.prototype.focus = async function () { opened.push(this.url); };
		ExtendableEvent.prototype.waitUntil = (promise) => work.push(promise);
		for (const notification of await self.registration.getNotifications()) {
			if (notification.tag === "ready") continue;
			self.dispatchEvent(new NotificationEvent("notificationclick", {notification}));
		}
		await Promise.all(work);
		return opened.sort();
	})()`)
	if want := []string{url + "/", url + "/", url + "/photos/12"}; !slices.Equal(clicked, want) {
		t.Errorf("three clicks opened %q, want %q", clicked, want)
	}
	await()

	// The browser gets images, buttons and other options, and a button opens its own page.
	rich, err := webpush.Payload(&push.Notification{
		Title: "rich", Collapse: "rich", Data: json.RawMessage(`{"url":"/photos/12"}`),
		Style: push.Style{
			Image: url + "/none.png", Sound: push.SoundNone,
		},
		Override: json.RawMessage(`{"actions":[{"action":"reply","title":"Reply","url":"/reply"},{"action":"like","title":"Like"}],"options":{"requireInteraction":true}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	give(string(rich))
	b.Await(`window.shown.includes("rich")`)
	opened := evalInWorker[[]string](b, `(async () => {
		const opened = [], work = [];
		self.clients.openWindow = async (url) => opened.push(url);
		ExtendableEvent.prototype.waitUntil = (promise) => work.push(promise);
		const [n] = await self.registration.getNotifications({tag: "rich"});
		opened.push([n.image, n.silent, n.requireInteraction, n.actions.map((a) => a.action + "/" + a.title)].join());
		for (const action of ["reply", "like", "none", ""]) {
			self.dispatchEvent(new NotificationEvent("notificationclick", {notification: n, action}));
		}
		await Promise.all(work);
		return opened;
	})()`)
	want := []string{url + "/none.png,true,true,reply/Reply,like/Like", url + "/reply", url + "/photos/12", url + "/photos/12", url + "/photos/12"}
	if !slices.Equal(opened, want) {
		t.Errorf("the notification and its clicks are %q, want %q", opened, want)
	}
	await()

	// Each push is shown, whatever is in it.
	for _, data := range []string{"null", "no JSON", `{"data":5,"actions":7,"image":{}}`} {
		give(data)
	}
	b.Await(`window.shown.filter((title) => title === "News").length === 3`)
	await("News|||/", "News|||/", "News|||/")
	b.RequireCalm()
}

// sending returns a function that sends an encrypted notification to a browser through a push service, and
// returns the payload that arrives, decrypted.
func sending(t *testing.T) func(push.Notification) string {
	t.Helper()
	service, err := webpushtest.Start(webpushtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	keys, err := webpush.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	sender, err := webpush.New(webpush.Options{
		Key: keys.PEM, Subject: "mailto:test@example.com", RootCAs: service.RootCAs(), Hosts: []string{"127.0.0.1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sender.Close)
	to, err := service.Subscribe(sender.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	device := push.Device{ID: 7, Member: 123, Platform: webpush.Platform, Address: webpush.NewAddress(to.Endpoint(), to.P256DH(), to.Auth())}
	return func(n push.Notification) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), browsertest.Patience)
		defer cancel()
		if result := sender.Send(ctx, push.Message{Device: device, Notification: n}); result.Outcome != push.Accepted {
			t.Fatalf("%+v: %q", result, service.Refused())
		}
		received := to.Received()
		return string(received[len(received)-1].Payload)
	}
}

// renewals makes the worker's subscription change, in a browser whose side of push is made up here, and
// returns the worker's actions.
const renewals = `(async () => {
	let work = [], said = [], current = null, made = 0;
	ExtendableEvent.prototype.waitUntil = (promise) => work.push(promise);
	const limits = [], timeout = AbortSignal.timeout.bind(AbortSignal);
	AbortSignal.timeout = () => timeout(limits.shift() ?? 600000);
	self.setTimeout = (f, ms) => { if (ms > 0) said.push("waits"); queueMicrotask(f); };
	const subscription = (name, key) => ({options: {applicationServerKey: key}, toJSON: () => ({endpoint: "https://push.example/" + name})});
	Object.defineProperty(self.registration, "pushManager", {value: {
		getSubscription: async () => current,
		subscribe: async (options) => {
			said.push("subscribes with " + options.applicationServerKey + " " + options.userVisibleOnly);
			return current = subscription("made-" + ++made, options.applicationServerKey);
		},
	}});
	Object.defineProperty(self.registration, "sync", {value: {register: async (tag) => said.push("sync " + tag)}});
	const fire = async (name, of) => {
		self.dispatchEvent(Object.assign(new ExtendableEvent(name), of));
		const ends = await Promise.allSettled(work);
		const all = said.concat(ends.filter((end) => end.status === "rejected").map((end) => end.reason.message));
		work = [], said = [];
		return name + ": " + all.join(", ");
	};
	const change = (of) => fire("pushsubscriptionchange", {oldSubscription: null, newSubscription: null, ...of});
	return [
		await change({newSubscription: subscription("renewed")}),
		await change({oldSubscription: subscription("old", "the-old-key")}),
		(current = null, await change()),
		(current = subscription("by-itself"), await change()), // and 503 first, then 401
		await change({newSubscription: subscription("late")}), // and 503 for long
		await fire("sync", {tag: "another"}),
		await fire("sync", {tag: "push-subscription"}), // and 503 for long
		await fire("sync", {tag: "push-subscription"}),
		(limits.push(100), await change({newSubscription: subscription("hung")})), // and no answer first
	];
})()`

// A subscription that ends is renewed by the worker, and given to the site's back-end, as often as
// it takes.
func TestABrowserRenewsItsSubscription(t *testing.T) {
	t.Parallel()
	answers := make(chan int, 100) // of the back-end; 0: none
	taken := make(chan string, 100)
	for _, status := range []int{204, 204, 204, 503, 401, 503, 503, 429, 500, 503, 503, 503, 503, 204, 0, 204} {
		answers <- status
	}
	site := http.NewServeMux()
	site.HandleFunc("PUT /devices", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		status := <-answers
		taken <- fmt.Sprint(status, " ", r.Header.Get("Content-Type"), " ", string(body))
		if status == 0 {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(status)
	})
	b, _ := openWorker(t, site, "", "/push-worker.js?key=the-key&to=/devices", func(*browsertest.Tab, string) {})
	did := evalInWorker[[]string](b, renewals)
	failed := "waits" + strings.Repeat(", waits", 2)
	if diff := cmp.Diff([]string{
		"pushsubscriptionchange: ",
		"pushsubscriptionchange: subscribes with the-old-key true",
		"pushsubscriptionchange: subscribes with the-key true",
		"pushsubscriptionchange: waits",
		"pushsubscriptionchange: " + failed + ", sync push-subscription",
		"sync: ",
		"sync: " + failed + ", registering the subscription at /devices: 503",
		"sync: ",
		"pushsubscriptionchange: waits",
	}, did); diff != "" {
		t.Errorf("the worker (-want +got):\n%s", diff)
	}
	close(taken)
	var got []string
	for one := range taken {
		got = append(got, one)
	}
	var want []string
	for _, one := range []string{
		"204 renewed", "204 made-1", "204 made-2", "503 by-itself", "401 by-itself", "503 late", "503 late", "429 late", "500 late",
		"503 by-itself", "503 by-itself", "503 by-itself", "503 by-itself", "204 by-itself",
		"0 hung", "204 hung",
	} {
		status, name, _ := strings.Cut(one, " ")
		want = append(want, status+` application/json {"platform":"webpush","subscription":{"endpoint":"https://push.example/`+name+`"}}`)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the back-end (-want +got):\n%s", diff)
	}
}

// evalInWorker returns the value of an expression in the service worker.
func evalInWorker[V any](b *browsertest.Tab, expression string) V {
	b.Helper()
	var worker target.ID
	servertest.Eventually(b.T, "the service worker runs", func() bool {
		start := serviceworker.StartWorkerParams{ScopeURL: browsertest.Eval[string](b, "location.origin") + "/"}
		if _, err := chromedp.Call(b.Ctx, serviceworker.StartWorker, start); err != nil {
			b.Fatal(err)
		}
		all, err := chromedp.Targets(b.Ctx)
		if err != nil {
			b.Fatal(err)
		}
		i := slices.IndexFunc(all, func(info *target.Info) bool { return info.Type == "service_worker" })
		if i >= 0 {
			worker = all[i].TargetID
		}
		return i >= 0
	})
	ctx, cancel := chromedp.NewContext(b.Ctx, chromedp.WithTargetID(worker))
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[V](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatal(err)
	}
	return value
}
