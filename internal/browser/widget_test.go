package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/recent"
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
		{"takes no malformed answer", widgetTakesNoMalformedAnswer},
		{"shows titles in place of images", widgetShowsTitlesInPlaceOfImages},
		{"works beside the page's own names", widgetWorksBesideThePagesNames},
		{"shows that there is nothing", widgetShowsNothing},
		{"does not ask while hidden", widgetRestsWhileHidden},
		{"follows its attributes", widgetFollowsItsAttributes},
		{"stops when removed", widgetStopsWhenRemoved},
		{"takes what it is given as text", widgetRunsNoForeignCode},
		{"asks once for two of the same", widgetSharesQuestions},
		{"goes by the page's direction and language", widgetGoesByThePage},
		{"is used by keyboard", widgetIsUsedByKeyboard},
		{"has no barriers", widgetHasNoBarriers},
		{"goes with the API", widgetGoesWithTheAPI},
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
	s.want(`$("[part=name]").textContent`, "maya")
	s.want(`$("time").dateTime`, "2023-11-20T17:06:43.000Z")
	s.want(`$("time").textContent`, s.text(`new Date(1700500003000).toLocaleString("en", {dateStyle: "medium", timeStyle: "short"})`))
	s.want(`alts()`, "photo 3,photo 2,photo 1")
	s.want(`$$("a").map((a) => a.href).join()`, "https://photos.example/98765/3,https://photos.example/98765/2,https://photos.example/98765/1")
	s.want(`$$("img").map((i) => i.src.replace(location.origin, "")).join()`, "/i/3.svg,/i/2.svg,/i/1.svg")
	s.want(`$$("[part]").map((e) => e.part.value).filter((p, i, all) => all.indexOf(p) === i).join()`, "region,heading,name,time,photos,item,photo,image,status")
	s.want(`shownText()`, "")
	s.want(`$("section").getAttribute("role") + "|" + $("section").getAttribute("aria-label") + "|" + $("section").getAttribute("aria-busy")`, "region|Recent photos of a contact|false")
	s.await(`$$("img").every((i) => i.complete && i.naturalWidth > 0)`)
	s.want(`told.map((e) => e.name + " " + (e.detail.state ?? e.detail.contact.username) + " " + e.composed).join()`, "state loading true,change maya true,state photos true")
	if got, want := s.text(`JSON.stringify(told[1].detail)`), s.answer; !sameJSON(s, got, want) {
		s.Errorf("the event tells %s, want %s", got, want)
	}

	// The first answer was there before changes are announced.
	s.want(`told.map((e) => e.live).join()`, "off,off,off")
	s.await(`live() === "polite"`)

	// Asked again, the API says that nothing changed; so nothing changes and no event is fired.
	s.eval(`window.before = $$("li"); window.said = 0;
		new MutationObserver((all) => { said += all.length; }).observe(w.shadowRoot, {subtree: true, childList: true, characterData: true}); $("a").focus()`)
	s.advance(59.9)
	s.want(`clock.pending().map(Math.round).join()`, "100") // it has not asked
	if n := len(s.questions()); n != 1 {
		s.Errorf("asked %d times within a minute, want once", n)
	}
	s.eval(`clock.random = 0`) // the next time it asks after nine tenths: many that began together do not stay together
	s.advance(0.2)
	second := s.awaitQuestions(2)[1]
	s.await(`clock.pending().join() === "54000"`)
	s.eval(`clock.random = 1`)
	if second.tag == "" || second.token != first.token {
		s.Errorf("the second question is %+v, after %+v", second, first)
	}
	s.want(`said + " " + told.length + " " + $$("li").every((li, i) => li === before[i])`, "0 3 true")

	// A new photo comes in front, the oldest goes, and the focus stays where it was.
	s.answers(answerOf("maya", 4, 3, 2))
	s.advance(60)
	s.awaitQuestions(3)
	s.await(`alts() === "photo 4,photo 3,photo 2"`)
	s.want(`w.shadowRoot.activeElement === $$("a")[1] && before[0] === $$("li")[1]`, "true")
	s.want(`told[3].live + " " + told.length + " " + told[3].detail.photos[0].id`, "polite 4 4")

	// The widget loses only an older photo: it does not announce the line with name and time again.
	s.eval(`window.saidAgain = 0;
		new MutationObserver((all) => { saidAgain += all.length; }).observe($("[part=heading]"), {subtree: true, childList: true, characterData: true})`)
	s.answers(answerOf("maya", 4, 3))
	s.advance(60)
	s.await(`alts() === "photo 4,photo 3"`)
	s.want(`saidAgain`, "0")

	// Another contact.
	s.answers(answerOf("noor", 7))
	s.advance(60)
	s.await(`$("[part=name]").textContent === "noor" && alts() === "photo 7"`)
	s.want(`saidAgain > 0 && live()`, "polite")
	if tokens := s.made(); tokens != 1 {
		s.Errorf("the site was asked for %d tokens, want 1", tokens)
	}
}

func sameJSON(s *site, a, b string) bool {
	s.Helper()
	normal := func(text string) string {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			s.Fatal(err)
		}
		again, err := json.Marshal(v)
		if err != nil {
			s.Fatal(err)
		}
		return string(again)
	}
	return normal(a) == normal(b)
}

func widgetRenewsItsToken(s *site) {
	s.locked(func() { s.life = 300 })
	s.open(s.element(nil))
	s.awaitQuestions(1)
	// The token is used until a minute before it expires.
	for n := range 3 {
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
	s.locked(func() { s.refused[all[4].token] = true })
	s.advance(60)
	all = s.awaitQuestions(7)
	if all[5].token != all[4].token || s.made() != 3 || all[6].token == all[5].token {
		s.Errorf("%d tokens, asked %v", s.made(), all[4:])
	}
	s.want(`state()`, "photos")
	// If the API refuses the next token, too, the widget tries again later and keeps its photos.
	s.status(http.StatusUnauthorized, nil)
	s.advance(60)
	all = s.awaitQuestions(9)
	if s.made() != 4 {
		s.Errorf("%d tokens", s.made())
	}
	s.want(`state() + " " + alts()`, "photos photo 3,photo 2,photo 1")
	// So it does if the site cannot make a token.
	s.locked(func() { s.siteStatus = http.StatusInternalServerError })
	s.next()
	servertest.Eventually(s.T, "asked with the last token", func() bool { return len(s.questions()) == len(all)+1 })
	s.await(`clock.pending().length > 0`)
	s.want(`state()`, "photos")
	s.locked(func() { s.siteStatus = 0 })
	s.answers(answerOf("pim", 9))
	s.next()
	s.await(`alts() === "photo 9"`)
	s.want(`JSON.stringify([localStorage.length, sessionStorage.length]) + document.documentElement.outerHTML.includes("e30.")`, "[0,0]false")
}

func widgetForgetsWhoSignedOut(s *site) {
	s.locked(func() { s.life = 60 }) // each question needs another token
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
	s.status(http.StatusServiceUnavailable, map[string]string{"Retry-After": "7"})
	s.open(s.element(nil))
	s.await(`state() === "away"`)
	s.want(`shownText()`, "Photos cannot be shown now.")
	s.want(`$("section").getAttribute("aria-busy")`, "false")
	waits := func(from, to float64) {
		s.Helper()
		if ms := browsertest.Eval[[]float64](s.Tab, `clock.pending()`); len(ms) != 1 || ms[0] < from*1000 || ms[0] > to*1000 {
			s.Errorf("it waits %v ms, want %v to %v s", ms, from, to)
		}
	}
	fails := func(n int) []asked { s.Helper(); return s.awaitQuestions(n) }
	waits(8, 9)
	s.status(http.StatusTooManyRequests, map[string]string{"Retry-After": s.text(`new Date(clock.now + 9000 + 99000).toUTCString()`)})
	s.next()
	fails(2)
	waits(100, 104)
	s.status(http.StatusInternalServerError, map[string]string{"Retry-After": "99999999999"})
	s.next()
	fails(3)
	waits(3604, 3608)
	s.status(http.StatusTeapot, map[string]string{"Retry-After": "soon"})
	s.next()
	fails(4)
	waits(8, 16)
	// Bodies that are no answers, a broken network, and a missing answer.
	s.answers("null")
	s.next()
	if all := fails(5); all[4].tag != "" {
		s.Errorf("asked %+v", all[4])
	}
	waits(16, 32)
	s.answers("<html>")
	s.next()
	if all := fails(6); all[5].tag != "" {
		s.Errorf("what was no answer has left the tag %s", all[5].tag)
	}
	waits(32, 64)
	s.answers(`{"contact":{"id":"1","username":"maya","last_upload":1},"photos":null}`)
	s.next()
	if all := fails(7); all[6].tag != "" {
		s.Errorf("an answer without photos has left the tag %s", all[6].tag)
	}
	waits(60, 120)
	s.locked(func() {
		s.fault = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	})
	s.next()
	servertest.Eventually(s.T, "a broken connection", func() bool { return len(s.questions()) >= 8 })
	s.await(`clock.pending().length > 0`)
	waits(60, 120)
	n := len(s.questions()) // the browser itself may repeat a broken request
	s.hang()
	s.next()
	servertest.Eventually(s.T, "a question without an answer", func() bool { return len(s.questions()) > n })
	s.advance(19)
	s.want(`clock.pending().length`, "0")
	s.advance(2)
	s.await(`clock.pending().length > 0`)
	waits(60, 120)
	s.want(`told.map((e) => e.detail.state).join()`, "loading,away")

	s.answers(answerOf("maya", 3, 2, 1))
	s.next()
	s.await(`state() === "photos"`)
	waits(60, 60)
	s.want(`shownText()`, "")
	// With something to show it says nothing, and begins with short pauses again.
	s.status(http.StatusServiceUnavailable, nil)
	n = len(s.questions())
	s.advance(60)
	fails(n + 1)
	waits(1, 2)
	s.want(`state() + " " + alts() + shownText()`, "photos photo 3,photo 2,photo 1")
	s.answers(answerOf("maya", 3, 2, 1))
	s.next()
	all := s.awaitQuestions(n + 2)
	if all[n+1].tag == "" {
		s.Error("after a failure it asks without the tag of what it shows")
	}
	s.want(`told.map((e) => e.name).join()`, "state,state,change,state")
}

// An answer that cannot be shown is none, and nothing of it is.
func widgetTakesNoMalformedAnswer(s *site) {
	contact := func(changes string) string {
		return `{"viewer_id":"1","contact":{"id":"2","username":"maya","last_upload":5` + changes + `},"photos":[]}`
	}
	photo := func(changes string) string {
		return `{"viewer_id":"1","contact":{"id":"2","username":"maya","last_upload":5},"photos":[{"id":"3","title":"sea","date_upload":5` + changes + `}]}`
	}
	for _, answer := range []string{
		contact(`,"last_upload":8640000000001`), contact(`,"last_upload":1e999`), contact(`,"last_upload":"5"`), contact(`,"last_upload":null`), contact(`,"last_upload":[5]`),
		contact(`,"username":7`), contact(`,"username":{}`), contact(`,"id":null`), contact(`,"id":{"toString":1}`),
		photo(`,"date_upload":-8640000000001`), photo(`,"date_upload":true`), photo(`,"title":7`), photo(`,"title":null`), photo(`,"id":3`),
		`{"contact":{},"photos":[]}`, `{"contact":null}`, `{"photos":[]}`, `{"contact":[],"photos":[]}`, `{"contact":"maya","photos":[]}`,
		`{"contact":null,"photos":""}`, `{"contact":null,"photos":{}}`, `{"contact":null,"photos":[null]}`, `{"contact":null,"photos":["sea"]}`,
		`null`, `5`, `"maya"`, `[]`, `{}`, `{"contact":`, ``, `<html>`,
	} {
		s.answers(answer)
		s.open(s.element(nil))
		s.await(`clock.pending().length > 0`)
		s.await(`state() !== "loading"`)
		s.want(`state() + $$("li").length + $("[part=name]").textContent + shownText()`, "away0Photos cannot be shown now.")
		s.calm()
	}
	// The last second that there is, and half a character: they can be shown, without a link.
	s.answers(`{"contact":{"id":"\ud800","username":"maya","last_upload":8640000000000},"photos":[{"id":"\ud800","title":" ","date_upload":-8640000000000}]}`)
	s.next()
	s.await(`state() === "photos"`)
	s.want(`$("time").dateTime + $$("li").length + $$("a").length`, "+275760-09-13T00:00:00.000Z10")
	// Where something is shown it stays.
	s.answers(photo(`,"date_upload":8640000000001`))
	s.advance(60)
	s.await(`clock.pending().length === 1 && clock.pending()[0] <= 2000`)
	s.want(`state() + $("[part=name]").textContent`, "photosmaya")
}

// A site without thumbs, and an image that is gone: its frame has the title.
func widgetShowsTitlesInPlaceOfImages(s *site) {
	s.open(s.element(map[string]string{"image-src": "/no-thumbs/{id}.jpg"}))
	s.await(`$$("span[part=image]").length === 3`)
	s.want(`$$("img").length + $$("a").map((a) => a.textContent).join()`, "0photo 3,photo 2,photo 1")
	s.want(`$$("[part=image]").every((e) => e.clientWidth > 50 && e.clientHeight === e.clientWidth && getComputedStyle(e).backgroundColor !== "rgba(0, 0, 0, 0)")`, "true")
	if found := s.barriers(); found != "" {
		s.Errorf("axe-core finds\n%s", found)
	}
	// Another address is another image.
	s.eval(`w.setAttribute("image-src", "/i/{id}.svg")`)
	s.await(`$$("img").length === 3 && $$("img").every((i) => i.complete && i.naturalWidth > 0)`)
	s.want(`$$("span[part=image]").length`, "0")
}

// Forms and images of the page may have the names of a document's properties, which they hide.
func widgetWorksBesideThePagesNames(s *site) {
	var names strings.Builder
	hidden := []string{"createElement", "hidden", "baseURI", "addEventListener", "implementation", "body", "visibilityState", "defaultView", "constructor"}
	for _, name := range hidden {
		fmt.Fprintf(&names, `<form name=%[1]s id=%[1]s><input name=getAttribute><input name=lang></form><img name=%[1]s alt="">`, name)
	}
	s.open(names.String() + s.element(map[string]string{"photo-href": "p/{id}", "lang": "en"}))
	for _, name := range hidden {
		s.want("document."+name+" instanceof HTMLCollection", "true")
	}
	s.await(`state() === "photos"`)
	s.want(`alts() + $("a").href.replace(location.origin, "")`, "photo 3,photo 2,photo 1/p/3")
	s.eval(`setHidden(true)`)
	s.want(`clock.pending().length`, "0")
	s.eval(`setHidden(false)`)
	s.want(`clock.pending().length`, "1")
}

func widgetShowsNothing(s *site) {
	s.answers(answerWith(nil, []any{}))
	s.open(s.element(nil, `<b slot="empty">Noch nichts</b><b slot="away">Nicht da</b><b slot="loading">Moment</b>`))
	s.await(`state() === "empty"`)
	s.want(`shownText() + " " + [$("[part=heading]"), $("ul")].some((e) => e.checkVisibility())`, "Noch nichts false")
	s.want(`told.map((e) => e.name + " " + (e.detail.state ?? e.detail.contact)).join()`, "state loading,change null,state empty")
	// A failure does not change that.
	s.status(http.StatusServiceUnavailable, nil)
	s.next()
	s.awaitQuestions(2)
	s.want(`state()`, "empty")
	s.answers(answerOf("maya", 1))
	s.next()
	s.await(`state() === "photos"`)
	s.answers(answerWith(nil, []any{}))
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
	s.want(`clock.pending().length`, "0")
	if n := len(s.questions()); n != 1 {
		s.Errorf("a hidden page has asked %d times, want once before", n)
	}
	s.eval(`setHidden(false)`) // it is due, and asks at once
	s.awaitQuestions(2)
	s.want(`clock.pending().join()`, "60000")
	// Being hidden and seen again while it asks is no reason to ask twice.
	s.hang()
	s.advance(60)
	servertest.Eventually(s.T, "the third question", func() bool { return len(s.questions()) == 3 })
	s.eval(`setHidden(true)`)
	s.eval(`setHidden(false)`)
	s.want(`clock.pending().length`, "0")
	s.eval(`setHidden(true)`)
	s.answers(answerOf("noor", 5))
	s.advance(21) // the question is given up
	s.eval(`setHidden(false)`)
	s.await(`clock.pending().length === 1`)
	s.next()
	s.await(`alts() === "photo 5"`)
	// A widget that begins hidden begins when it is seen.
	n := len(s.questions())
	s.eval(`setHidden(true); window.moved = w; moved.remove(); document.querySelector("main").append(moved)`)
	s.eval(`new Promise((done) => setTimeout(done))`)
	s.want(`state()`, "photos") // being moved is no change
	s.eval(`w.setAttribute("limit", 3)`)
	s.await(`state() === "loading"`)
	if got := len(s.questions()); got != n {
		s.Errorf("a hidden page asks")
	}
	s.eval(`setHidden(false)`)
	s.await(`state() === "photos"`)
}

func widgetFollowsItsAttributes(s *site) {
	s.open(s.element(map[string]string{"refresh": "1", "limit": "99"}))
	if q := s.awaitQuestions(1)[0]; q.query != "limit=50" {
		s.Errorf("asked with %s", q.query)
	}
	s.want(`clock.pending().join()`, "10000")
	// Templates and texts need no question.
	s.eval(`w.setAttribute("photo-href", "/p?id={id}&of={owner}#{id}"); w.setAttribute("image-src", "i/small-{id}.svg"); w.setAttribute("label", "Neu")`)
	s.await(`$("a").href.endsWith("/p?id=3&of=98765#3") && $("img").src === location.origin + "/i/small-3.svg"`)
	s.want(`$("section").getAttribute("aria-label") + " " + clock.pending().join()`, "Neu 10000")
	s.eval(`w.removeAttribute("photo-href")`)
	s.await(`$$("a").length === 0 && $$("img").length === 3`)
	s.eval(`w.setAttribute("photo-href", "/p/{id}"); w.removeAttribute("image-src")`)
	s.await(`$$("a").map((a) => a.textContent).join() === "photo 3,photo 2,photo 1" && $$("img").length === 0`)
	before := s.text(`$("time").textContent`)
	s.eval(`w.lang = "de"`)
	s.await(fmt.Sprintf(`$("time").textContent !== %q`, before))
	s.eval(`w.lang = "not_a_language"`)
	s.await(fmt.Sprintf(`$("time").textContent === %q`, before))
	// Several changes at once cause a single request.
	s.eval(`w.setAttribute("limit", "many"); w.setAttribute("refresh", "120.5"); w.setAttribute("src", w.getAttribute("src") + "?a=b&limit=7")`)
	s.await(`clock.pending().join() === "120000"`)
	if q := s.awaitQuestions(2)[1]; q.query != "a=b&limit=10" {
		s.Errorf("asked with %s", q.query)
	}
	// Without a token-src it sends no token. The API refuses that, and is not asked twice for it.
	s.eval(`w.removeAttribute("token-src")`)
	s.await(`state() === "away"`)
	if q := s.awaitQuestions(3)[2]; q.token != "" || s.made() != 2 {
		s.Errorf("asked %+v, with %d tokens", q, s.made())
	}
	// A src that is no address asks nothing.
	s.eval(`w.setAttribute("src", "data:application/json,{}")`)
	s.await(`state() === "loading"`)
	s.want(`clock.pending().length`, "0")
	// hidden is the browser's own.
	s.eval(`w.hidden = true`)
	s.want(`w.checkVisibility()`, "false")
}

func widgetStopsWhenRemoved(s *site) {
	s.open(s.element(nil))
	s.awaitQuestions(1)
	s.eval(`window.removed = w; w.remove()`)
	s.await(`clock.pending().length === 0 && removed.shadowRoot.querySelectorAll("li").length === 0`)
	s.advance(600)
	// Back again, the widget has forgotten its token and its photos.
	s.eval(`document.querySelector("main").append(removed)`)
	if all := s.awaitQuestions(2); all[1].tag != "" || s.made() != 2 {
		s.Errorf("asked %v, with %d tokens", all, s.made())
	}
	// A replaced widget leaves nothing behind, either: a site replaces it when the member changes.
	s.await(`alts() === "photo 3,photo 2,photo 1"`)
	for i, other := range []string{`w.cloneNode(true)`, `document.createElement(w.localName)`} {
		n, made := len(s.questions()), s.made()
		s.answers(answerOf("noor", 8+i))
		s.eval(`told.length = 0; {
			const other = ` + other + `;
			for (const {name, value} of w.attributes) other.setAttribute(name, value);
			window.removed = w;
			w.replaceWith(other);
		}`)
		s.await(fmt.Sprintf(`alts() === "photo %d"`, 8+i))
		if all := s.awaitQuestions(n + 1); all[n].tag != "" || s.made() != made+1 || all[n].token == all[n-1].token {
			s.Errorf("%s: asked %v, with %d tokens after %d", other, all, s.made(), made)
		}
		s.want(`told.map((e) => e.detail.state ?? e.detail.contact.username).join()`, "loading,noor,photos")
		s.want(`removed.shadowRoot.querySelectorAll("li").length`, "0")
	}
	// So it is with all that are replaced together.
	n, made := len(s.questions()), s.made()
	s.eval(`const x = w.cloneNode(true); x.id = "x"; x.setAttribute("limit", 2); w.after(x)`)
	s.await(`clock.pending().length === 2`)
	s.answers(answerOf("pim", 11))
	s.eval(`told.length = 0; for (const e of [w, document.getElementById("x")]) e.replaceWith(e.cloneNode(true))`)
	s.await(`alts("w") === "photo 11" && alts("x") === "photo 11" && clock.pending().length === 2`)
	all := s.awaitQuestions(n + 3)
	if all[n+1].tag+all[n+2].tag != "" || s.made() != made+1 || all[n+1].token != all[n+2].token || all[n+1].token == all[n].token {
		s.Errorf("asked %v, with %d tokens after %d", all, s.made(), made)
	}
	s.want(`told.filter((e) => e.name === "change").map((e) => e.detail.contact.username).join()`, "pim,pim")
	s.eval(`document.getElementById("x").remove(); window.removed = w`)
	// A request is given up.
	s.hang()
	s.advance(60)
	servertest.Eventually(s.T, "one more question", func() bool { return len(s.questions()) == n+4 })
	s.eval(`removed.remove()`)
	servertest.Eventually(s.T, "the request was given up", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.stopped == 1
	})
	s.want(`clock.pending().length`, "0")
	s.advance(600)
	s.eval(`setHidden(true); setHidden(false)`)
	s.want(`clock.pending().length`, "0")
	if len(s.questions()) != n+4 {
		s.Errorf("asked %d times, want %d", len(s.questions()), n+4)
	}
}

func widgetRunsNoForeignCode(s *site) {
	const title, name, id = `"><img src=x onerror="faults.push('ran')">`, `<script>faults.push('ran')</script>`, `../3?a=b&c#d"'`
	photo := func(id, title string) map[string]any {
		return map[string]any{"id": id, "title": title, "date_upload": 1_700_500_000}
	}
	s.answers(answerWith(map[string]any{"id": "9/8", "username": name, "last_upload": 1_700_500_000}, []any{
		photo(id, title), photo("2", "  "), photo("1", "javascript:faults.push('ran')"),
	}))
	s.open(s.element(map[string]string{"photo-href": "/{owner}/{id}/{other}", "image-src": "/i/{id}/{owner}.svg"}))
	s.await(`state() === "photos"`)
	s.want(`$("[part=name]").textContent`, name)
	s.want(`$$("img")[0].alt`, title)
	s.want(`$$("img")[1].alt`, s.text(`$("time").textContent`)) // a photo without a title goes by its time
	s.want(`$$("a")[0].href.replace(location.origin, "")`, `/9%2F8/..%2F3%3Fa%3Db%26c%23d%22'/%7Bother%7D`)
	s.want(`$$("img")[0].src.replace(location.origin, "")`, `/i/..%2F3%3Fa%3Db%26c%23d%22'/9%2F8.svg`)
	s.want(`$$("script, [onerror]").length + document.querySelectorAll("[onerror]").length`, "0")
	for _, template := range []string{
		"javascript:faults.push('ran')//{id}", " java\tscript:faults.push('ran')//{id}", "JAVASCRIPT:faults.push(1)", "data:text/html,{id}", "blob:{id}", "ftp://photos.example/{id}", "http://[{id}", "//",
	} {
		s.eval(fmt.Sprintf(`w.setAttribute("photo-href", %q); w.setAttribute("image-src", %q)`, template, template))
		s.await(`$$("a, img").length === 0 && $$("li").length === 3`)
		s.want(`$("[part=photo]").textContent`, title)
		s.eval(`w.setAttribute("photo-href", "/p/{id}")`)
		s.await(`$$("a").length === 3`)
	}
}

func widgetSharesQuestions(s *site) {
	other := map[string]string{"id": "x", "photo-href": "/p/{id}", "label": "The same"}
	s.open(s.element(nil) + s.element(other))
	s.await(`state("w") === "photos" && state("x") === "photos"`)
	s.awaitQuestions(1)
	s.want(`told.filter((e) => e.name === "change").map((e) => e.on).join()`, "w,x")
	s.want(`told.find((e) => e.on === "w" && e.name === "change").detail === told.find((e) => e.on === "x" && e.name === "change").detail`, "false")
	s.want(`clock.pending().join()`, "60000")
	// Another limit is another question, with the same token.
	s.eval(`x.setAttribute("limit", 2)`)
	s.await(`clock.pending().length === 2`)
	if all := s.awaitQuestions(2); s.made() != 1 || all[1].query != "limit=2" || all[1].token != all[0].token {
		s.Errorf("%d tokens, asked %v", s.made(), all)
	}
	// A later widget shows the other widgets' photos, at once.
	s.eval(`const y = w.cloneNode(true); y.id = "y"; document.body.append(y)`)
	s.await(`state("y") === "photos" && alts("y") === alts("w")`)
	if n := len(s.questions()); n != 2 {
		s.Errorf("asked %d times, want 2", n)
	}
	// The widgets renew a refused token once, and go on without the removed widget.
	s.locked(func() { s.refused[s.asked[0].token] = true })
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

func widgetGoesByThePage(s *site) {
	s.openIn("ar", "rtl", s.element(nil))
	s.await(`alts() !== ""`)
	s.want(`getComputedStyle($("ul")).direction`, "rtl")
	s.want(`$$("li").every((li, i, all) => i === 0 || li.getBoundingClientRect().right < all[i - 1].getBoundingClientRect().left)`, "true")
	s.want(`$("[part=name]").getBoundingClientRect().left > $("time").getBoundingClientRect().right`, "true")
	s.want(`$("time").textContent`, s.text(`new Date(1700500003000).toLocaleString("ar", {dateStyle: "medium", timeStyle: "short"})`))
	s.want(`document.documentElement.scrollWidth <= innerWidth`, "true")

	// Colours are the page's, in both schemes, until a site chooses its own.
	colour := `getComputedStyle($("bdi")).color`
	for scheme, want := range map[string]string{"light": "rgb(0, 0, 0)", "dark": "rgb(255, 255, 255)"} {
		s.Emulate(emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		s.want(colour, want)
	}
	s.eval(`w.style.setProperty("--rcp-color", "rgb(1, 2, 3)"); w.style.setProperty("--rcp-background", "rgb(250, 250, 250)"); w.style.setProperty("--rcp-size", "20rem"); w.style.setProperty("--rcp-gap", "5px")`)
	s.want(colour+` + getComputedStyle(w).backgroundColor + getComputedStyle($("ul")).gap + $("img").clientWidth`, "rgb(1, 2, 3)rgb(250, 250, 250)5px"+s.text(`String($("li").clientWidth)`))
	// Nothing moves, whatever the visitor prefers.
	s.want(`$$("*").concat(w).filter((e) => getComputedStyle(e).transitionDuration !== "0s" || getComputedStyle(e).animationName !== "none").length`, "0")
}

func widgetIsUsedByKeyboard(s *site) {
	s.open(s.element(nil))
	s.await(`alts() !== ""`)
	var order []string
	for range 5 {
		s.Do(chromedp.KeyEvent("\t"))
		order = append(order, s.text(`(document.activeElement === w ? w.shadowRoot.activeElement : document.activeElement).getAttribute("href")`))
	}
	if want := []string{"#before", "https://photos.example/98765/3", "https://photos.example/98765/2", "https://photos.example/98765/1", "#after"}; !slices.Equal(order, want) {
		s.Errorf("the tabulator goes to %q, want %q", order, want)
	}
	s.Do(chromedp.KeyEvent("\t", chromedp.KeyModifiers(8))) // with shift, back
	outline := `getComputedStyle(w.shadowRoot.activeElement)`
	s.want(outline+`.outlineStyle + " " + `+outline+`.outlineWidth`, "solid 3px")
	s.Emulate(emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}}})
	s.want(outline+`.outlineColor === getComputedStyle(Object.assign(document.body.appendChild(document.createElement("i")), {id: "i"})).color`, "false")
	s.want(outline+`.outlineStyle`, "solid")
}

func widgetHasNoBarriers(s *site) {
	empty := answerWith(nil, []any{})
	for state, prepare := range map[string]func(){
		"photos":  func() { s.answers(answerOf("maya", 3, 2, 1)) },
		"empty":   func() { s.answers(empty) },
		"away":    func() { s.status(http.StatusServiceUnavailable, nil) },
		"loading": s.hang,
	} {
		prepare()
		for _, dir := range []string{"ltr", "rtl"} {
			s.openIn(map[string]string{"ltr": "en", "rtl": "ar"}[dir], dir, s.element(nil)+
				s.element(map[string]string{"id": "x", "image-src": "", "label": "By name"})+
				s.element(map[string]string{"id": "y", "photo-href": "", "label": "No links"}))
			s.await(fmt.Sprintf(`["w", "x", "y"].every((id) => state(id) === %q)`, state))
			s.await(`$$("img").every((i) => i.complete)`)
			for _, scheme := range []string{"light", "dark"} {
				s.Emulate(emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
				if found := s.barriers(); found != "" {
					s.Errorf("%s, %s, %s: axe-core finds\n%s", state, dir, scheme, found)
				}
			}
		}
	}
	// axe-core does find real violations.
	s.answers(answerOf("maya", 3))
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

// The API is the real one, with keys of viewers. The clock of the API and of the tokens is later than the
// page's.
func widgetGoesWithTheAPI(s *site) {
	var title atomic.Value
	title.Store("sea")
	first, err := auth.NewViewerKey("first", auth.EdDSA)
	if err != nil {
		s.Fatal(err)
	}
	later, err := auth.NewViewerKey("later", auth.EdDSA)
	if err != nil {
		s.Fatal(err)
	}
	known := auth.NewViewers([]auth.ViewerKey{first}, auth.ViewerOptions{})
	read := func(_ context.Context, v contacts.Viewer, limit int) (recent.Answer, error) {
		if v.ID != 12345 || limit != 4 {
			s.Errorf("read %d photos for %v", limit, v)
		}
		return recent.Answer{Source: recent.FromIndex, Album: contacts.Album{
			Contact: &contacts.Profile{ID: 7, Username: "alice"},
			Photos:  []contacts.Photo{{ID: 901, Title: title.Load().(string), DateUpload: 1_700_500_000}},
		}}, nil
	}
	behind := apiOf(api.Config{Reader: reader(read), Viewers: known, AllowOrigins: []string{s.url}})
	var mu sync.Mutex
	var answered []int // the status of each answer so far
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.HasPrefix(r.URL.Path, "/v1/") {
			behind.ServeHTTP(w, r)
			return
		}
		recorded := &status{w, http.StatusOK}
		behind.ServeHTTP(recorded, r)
		mu.Lock()
		defer mu.Unlock()
		answered = append(answered, recorded.code)
	}))
	s.Cleanup(server.Close)
	s.locked(func() {
		s.api = server.URL
		s.sign = func(n int) string {
			key := first
			if n > 1 {
				key = later
			}
			token, err := key.Sign(12345, time.Hour, "")
			if err != nil {
				s.Error(err)
			}
			return token
		}
	})
	goesOn := func(want ...int) {
		s.Helper()
		servertest.Eventually(s.T, fmt.Sprintf("the API has answered %v", want), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(answered, want)
		})
		s.await(`clock.pending().length > 0`)
	}
	s.open(s.element(map[string]string{"limit": "4"}))
	s.await(`alts() === "sea"`)
	s.want(`$("[part=name]").textContent + $("a").href`, "alicehttps://photos.example/7/901")
	goesOn(200)
	s.next()
	goesOn(200, 304)
	title.Store("the sea")
	s.next()
	goesOn(200, 304, 200)
	s.await(`alts() === "the sea"`)
	// The key is replaced, and with it the token.
	known.Replace([]auth.ViewerKey{later})
	s.next()
	goesOn(200, 304, 200, 401, 304)
	if s.made() != 2 {
		s.Errorf("%d tokens, want 2", s.made())
	}
}

// apiOf returns the API that takes no tasks.
func apiOf(c api.Config) http.Handler {
	c.Enqueuer = struct{ api.Enqueuer }{} // nil: nothing is enqueued
	c.Health = func() api.Health { return api.Health{} }
	c.Logger = slog.New(slog.DiscardHandler)
	return api.New(c).Handler()
}

// reader is an [api.Reader] made of a function.
type reader func(context.Context, contacts.Viewer, int) (recent.Answer, error)

func (f reader) Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error) {
	return f(ctx, v, limit)
}

// Explain implements [api.Reader]. No page asks for it.
func (f reader) Explain(context.Context, contacts.Viewer, int) (recent.Answer, error) {
	return recent.Answer{}, errors.ErrUnsupported
}

// status notes the status of an answer.
type status struct {
	http.ResponseWriter

	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}
