// Refreshes the page gently: it asks for the page again and puts in place of each part with data-live
// the new one, if that differs. The page works without it.
"use strict";
(() => {
	const every = 5000;
	const parts = () => [...document.querySelectorAll("[data-live]")];
	if (parts().length === 0) return;
	const box = document.getElementById("refresh");
	const wanted = box.querySelector("input");
	const says = box.querySelector("output");
	box.hidden = false;
	let timer = 0, asking = false;

	// sameIn finds in a new part what an element of the old one is.
	const sameIn = (part, e) => {
		if (e.id) return part.querySelector("#" + CSS.escape(e.id));
		if (e.tagName === "A") return [...part.querySelectorAll("a")].find((a) => a.getAttribute("href") === e.getAttribute("href"));
		return null;
	};

	const put = (old, part) => {
		if (!part || old.outerHTML === part.outerHTML) return;
		const focused = old.contains(document.activeElement) ? document.activeElement : null;
		if (focused?.matches("input, select, textarea")) return; // somebody types there
		if (!getSelection().isCollapsed && getSelection().containsNode(old, true)) return; // or copies from there
		const next = document.importNode(part, true);
		const before = focused && sameIn(next, focused);
		const scrolled = new Map([...old.querySelectorAll(".scroll")].map((s) => [s.id, s.scrollLeft]));
		old.replaceWith(next);
		for (const s of next.querySelectorAll(".scroll")) s.scrollLeft = scrolled.get(s.id) ?? 0;
		before?.focus({preventScroll: true});
	};

	const refresh = async () => {
		timer = 0;
		if (!wanted.checked || document.hidden || asking) return;
		asking = true;
		try {
			const answer = await fetch(location.href, {cache: "no-store", redirect: "error", signal: AbortSignal.timeout(10000)});
			if (!answer.ok) throw new Error(answer.status);
			const page = new DOMParser().parseFromString(await answer.text(), "text/html");
			const y = scrollY;
			for (const old of parts()) put(old, page.getElementById(old.id));
			if (scrollY !== y) scrollTo(scrollX, y);
			says.textContent = "";
		} catch {
			says.textContent = "not refreshed since " + last;
		} finally {
			asking = false;
			if (says.textContent === "") last = new Date().toLocaleTimeString();
			plan();
		}
	};

	let last = new Date().toLocaleTimeString();
	const plan = (after = every) => {
		clearTimeout(timer);
		timer = wanted.checked && !document.hidden ? setTimeout(refresh, after) : 0;
	};
	document.addEventListener("visibilitychange", () => plan(0));
	wanted.addEventListener("change", () => plan(0));
	plan();
})();
