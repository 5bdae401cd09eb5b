package browser

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/testing/browsertest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// A single browser shows all pages in turn.
func TestTheWidgetInABrowser(t *testing.T) {
	t.Parallel()
	b := widgetBrowser(t)
	for _, test := range []struct {
		name string
		run  func(s *site)
	}{
		{"shows photos and keeps them", widgetShowsPhotos},
		{"renews its token", widgetRenewsItsToken},
		{"shows no photos to those who signed out", widgetForgetsWhoSignedOut},
		{"stays useful while the API is away", widgetOutlivesTheAPI},
		{"shows titles, or that there is nothing", widgetShowsNothing},
		{"does not ask while hidden", widgetRestsWhileHidden},
		{"follows its attributes", widgetFollowsItsAttributes},
		{"stops when removed", widgetStopsWhenRemoved},
		{"takes what it is given as text", widgetRunsNoForeignCode},
		{"asks once for two of the same", widgetSharesQuestions},
		{"goes by the page, and by keyboard", widgetGoesByThePage},
		{"has no barriers", widgetHasNoBarriers},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t, b)
			test.run(s)
			s.calm()
		})
	}
}

func widgetShowsPhotos(s *site) {
	s.open(s.element(nil))
	s.await(`state() === "photos"`)
	first := s.awaitQuestions(1)[0]
	if first.query != "limit=10" || first.tag != "" || first.token == "" {
		s.Errorf("the first question is %+v", first)
	}
	s.want(`$("[part=name]").textContent + $("time").dateTime`, "maya2023-11-20T17:06:43.000Z")
	s.want(`$("time").textContent === new Date(1700500003000).toLocaleString("en", {dateStyle: "medium", timeStyle: "short"})`, "true")
	s.want(`alts()`, "photo 3,photo 2,photo 1")
	s.want(`$$("a").map((a) => a.href).join()`, "https://photos.example/98765/3,https://photos.example/98765/2,https://photos.example/98765/1")
	s.want(`$$("img").map((i) => i.src.replace(location.origin, "")).join()`, "/i/3.svg,/i/2.svg,/i/1.svg")
	s.want(`$$("[part]").map((e) => e.part.value).filter((p, i, all) => all.indexOf(p) === i).join()`, "region,heading,name,time,photos,item,photo,image,status")
	s.want(`shownText() + $("section").getAttribute("role") + "|" + $("section").getAttribute("aria-label") + "|" + $("section").getAttribute("aria-busy")`, "region|Recent photos of a contact|false")
	s.await(`$$("img").every((i) => i.complete && i.naturalWidth > 0)`)
	s.want(`told.map((e) => e.name + " " + (e.detail.state ?? e.detail.contact.username) + " " + e.composed).join()`, "state loading true,change maya true,state photos true")
	s.want(`Object.keys(told[1].detail).sort() + " " + told[1].detail.photos.map((p) => p.id)`, "contact,photos,viewer_id 3,2,1")

	// The first answer was there before changes are announced.
	s.want(`told.map((e) => e.live).join()`, "off,off,off")
	s.await(`live() === "polite"`)

	// Asked again, the API says that nothing changed; so nothing changes and no event is fired.
	s.eval(`window.before = $$("li"); window.said = 0;
		new MutationObserver((all) => { said += all.length; }).observe(w.shadowRoot, {subtree: true, childList: true, characterData: true}); $("a").focus()`)
	s.advance(59.9)
	s.want(`clock.pending().map(Math.round).join()`, "100") // it has not asked
	s.eval(`clock.random = 0`)                              // the next time it asks after nine tenths: many that began together do not stay together
	s.advance(0.2)
	second := s.awaitQuestions(2)[1]
	s.await(`clock.pending().join() === "54000"`)
	s.eval(`clock.random = 1`)
	if second.tag == "" || second.token != first.token {
		s.Errorf("the second question is %+v, after %+v", second, first)
	}
	s.want(`said + " " + told.length + " " + $$("li").every((li, i) => li === before[i])`, "0 3 true")

	// A new photo comes in front, the oldest goes, and the focus stays where it was.
	s.answers(albumOf("maya", 4, 3, 2))
	s.advance(60)
	s.awaitQuestions(3)
	s.await(`alts() === "photo 4,photo 3,photo 2"`)
	s.want(`w.shadowRoot.activeElement === $$("a")[1] && before[0] === $$("li")[1]`, "true")
	s.want(`told[3].live + " " + told.length + " " + told[3].detail.photos[0].id`, "polite 4 4")

	// The widget loses only an older photo: it does not announce the line with name and time again.
	s.eval(`window.saidAgain = 0;
		new MutationObserver((all) => { saidAgain += all.length; }).observe($("[part=heading]"), {subtree: true, childList: true, characterData: true})`)
	s.answers(albumOf("maya", 4, 3))
	s.advance(60)
	s.await(`alts() === "photo 4,photo 3"`)
	s.want(`saidAgain`, "0")
	s.answers(albumOf("noor", 7))
	s.advance(60)
	s.await(`$("[part=name]").textContent === "noor" && alts() === "photo 7"`)
	s.want(`saidAgain > 0 && live()`, "polite")
	if tokens := s.made(); tokens != 1 {
		s.Errorf("the site was asked for %d tokens, want 1", tokens)
	}
}

func widgetRenewsItsToken(s *site) {
	s.ttl = 290e9
	s.open(s.element(nil))
	s.awaitQuestions(1)
	for n := range 3 { // the token is used until a minute before it expires
		s.advance(60)
		s.awaitQuestions(n + 2)
	}
	if s.made() != 1 {
		s.Fatalf("%d tokens within the life of the first", s.made())
	}
	s.advance(60)
	all := s.awaitQuestions(5)
	if s.made() != 2 || all[4].token == all[3].token {
		s.Errorf("%d tokens, after four minutes of five", s.made())
	}
	// The widget replaces a refused token at once.
	s.replaceKey()
	s.advance(60)
	all = s.awaitQuestions(7)
	if all[5].token != all[4].token || s.made() != 3 || all[6].token == all[5].token || all[6].tag == "" {
		s.Errorf("%d tokens, asked %v", s.made(), all[4:])
	}
	// If the API refuses the next token, too, the widget tries again later and keeps its photos.
	s.status(http.StatusUnauthorized)
	s.advance(60)
	s.awaitQuestions(9)
	s.want(fmt.Sprintf(`%d + state() + " " + alts()`, s.made()), "4photos photo 3,photo 2,photo 1")
	// So it does if the site cannot make a token.
	s.locked(func() { s.siteStatus = http.StatusInternalServerError })
	s.next()
	s.awaitQuestions(10) // with the last token
	s.want(`state()`, "photos")
	s.locked(func() { s.siteStatus = 0 })
	s.answers(albumOf("pim", 9))
	s.next()
	s.await(`alts() === "photo 9"`)
	s.want(`JSON.stringify([localStorage.length, sessionStorage.length]) + document.documentElement.outerHTML.includes("eyJ")`, "[0,0]false")
}

func widgetForgetsWhoSignedOut(s *site) {
	s.ttl = 59e9 // each question needs another token
	s.open(s.element(nil))
	s.signOut()
	// The site answers for the API, by its session.
	s.locked(func() { s.asked = nil })
	s.open(s.element(map[string]string{"src": "/photos", "token-src": ""}))
	s.signOut()
}

// signOut signs the member out in several ways, and each time signs the next member in.
func (s *site) signOut() {
	s.Helper()
	s.awaitQuestions(1)
	s.await(`live() === "polite"`)
	for i, out := range []struct {
		status int
		signIn string
	}{
		{http.StatusUnauthorized, ""},
		{http.StatusForbidden, ""},
		{http.StatusFound, "/sign-in"},
		{http.StatusSeeOther, "http://sign-in.example/"},
	} {
		s.await(`alts() !== ""`)
		s.locked(func() { s.siteStatus, s.signIn = out.status, out.signIn })
		s.advance(60)
		s.await(`state() === "away"`)
		s.want(`alts() + $("[part=name]").textContent + $("time").textContent + $("time").dateTime + live()`, "off")
		// The next visitor's request has nothing of the last visitor's.
		s.locked(func() { s.siteStatus = 0 })
		s.next()
		s.await(`state() === "photos"`)
		if all := s.awaitQuestions(i + 2); all[i+1].tag != "" || all[i+1].token != "" && all[i+1].token == all[i].token {
			s.Errorf("after %+v asked %v", out, all)
		}
		s.want(`told.at(-1).live`, "off")
	}
}

func widgetOutlivesTheAPI(s *site) {
	s.status(http.StatusServiceUnavailable, "Retry-After", "7")
	s.open(s.element(nil))
	s.await(`state() === "away"`)
	s.want(`shownText() + $("section").getAttribute("aria-busy")`, "Photos cannot be shown now.false")
	// waits awaits the nth question, whose answer cannot be shown, and checks the time until the next.
	waits := func(n int, from, to float64) {
		s.Helper()
		if all := s.awaitQuestions(n); all[n-1].tag != "" {
			s.Errorf("what was no answer has left the tag %s", all[n-1].tag)
		}
		if ms := browsertest.Eval[[]float64](s.Tab, `clock.pending()`); len(ms) != 1 || ms[0] < from*1000 || ms[0] > to*1000 {
			s.Errorf("it waits %v ms, want %v to %v s", ms, from, to)
		}
	}
	waits(1, 8, 9)
	for i, after := range []struct {
		date     string
		from, to float64
	}{
		{browsertest.Eval[string](s.Tab, `new Date(clock.now + 9000 + 99000).toUTCString()`), 100, 104},
		{"99999999999", 3604, 3608},
		{"soon", 8, 16},
	} {
		s.status(http.StatusTooManyRequests, "Retry-After", after.date)
		s.next()
		waits(2+i, after.from, after.to)
	}
	// An answer that cannot be shown is none, and nothing of it is shown.
	const good = `{"viewer_id":"1","contact":{"id":"2","username":"maya","last_upload":5},"photos":[{"id":"3","title":"sea","date_upload":5}]}`
	answers := []string{"null", "<html>", "", "[]", `{"contact":{},"photos":[]}`, `{"photos":[]}`, `{"contact":null,"photos":[null]}`}
	for pair := range slices.Chunk([]string{
		`"last_upload":5`, `"last_upload":8640000000001`, `"last_upload":5`, `"last_upload":"5"`, `"maya"`, `{}`, `"id":"2"`, `"id":null`,
		`"date_upload":5`, `"date_upload":-8640000000001`, `"sea"`, `null`, `"id":"3"`, `"id":3`, `[{"id":"3","title":"sea","date_upload":5}]`, `null`,
	}, 2) {
		answers = append(answers, strings.Replace(good, pair[0], pair[1], 1))
	}
	for i, answer := range answers {
		s.says(answer)
		s.next()
		from := min(16<<min(i, 2), 60)
		waits(5+i, float64(from), min(2*float64(from), 120))
		s.want(`state() + $$("li").length + $("[part=name]").textContent`, "away0")
	}
	n := 4 + len(answers)
	s.locked(func() { s.fault = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) } })
	s.next()
	servertest.Eventually(s.T, "a broken connection", func() bool { return len(s.questions()) > n })
	s.await(`clock.pending().length > 0`)
	n = len(s.questions()) // the browser itself may repeat a broken request
	s.hang()
	s.next()
	servertest.Eventually(s.T, "a question without an answer", func() bool { return len(s.questions()) > n })
	s.advance(19)
	s.want(`clock.pending().length`, "0")
	s.advance(2)
	s.await(`clock.pending().length > 0`)
	s.want(`told.map((e) => e.detail.state).join()`, "loading,away")

	s.answers(albumOf("maya", 3, 2, 1))
	s.next()
	s.await(`state() === "photos"`)
	s.want(`clock.pending() + shownText()`, "60000")
	// With something to show it says nothing, and begins with short pauses again.
	n = len(s.questions())
	for i, fail := range []func(){func() { s.status(http.StatusServiceUnavailable) }, func() { s.says(`{"contact":`) }} {
		fail()
		s.next()
		s.awaitQuestions(n + 1 + i)
		s.want(`(clock.pending()[0] <= 4000) + state() + " " + alts() + shownText()`, "truephotos photo 3,photo 2,photo 1")
	}
	s.answers(albumOf("maya", 3, 2, 1))
	s.next()
	if all := s.awaitQuestions(n + 3); all[n+2].tag == "" {
		s.Error("after a failure it asks without the tag of what it shows")
	}
	s.want(`told.map((e) => e.name).join()`, "state,state,change,state")
}

func widgetShowsNothing(s *site) {
	// A site without thumbs, and an image that is gone: its frame has the title.
	s.open(s.element(map[string]string{"image-src": "/no-thumbs/{id}.jpg"}))
	s.await(`$$("span[part=image]").length === 3`)
	s.want(`$$("img").length + $$("a").map((a) => a.textContent).join()`, "0photo 3,photo 2,photo 1")
	s.want(`$$("[part=image]").every((e) => e.clientWidth > 50 && e.clientHeight === e.clientWidth && getComputedStyle(e).backgroundColor !== "rgba(0, 0, 0, 0)")`, "true")
	s.eval(`w.setAttribute("image-src", "/i/{id}.svg")`) // another image
	s.await(`$$("img").length === 3 && $$("img").every((i) => i.complete && i.naturalWidth > 0)`)

	s.answers(albumOf(""))
	s.open(s.element(nil, `<b slot="empty">Noch nichts</b><b slot="away">Nicht da</b><b slot="loading">Moment</b>`))
	s.await(`state() === "empty"`)
	s.want(`shownText() + " " + [$("[part=heading]"), $("ul")].some((e) => e.checkVisibility())`, "Noch nichts false")
	s.want(`told.map((e) => e.name + " " + (e.detail.state ?? e.detail.contact)).join()`, "state loading,change null,state empty")
	n := len(s.questions())
	s.status(http.StatusServiceUnavailable)
	s.next()
	s.awaitQuestions(n + 1)
	s.want(`state()`, "empty") // a failure does not change that
	s.answers(albumOf("maya", 1))
	s.next()
	s.await(`state() === "photos"`)
	s.answers(albumOf(""))
	s.next()
	s.await(`state() === "empty"`)
	s.want(`alts() + $("[part=name]").textContent`, "")
	s.hang()
	s.open(s.element(nil, `<b slot="loading">Moment</b>`))
	s.await(`state() === "loading"`)
	s.want(`shownText() + " " + $("section").getAttribute("aria-busy")`, "Moment true")
}

func widgetRestsWhileHidden(s *site) {
	s.open(s.element(nil))
	s.awaitQuestions(1)
	s.eval(`setHidden(true)`)
	s.want(`clock.pending().length`, "0")
	s.advance(30)
	s.eval(`setHidden(false)`)
	s.want(`clock.pending().join()`, "30000")
	s.eval(`setHidden(true)`)
	s.advance(600)
	s.want(fmt.Sprintf(`clock.pending().length + " %d"`, len(s.questions())), "0 1")
	s.eval(`setHidden(false)`) // it is due, and asks at once
	s.awaitQuestions(2)
	// Being hidden and seen again while it asks is no reason to ask twice.
	s.hang()
	s.advance(60)
	servertest.Eventually(s.T, "the third question", func() bool { return len(s.questions()) == 3 })
	s.eval(`setHidden(true); setHidden(false)`)
	s.want(`clock.pending().length`, "0")
	s.eval(`setHidden(true)`)
	s.answers(albumOf("noor", 5))
	s.advance(21) // the question is given up
	s.eval(`setHidden(false)`)
	s.await(`clock.pending().length === 1`)
	s.next()
	s.await(`alts() === "photo 5"`)
	// A widget that begins hidden begins when it is seen.
	s.eval(`setHidden(true); window.moved = w; moved.remove(); document.querySelector("main").append(moved)`)
	s.eval(`new Promise((done) => setTimeout(done))`)
	s.want(`state()`, "photos") // being moved is no change
	s.eval(`w.setAttribute("limit", 3)`)
	s.await(`state() === "loading"`)
	if n := len(s.questions()); n != 4 {
		s.Errorf("a hidden page asks: %d questions", n)
	}
	s.eval(`setHidden(false)`)
	s.await(`state() === "photos"`)
}

func widgetFollowsItsAttributes(s *site) {
	s.open(s.element(map[string]string{"refresh": "1", "limit": "99"}))
	if q := s.awaitQuestions(1)[0]; q.query != "limit=50" {
		s.Errorf("asked with %s", q.query)
	}
	// Templates and texts need no question.
	s.eval(`w.setAttribute("photo-href", "/p?id={id}&of={owner}#{id}"); w.setAttribute("image-src", "i/small-{id}.svg"); w.setAttribute("label", "Neu")`)
	s.await(`$("a").href.endsWith("/p?id=3&of=98765#3") && $("img").src === location.origin + "/i/small-3.svg"`)
	s.want(`$("section").getAttribute("aria-label") + " " + clock.pending().join()`, "Neu 10000")
	s.eval(`w.removeAttribute("photo-href")`)
	s.await(`$$("a").length === 0 && $$("img").length === 3`)
	s.eval(`w.setAttribute("photo-href", "/p/{id}"); w.removeAttribute("image-src")`)
	s.await(`$$("a").map((a) => a.textContent).join() === "photo 3,photo 2,photo 1" && $$("img").length === 0`)
	s.eval(`window.before = $("time").textContent; w.lang = "de"`)
	s.await(`$("time").textContent !== before`)
	s.eval(`w.lang = "not_a_language"`)
	s.await(`$("time").textContent === before`)
	// Several changes at once cause a single request.
	s.eval(`w.setAttribute("limit", "many"); w.setAttribute("refresh", "120.5"); w.removeAttribute("token-src"); w.setAttribute("src", "/photos?a=b&limit=7")`)
	s.await(`clock.pending().join() === "120000"`)
	if q := s.awaitQuestions(2)[1]; q.query != "a=b&limit=10" {
		s.Errorf("asked with %s", q.query)
	}
	// Without a token-src it sends no token. The API refuses that, and is not asked twice for it.
	s.eval(fmt.Sprintf(`w.setAttribute("src", "%s/v1/me/recent-contact-photos")`, s.api))
	s.await(`state() === "away"`)
	if q := s.awaitQuestions(3)[2]; q.token != "" {
		s.Errorf("asked %+v", q)
	}
	// A src that is no address asks nothing.
	s.eval(`w.setAttribute("src", "data:application/json,{}")`)
	s.await(`state() === "loading"`)
	s.want(`clock.pending().length`, "0")
	s.eval(`w.hidden = true`)
	s.want(`w.checkVisibility()`, "false")
}

func widgetStopsWhenRemoved(s *site) {
	s.open(s.element(nil))
	s.awaitQuestions(1)
	s.eval(`window.removed = w; w.remove()`)
	s.await(`clock.pending().length === 0 && removed.shadowRoot.querySelectorAll("li").length === 0`)
	// Back again, the widget has forgotten its token and its photos.
	s.eval(`document.querySelector("main").append(removed)`)
	if all := s.awaitQuestions(2); all[1].tag != "" || s.made() != 2 {
		s.Errorf("asked %v, with %d tokens", all, s.made())
	}
	// Replaced widgets leave nothing behind, either: a site replaces them when the member changes.
	s.eval(`const x = w.cloneNode(true); x.id = "x"; x.setAttribute("limit", 2); w.after(x)`)
	s.awaitQuestions(3)
	s.await(`clock.pending().length === 2 && alts("w") !== "" && alts("x") !== ""`)
	s.answers(albumOf("pim", 11))
	s.eval(`told.length = 0; window.removed = w; for (const e of [w, document.getElementById("x")]) e.replaceWith(e.cloneNode(true))`)
	s.await(`alts("w") === "photo 11" && alts("x") === "photo 11" && clock.pending().length === 2`)
	all := s.awaitQuestions(5)
	if all[3].tag+all[4].tag != "" || s.made() != 3 || all[3].token != all[4].token || all[3].token == all[2].token {
		s.Errorf("asked %v, with %d tokens", all, s.made())
	}
	s.want(`told.filter((e) => e.name === "change").map((e) => e.detail.contact.username).join() + removed.shadowRoot.querySelectorAll("li").length`, "pim,pim0")
	s.eval(`document.getElementById("x").remove(); window.removed = w`)
	// A request is given up.
	s.hang()
	s.advance(60)
	servertest.Eventually(s.T, "one more question", func() bool { return len(s.questions()) == 6 })
	s.eval(`removed.remove()`)
	servertest.Eventually(s.T, "the request was given up", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.stopped == 1
	})
	s.advance(600)
	s.eval(`setHidden(true); setHidden(false)`)
	s.want(fmt.Sprintf(`clock.pending().length + " %d"`, len(s.questions())), "0 6")
}

func widgetRunsNoForeignCode(s *site) {
	const title, name = `"><img src=x onerror="faults.push('ran')">`, `<script>faults.push('ran')</script>`
	s.says(`{"viewer_id":"1","contact":{"id":"9/8","username":"<script>faults.push('ran')</script>","last_upload":1700500000},"photos":[` +
		`{"id":"../3?a=b&c#d\"'","title":"\"><img src=x onerror=\"faults.push('ran')\">","date_upload":1700500000},` +
		`{"id":"2","title":"  ","date_upload":1700500000},{"id":"\ud800","title":"javascript:faults.push('ran')","date_upload":-8640000000000}]}`)
	// Forms and images of the page may have the names of a document's properties, which they hide.
	var names strings.Builder
	for _, name := range []string{"createElement", "hidden", "baseURI", "addEventListener", "implementation", "body", "visibilityState", "defaultView", "constructor"} {
		fmt.Fprintf(&names, `<form name=%[1]s id=%[1]s><input name=getAttribute><input name=lang></form><img name=%[1]s alt="">`, name)
	}
	s.open(names.String() + s.element(map[string]string{"photo-href": "/{owner}/{id}/{other}", "image-src": "/i/{id}/{owner}.svg", "lang": "en"}))
	s.await(`state() === "photos"`)
	s.want(`document.hidden instanceof HTMLCollection`, "true")
	s.want(`$("[part=name]").textContent + $$("img")[0].alt`, name+title)
	s.want(`$$("img")[1].alt === $("time").textContent`, "true") // a photo without a title goes by its time
	s.want(`$$("a")[0].href.replace(location.origin, "")`, `/9%2F8/..%2F3%3Fa%3Db%26c%23d%22'/%7Bother%7D`)
	s.want(`$$("img")[0].src.replace(location.origin, "")`, `/i/..%2F3%3Fa%3Db%26c%23d%22'/9%2F8.svg`)
	s.want(`$$("a").length + " " + $$("script, [onerror]").length + document.querySelectorAll("[onerror]").length`, "2 00") // half a character is in no address
	for _, template := range []string{
		"javascript:faults.push('ran')//{id}", " java\tscript:faults.push('ran')//{id}", "JAVASCRIPT:faults.push(1)", "data:text/html,{id}", "blob:{id}", "ftp://photos.example/{id}", "http://[{id}", "//",
	} {
		s.eval(fmt.Sprintf(`w.setAttribute("photo-href", %q); w.setAttribute("image-src", %[1]q)`, template))
		s.await(`$$("a, img").length === 0 && $$("li").length === 3`)
		s.want(`$("[part=photo]").textContent`, title)
		s.eval(`w.setAttribute("photo-href", "/p/{id}")`)
		s.await(`$$("a").length === 2`)
	}
}

func widgetSharesQuestions(s *site) {
	s.open(s.element(nil) + s.element(map[string]string{"id": "x", "photo-href": "/p/{id}", "label": "The same"}))
	s.await(`state("w") === "photos" && state("x") === "photos"`)
	s.awaitQuestions(1)
	s.want(`told.filter((e) => e.name === "change").map((e) => e.on) + " " + (told.find((e) => e.on === "w" && e.name === "change").detail === told.find((e) => e.on === "x" && e.name === "change").detail)`, "w,x false")
	// Another limit is another question, with the same token.
	s.eval(`x.setAttribute("limit", 2)`)
	s.await(`clock.pending().length === 2`)
	if all := s.awaitQuestions(2); s.made() != 1 || all[1].query != "limit=2" || all[1].token != all[0].token {
		s.Errorf("%d tokens, asked %v", s.made(), all)
	}
	// A later widget shows the other widgets' photos, at once.
	s.eval(`const y = w.cloneNode(true); y.id = "y"; document.body.append(y)`)
	s.await(`state("y") === "photos" && alts("y") === alts("w")`)
	// The widgets renew a refused token once, and go on without the removed widget.
	s.replaceKey()
	s.eval(`y.remove()`)
	s.advance(60)
	servertest.Eventually(s.T, "two refused questions and two others", func() bool { return len(s.questions()) == 6 })
	s.await(`clock.pending().length === 2`)
	all := s.questions()[4:]
	if s.made() != 2 || all[0].token != all[1].token {
		s.Errorf("%d tokens, asked %v", s.made(), all)
	}
	// The module, loaded again by another address, changes nothing.
	s.eval(fmt.Sprintf(`import("%s/widget.js?again").then(() => true)`, s.api))
}

// emulate sets a media feature.
func (s *site) emulate(name, value string) {
	s.Helper()
	s.Emulate(emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: name, Value: value}}})
}

func widgetGoesByThePage(s *site) {
	s.openIn("ar", "rtl", s.element(nil))
	s.await(`alts() !== ""`)
	s.want(`getComputedStyle($("ul")).direction`, "rtl")
	s.want(`$$("li").every((li, i, all) => i === 0 || li.getBoundingClientRect().right < all[i - 1].getBoundingClientRect().left)`, "true")
	s.want(`$("time").textContent === new Date(1700500003000).toLocaleString("ar", {dateStyle: "medium", timeStyle: "short"})`, "true")
	// Colours are the page's, in both schemes, until a site chooses its own. Nothing moves.
	colour := `getComputedStyle($("bdi")).color`
	for scheme, want := range map[string]string{"light": "rgb(0, 0, 0)", "dark": "rgb(255, 255, 255)"} {
		s.emulate("prefers-color-scheme", scheme)
		s.want(colour, want)
	}
	s.eval(`w.style.cssText = "--rcp-color: rgb(1, 2, 3); --rcp-background: rgb(250, 250, 250); --rcp-size: 20rem; --rcp-gap: 5px"`)
	s.want(colour+` + getComputedStyle(w).backgroundColor + getComputedStyle($("ul")).gap + ($("img").clientWidth === $("li").clientWidth)`, "rgb(1, 2, 3)rgb(250, 250, 250)5pxtrue")
	s.want(`$$("*").concat(w).filter((e) => getComputedStyle(e).transitionDuration !== "0s" || getComputedStyle(e).animationName !== "none").length`, "0")

	var order []string
	for range 5 {
		s.Do(chromedp.KeyEvent("\t"))
		order = append(order, browsertest.Eval[string](s.Tab, `(document.activeElement === w ? w.shadowRoot.activeElement : document.activeElement).getAttribute("href")`))
	}
	if want := []string{"#before", "https://photos.example/98765/3", "https://photos.example/98765/2", "https://photos.example/98765/1", "#after"}; !slices.Equal(order, want) {
		s.Errorf("the tabulator goes to %q, want %q", order, want)
	}
	s.Do(chromedp.KeyEvent("\t", chromedp.KeyModifiers(8))) // with shift, back
	outline := `getComputedStyle(w.shadowRoot.activeElement)`
	s.want(outline+`.outlineStyle + " " + `+outline+`.outlineWidth`, "solid 3px")
	s.emulate("forced-colors", "active")
	s.want(outline+`.outlineColor === getComputedStyle(Object.assign(document.body.appendChild(document.createElement("i")), {id: "i"})).color`, "false")
}

func widgetHasNoBarriers(s *site) {
	for state, prepare := range map[string]func(){
		"photos":  func() { s.answers(albumOf("maya", 3, 2, 1)) },
		"empty":   func() { s.answers(contacts.Album{}) },
		"away":    func() { s.status(http.StatusServiceUnavailable) },
		"loading": s.hang,
	} {
		prepare()
		for lang, dir := range map[string]string{"en": "ltr", "ar": "rtl"} {
			s.openIn(lang, dir, s.element(nil)+s.element(map[string]string{"id": "x", "image-src": "", "label": "By name"})+
				s.element(map[string]string{"id": "y", "photo-href": "", "image-src": "/none/{id}", "label": "No links"}))
			s.await(fmt.Sprintf(`["w", "x", "y"].every((id) => state(id) === %q)`, state))
			s.await(`$$("img").every((i) => i.complete) && $$("img", "y").length === 0`)
			for _, scheme := range []string{"light", "dark"} {
				s.emulate("prefers-color-scheme", scheme)
				if found := s.barriers(); found != "" {
					s.Errorf("%s, %s, %s: axe-core finds\n%s", state, dir, scheme, found)
				}
			}
		}
	}
	// axe-core does find real violations.
	s.answers(albumOf("maya", 3))
	s.open(s.element(map[string]string{"label": ""}))
	s.await(`state() === "photos"`)
	s.eval(`$("img").removeAttribute("alt"); $("[part=name]").style.cssText = "color: #bbb; background: #fff"`)
	found := s.barriers()
	for _, rule := range []string{"image-alt", "link-name", "color-contrast"} {
		if !strings.Contains(found, rule+": ") {
			s.Errorf("axe-core does not find %s:\n%s", rule, found)
		}
	}
}
