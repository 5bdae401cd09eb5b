package browser

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/activityd/activityd/internal/demo"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/testing/browsertest"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// runDemo runs the demo until the test ends, and returns its address.
func runDemo(t *testing.T, o demo.Options) (url string) {
	t.Helper()
	o.Listen = "127.0.0.1:0"
	ctx, cancel := context.WithCancel(context.Background())
	printed, ended := &logtest.Log{}, make(chan error, 1)
	go func() { ended <- demo.Run(ctx, o, printed, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the demo ended: %v", err)
		}
	})
	servertest.EventuallyWithin(t, browsertest.Patience, "the demo prints its address", func() bool {
		if len(ended) > 0 {
			t.FailNow() // the cleanup reports the error
		}
		_, rest, _ := strings.Cut(printed.String(), "The demo is at ")
		address, _, found := strings.Cut(rest, "/  ")
		url = address
		return found
	})
	return url
}

// tinyWorld is the world of the demo, made small: member 1 has 400 contacts.
func tinyWorld() world.Spec {
	spec := world.Demo()
	spec.Members, spec.Photos, spec.Blocks, spec.Quiet = 410, 2400, 20, 1000
	spec.Featured, spec.Celebrities = []int{400, 150, 40, 12, 0}, []int{200, 80}
	return spec
}

const (
	sameAnswer = `/^(Plain SQL|A plain walk through the tables): [\d.]+ m?s\. activityd: [\d.]+ m?s, same answer\.$/.test(document.getElementById("figures")?.innerText)`
	byTheIndex = `document.getElementById("source")?.textContent.endsWith("index")`
)

// The whole demo on real servers. With ACTIVITYD_SCREENSHOT, it shows all of the demo's world, and
// takes the picture for the README.
func TestTheDemo(t *testing.T) {
	t.Parallel()
	path, o := os.Getenv("ACTIVITYD_SCREENSHOT"), demo.Options{Rate: 0.001, World: tinyWorld()} // almost no activity of its own
	if path != "" {
		o = demo.Options{Rate: 1, World: world.Demo()}
	}
	url := runDemo(t, o)
	b := browsertest.New(t)
	b.Emulate(emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}}})
	b.Open(url + "/")
	b.Await(sameAnswer)
	b.Await(byTheIndex + ` && document.querySelectorAll(".set tbody tr").length === 12`)
	if path != "" {
		b.Await(`/^Plain SQL: [\d.]+ ms\. activityd: [\d.]+ ms, same answer\.$/.test(document.getElementById("figures").innerText) && document.querySelectorAll(".feed li").length === 12`)
		b.Await(`document.getElementById("toast").textContent === ""`)
		if err := os.WriteFile(path, browsertest.Ask(b, chromedp.FullScreenshot(100)), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}

	// An upload by a contact is the answer, and comes to the phone.
	b.Click("#do-upload")
	b.Await(`document.querySelector(".feed .close")?.textContent.includes("You: ")`)
	b.Await(`document.querySelectorAll("#phone li").length === 1`)
	b.Await(sameAnswer + ` && document.querySelector(".album .quiet").textContent.endsWith("s ago")`)
	looksRight(b)

	// A photo that is made private is gone from the next answer.
	b.Eval(`window.before = document.querySelector(".photos img").src`)
	b.Click("#do-private")
	b.Await(`document.querySelector(".photos img")?.src !== before && document.getElementById("figures") !== null`)

	// Without its set the answer comes from MySQL, and the set comes back.
	b.Click("#do-wipe")
	b.Await(`document.querySelector(".feed").textContent.includes("wiped Redis")`)
	b.Await(byTheIndex + " && " + sameAnswer)

	// Without MySQL there is no answer.
	b.Click("#do-mysql")
	b.Await(`document.getElementById("problem")?.textContent.startsWith("MySQL is away.")`)
	looksRight(b)
	b.Click("#do-mysql")
	b.Await(byTheIndex + " && " + sameAnswer)

	b.Click("#to-console")
	until(b, `document.querySelector("h1")?.textContent`, "Queues")
}

// The demo without servers.
func TestTheEmbeddedDemo(t *testing.T) {
	t.Parallel()
	url := runDemo(t, demo.Options{Embedded: true, Rate: 20, World: tinyWorld()})
	b := browsertest.New(t)
	b.Open(url + "/?viewer=1")
	b.Await(byTheIndex + " && " + sameAnswer)
	b.Eval(`window.fed = document.querySelector(".feed ol")?.innerText`)
	b.Await(`document.querySelector(".feed ol")?.innerText !== fed && document.querySelectorAll(".feed li").length === 12`)
	b.Click("#do-wipe")
	b.Await(`document.querySelector(".feed").textContent.includes("wiped Redis")`)
	b.Await(byTheIndex + " && " + sameAnswer)
	if n := browsertest.Eval[int](b, `document.querySelectorAll("#phone, #do-mysql, #to-console").length`); n != 0 {
		t.Errorf("%d elements need a database", n)
	}
	looksRight(b)
	b.RequireCalm()
}
