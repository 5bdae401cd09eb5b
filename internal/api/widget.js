// See docs/page.md.

const style = new CSSStyleSheet(); // needs no permission, unlike <style>
style.replaceSync(`
:host { display: block; color: var(--rcp-color, inherit); background: var(--rcp-background, none) }
:host([hidden]), [hidden] { display: none !important }
p { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 .6em; margin-block: 0 .5em }
bdi { font-weight: bold }
time { font-size: .875em; color: var(--rcp-time-color, inherit) }
ul { display: grid; gap: var(--rcp-gap, .5rem); margin: 0; padding: 0; list-style: none;
	grid-template-columns: repeat(auto-fill, minmax(min(var(--rcp-size, 7rem), 100%), 1fr)) }
li * { display: block; color: inherit; overflow-wrap: anywhere; border-radius: var(--rcp-radius, .25rem) }
[part=image] { inline-size: 100%; aspect-ratio: var(--rcp-ratio, 1); object-fit: cover;
	background: var(--rcp-placeholder, color-mix(in srgb, currentColor 12%, transparent)) }
a:focus-visible { outline: 3px solid var(--rcp-focus, currentColor); outline-offset: 2px;
	@media (forced-colors: active) { outline-color: Highlight } }
`);

const tag = "recent-contact-photos";
const feeds = new Map(), tokens = new Map();

async function get(url, headers, ...stop) {
	const signal = AbortSignal.any([AbortSignal.timeout(20_000), ...stop]);
	const response = await fetch(url, { signal, headers, cache: "no-store", redirect: "manual" });
	response.data = await response.text();
	response.signedOut = !headers.Authorization && /^0|40[13]/.test(response.status); // 0 is a redirect
	return response;
}

// A token is shared until a minute before it expires, or until it is refused.
function token(url, refused) {
	let t = tokens.get(url);
	if (!t || t.value === refused || Date.now() >= t.renewAt) {
		tokens.set(url, t = { value: null, renewAt: Infinity });
		t.promise = renew(t, url);
		t.promise.catch(() => { t.renewAt = 0; });
	}
	return t.promise;
}

async function renew(t, url) {
	const got = await get(url, {});
	if (got.status !== 200) throw got;
	const value = JSON.parse(got.data).token;
	const claims = atob(value.split(".")[1].replace(/-/g, "+").replace(/_/g, "/"));
	t.renewAt = JSON.parse(claims).exp * 1000 - 60_000;
	return (t.value = value);
}

// A Date ends after 8.64e12 seconds.
function check(id, text, time) {
	if (typeof id + typeof text + typeof time !== "stringstringnumber" || Math.abs(time) > 8.64e12) throw 0;
}

// A Feed asks for all elements that show the same.
class Feed {
	state = "loading"; // photos, empty, away
	answer;
	listeners = new Set();
	#url; #tokenURL; #refresh;
	#stop = new AbortController();
	#asking; #timer; #last;
	#due = 0; #failures = 0;

	constructor(key) {
		this.key = key;
		[this.#url, this.#tokenURL, this.#refresh] = JSON.parse(key);
		feeds.set(key, this);
		addEventListener("visibilitychange", this, { signal: this.#stop.signal });
		this.handleEvent();
	}

	leave(listener) {
		this.listeners.delete(listener);
		if (this.listeners.size) return;
		feeds.delete(this.key);
		clearTimeout(this.#timer);
		this.#stop.abort();
		if (!feeds.size) tokens.clear();
	}

	// A hidden page asks nothing.
	handleEvent() {
		clearTimeout(this.#timer);
		if (Reflect.get(Document.prototype, "hidden", document) || this.#asking) return;
		this.#timer = setTimeout(() => this.#ask(), Math.max(0, this.#due - Date.now()));
	}

	async #ask() {
		const { answer, state } = this;
		let pause = this.#refresh * (900 + 100 * Math.random());
		this.#asking = true;
		try {
			await this.#read();
			this.#failures = 0;
		} catch (error) {
			const after = error.headers?.get("Retry-After"); // seconds, or a date
			const wait = after * 1000 || Date.parse(after) - Date.now() || 0;
			const backoff = Math.min(1000 * 2 ** ++this.#failures, 120_000);
			pause = backoff * (0.5 + Math.random() / 2) + Math.min(Math.max(wait, 0), 3_600_000);
			// What is shown stays, but not for the next visitor.
			if (error.signedOut) this.answer = this.#last = undefined;
			if (!this.answer) this.state = "away";
		}
		this.#asking = false;
		if (!this.listeners.size) return;
		this.#due = Date.now() + pause;
		this.handleEvent();
		if (this.answer !== answer || this.state !== state) for (const listener of this.listeners) listener();
	}

	async #read(refused) {
		const jwt = this.#tokenURL && await token(this.#tokenURL, refused);
		const headers = jwt ? { Authorization: `Bearer ${jwt}` } : {};
		const etag = this.#last?.headers.get("ETag");
		if (etag) headers["If-None-Match"] = etag;
		const got = await get(this.#url, headers, this.#stop.signal);
		if (got.status === 401 && jwt && !refused) return this.#read(jwt);
		if (got.status === 304 && this.answer) return;
		if (got.status !== 200) throw got;
		if (got.data !== this.#last?.data) {
			const answer = JSON.parse(got.data), { contact: c, photos } = answer;
			if (c !== null) check(c.id, c.username, c.last_upload);
			photos.forEach((p) => check(p.id, p.title, p.date_upload));
			this.state = c ? "photos" : "empty";
			this.answer = answer;
		}
		this.#last = got;
	}
}

// make makes an element. What is foreign goes in as text. A page's names, as in
// <form name=createElement>, hide what document has.
function make(name, properties, ...children) {
	const element = Object.assign(Document.prototype.createElement.call(document, name), properties);
	element.append(...children);
	return element;
}

// The same text would be announced again.
function say(element, text = "") {
	if (element.textContent !== text) element.textContent = text;
}

class Widget extends HTMLElement {
	static observedAttributes = "src token-src photo-href image-src limit refresh label lang".split(" ");

	#name = make("bdi", { part: "name" });
	#time = make("time", { part: "time" });
	#heading = make("p", { part: "heading", ariaAtomic: true }, this.#name, this.#time);
	#list = make("ul", { part: "photos", role: "list" });
	#slots = Object.entries({
		loading: "Loading photos…",
		empty: "No photos yet.",
		away: "Photos cannot be shown now.",
	}).map(([name, text]) => make("slot", { name }, text));
	#region = make("section", { part: "region", role: "region" }, this.#heading, this.#list,
		make("div", { part: "status", role: "status" }, ...this.#slots));
	#items = new Map();
	#feed; #answer; #queued;

	constructor() {
		super();
		this.attachShadow({ mode: "open" }).append(this.#region);
		this.shadowRoot.adoptedStyleSheets = [style];
	}

	// Several changes are one.
	async connectedCallback() {
		if (this.#queued) return;
		this.#queued = true;
		await null;
		if (this.isConnected) await null; // removed ones leave first
		this.#queued = false;
		this.#follow();
		this.#render();
	}
	disconnectedCallback() { this.connectedCallback(); }
	attributeChangedCallback() { this.connectedCallback(); }

	#follow() {
		let key, url = this.isConnected && this.#url("src");
		if (url) {
			url = new URL(url);
			url.searchParams.set("limit", this.#number("limit", 10, 1, 50));
			key = JSON.stringify([url, this.#url("token-src"), this.#number("refresh", 60, 10, 86_400)]);
		}
		if (key === this.#feed?.key) return;
		this.#feed?.leave(this.#render);
		this.#feed = key && (feeds.get(key) ?? new Feed(key));
		this.#feed?.listeners.add(this.#render);
	}

	#number(name, fallback, least, most) {
		return Math.min(Math.max(Math.trunc(this.getAttribute(name)) || fallback, least), most);
	}

	// Only http and https will do.
	#url(name, ids = {}) {
		try {
			const text = this.getAttribute(name)?.replace(/\{(id|owner)\}/g, (_, id) => encodeURIComponent(ids[id]));
			const { href } = new URL(text, this.baseURI);
			if (text && /^https?:/.test(href)) return href;
		} catch {}
	}

	#render = () => {
		const { answer, state } = this.#feed ?? { state: "loading" }, contact = answer?.contact;
		this.#region.ariaLabel = this.getAttribute("label") || "Recent photos of a contact";
		this.#region.ariaBusy = state === "loading";
		this.#heading.hidden = this.#list.hidden = !contact;
		for (const slot of this.#slots) slot.hidden = slot.name !== state;
		say(this.#name, contact?.username);
		say(this.#time, contact && this.#format(contact.last_upload));
		this.#time.dateTime = contact ? new Date(contact.last_upload * 1000).toISOString() : "";
		this.#show(contact ? answer.photos : [], contact);

		// The first answer is not announced.
		const live = () => { this.#heading.ariaLive = this.#answer ? "polite" : "off"; };
		if (!answer) this.#heading.ariaLive = "off";
		else if (!this.#answer) requestAnimationFrame(() => setTimeout(live));

		const changed = answer && answer !== this.#answer;
		this.#answer = answer;
		if (changed) this.#tell("change", structuredClone(answer));
		if (state === this.getAttribute("state")) return;
		this.setAttribute("state", state);
		this.#tell("state", { state });
	};

	// Items that stay keep the focus.
	#show(photos, contact) {
		const items = new Map();
		for (const photo of photos) {
			const ids = { id: photo.id, owner: contact.id };
			const key = JSON.stringify([photo, this.#url("photo-href", ids), this.#url("image-src", ids)]);
			items.set(key, this.#items.get(key) ?? this.#item(...JSON.parse(key)));
		}
		for (const [key, item] of this.#items) if (!items.has(key)) item.remove();
		this.#items = items;
		let i = 0;
		for (const item of items.values()) {
			const next = this.#list.children[i++];
			if (item !== next) this.#list.insertBefore(item, next);
		}
	}

	#item(photo, href, src) {
		const alt = photo.title.trim() || this.#format(photo.date_upload);
		const onerror = (e) => e.target.replaceWith(make("span", { part: "image" }, alt));
		const image = src ? make("img", { part: "image", loading: "lazy", alt, onerror, src }) : alt;
		const link = make(href ? "a" : "span", { part: "photo" }, image);
		if (href) link.href = href;
		return make("li", { part: "item" }, link);
	}

	#format(seconds, lang = this.closest("[lang]")?.lang || undefined) {
		try {
			return new Date(seconds * 1000).toLocaleString(lang, { dateStyle: "medium", timeStyle: "short" });
		} catch {
			return this.#format(seconds, "en");
		}
	}

	#tell(event, detail) {
		this.dispatchEvent(new CustomEvent(`${tag}-${event}`, { detail, bubbles: true, composed: true }));
	}
}

customElements.get(tag) ?? customElements.define(tag, Widget);
