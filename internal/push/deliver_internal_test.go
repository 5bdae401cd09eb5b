package push

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	const pause, day = 2 * time.Second, 24 * time.Hour
	for name, test := range map[string]struct {
		result       Result
		origin, left time.Duration
		want         verdict
	}{
		"accepted":                     {Result{Outcome: Accepted, Status: 200}, 0, day, verdict{state: StateAccepted}},
		"accepted too late":            {Result{Outcome: Accepted, Status: 200}, 0, -day, verdict{state: StateAccepted}},
		"gone":                         {Result{Outcome: Gone, Status: 410, Reason: "Unregistered"}, 0, day, verdict{state: StateFailed, reason: "Unregistered", prune: true}},
		"rejected":                     {Result{Outcome: Rejected, Status: 400, Reason: "BadTopic"}, 0, day, verdict{state: StateFailed, reason: "BadTopic"}},
		"rejected without a reason":    {Result{Outcome: Rejected, Status: 400}, 0, day, verdict{state: StateFailed, reason: "status 400"}},
		"wait":                         {Result{Outcome: Wait, Reason: "dial"}, 0, day, verdict{reason: "dial", after: pause}},
		"wait, as it says":             {Result{Outcome: Wait, Status: 429, After: time.Minute}, 0, day, verdict{reason: "status 429", after: time.Minute}},
		"wait, shorter than by itself": {Result{Outcome: Wait, Status: 429, After: time.Second}, 0, day, verdict{reason: "status 429", after: pause}},
		"wait for the origin":          {Result{Outcome: Wait, Status: 503, Origin: true, After: time.Minute}, 2 * time.Minute, day, verdict{reason: "status 503", after: 2 * time.Minute}},
		"wait for too long":            {Result{Outcome: Wait, Reason: "dial", After: time.Minute}, 0, time.Minute, verdict{reason: "dial", after: time.Minute}},
		"wait for too long, at last":   {Result{Outcome: Wait, Reason: "dial", After: time.Minute}, 0, 2 * lastTry, verdict{state: StateFailed, reason: "dial"}},
		"credentials":                  {Result{Outcome: Credentials, Status: 403, Reason: "Forbidden"}, 30 * time.Second, day, verdict{reason: "Forbidden", after: 30 * time.Second}},
		"credentials to the end":       {Result{Outcome: Credentials, Status: 403, Reason: "Forbidden"}, 30 * time.Second, time.Second, verdict{state: StateFailed, reason: "Forbidden"}},
		"ambiguous":                    {Result{Outcome: Ambiguous, Reason: "reset"}, 0, day, verdict{reason: "reset", after: pause}},
		"ambiguous of a breaker":       {Result{Outcome: Ambiguous, Reason: "reset"}, time.Minute, day, verdict{reason: "reset", after: time.Minute}},
		"ambiguous and expired":        {Result{Outcome: Ambiguous}, 0, 0, verdict{state: StateFailed, reason: "ambiguous"}},
		"none of these":                {Result{}, 0, day, verdict{after: pause}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := judge(test.result, pause, test.origin, test.left); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

func TestPausesOfRetries(t *testing.T) {
	t.Parallel()
	for age, high := range map[time.Duration]time.Duration{
		-time.Hour: minRetryPause, 0: minRetryPause, 10 * time.Second: 5 * time.Second, time.Minute: 30 * time.Second, 24 * time.Hour: maxRetryPause,
	} {
		for range 100 {
			if d := retryPause(age); d < minRetryPause || d < high/2 || d > high {
				t.Errorf("%v after %v, want half of %v to all of it", d, age, high)
			}
		}
	}
	for in, want := range map[time.Duration]time.Duration{
		0: 0, 1: time.Second, time.Second: time.Second, 15500 * time.Millisecond: 16 * time.Second, 17 * time.Second: 18 * time.Second, time.Hour: 3840 * time.Second,
	} {
		if got := rounded(in); got != want {
			t.Errorf("%v is rounded to %v, want %v", in, got, want)
		}
	}
}

func TestNotification(t *testing.T) {
	t.Parallel()
	of := func(title, body string) *StoredEvent {
		return &StoredEvent{Event: Event{ID: "e", Type: "upload", Actor: 5, Title: title, Body: body}, Number: 7}
	}
	for name, test := range map[string]struct {
		event       *StoredEvent
		actor       string
		count       int
		title, body string
	}{
		"as given":           {of("title", "body"), "alice", 1, "title", "body"},
		"defaults":           {of("", ""), "alice", 1, "alice", "upload"},
		"no actor any more":  {of("", "body"), "", 1, "upload", "body"},
		"count":              {of("title", "body"), "alice", 3, "title (3)", "body"},
		"count of a default": {of("", "body"), "alice", 3, "alice (3)", "body"},
		"count in the title": {of("{count} new", "body"), "alice", 3, "3 new", "body"},
		"count in the body":  {of("title", "{count} new, {count}"), "alice", 3, "title", "3 new, 3"},
		"a count of one":     {of("title", "{count} new"), "alice", 1, "title", "1 new"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := notification(test.event, Device{}, test.actor, test.count)
			if n.Title != test.title || n.Body != test.body || n.Count != test.count {
				t.Errorf("%+v", n)
			}
		})
	}
}

// Whatever the texts and the count are, they stay within their bounds, and are cut only if
// they must be.
func TestTextsFit(t *testing.T) {
	t.Parallel()
	length := func(s string) int {
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return len(raw) - 2
	}
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"{count}", "<b>", `"\`, "\u2028", "\x00", "🐸", "\xff", strings.Repeat("x", 240)}))
		s := strings.Join(rapid.SliceOfN(part, 0, 30).Draw(t, "text"), "")
		most := rapid.IntRange(10, 300).Draw(t, "most")
		got := fit(s, most)
		if length(got) > most || (length(s) <= most) != (got == s) {
			t.Fatalf("%q became %q: %d bytes of %d", s, got, length(got), most)
		}
		if utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Fatalf("%q became %q", s, got)
		}
		e := &StoredEvent{Event: Event{Type: "upload", Title: s, Body: s}}
		n := notification(e, Device{}, s, rapid.IntRange(1, 1_000_000).Draw(t, "count"))
		if length(n.Title) > MaxTitle || length(n.Body) > MaxBody {
			t.Fatalf("%d and %d bytes", length(n.Title), length(n.Body))
		}
	})
}

func TestIdentities(t *testing.T) {
	t.Parallel()
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for event := range uint64(50) {
		for device := range uint64(50) {
			id := messageID(event, device)
			if seen[id] || !uuid.MatchString(id) || id != messageID(event, device) {
				t.Fatalf("the id of event %d for device %d is %q", event, device, id)
			}
			seen[id] = true
		}
	}
	collapse := regexp.MustCompile(`^[A-Za-z0-9_-]{32}$`)
	event := func(id, kind, key string) *StoredEvent {
		return &StoredEvent{Event: Event{ID: id, Type: kind, Collapse: key}}
	}
	all := []*StoredEvent{event("1", "a", ""), event("2", "a", ""), event("1", "a", "k"), event("1", "a", "l"), event("1", "b", "k")}
	for i, e := range all {
		for j, other := range all {
			if !collapse.MatchString(e.collapseID()) || (e.collapseID() == other.collapseID()) != (i == j) {
				t.Errorf("%d %q and %d %q", i, e.collapseID(), j, other.collapseID())
			}
		}
	}
	if event("1", "a", "k").collapseID() != event("2", "a", "k").collapseID() {
		t.Error("the events of a burst have different collapse ids")
	}
}

// Whatever a push service calls a message, what is kept can be shown in a table, a terminal and a page.
func TestPlainIDs(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"": "", "0:1500415314455276%31bd1c9631bd1c96": "0:1500415314455276%31bd1c9631bd1c96",
		"532deabf-8872-8cb4-b995-ab5a9cd49bf9": "532deabf-8872-8cb4-b995-ab5a9cd49bf9",
		"1  gone":                              "1%20%20gone", "<b>&\"'`": "%3Cb%3E%26%22%27%60", "a\x1b[31m\r\n\t": "a%1B%5B31m%0D%0A%09",
		"é\xff\u202e": "%C3%A9%FF%E2%80%AE", strings.Repeat("x", 127) + " y": strings.Repeat("x", 127), strings.Repeat("x", 200): strings.Repeat("x", 128),
	} {
		if got := plainID(id); got != want || len(got) > maxProviderID {
			t.Errorf("%q is kept as %q, want %q", id, got, want)
		}
	}
}

func TestReasonsAreBounded(t *testing.T) {
	t.Parallel()
	const platform = Platform("of this test")
	for reason, want := range map[string]string{
		"BadDeviceToken": "BadDeviceToken", "": "", "ü": otherReason, strings.Repeat("x", 1000): otherReason,
	} {
		if got := reasonLabel(platform, reason); got != want {
			t.Errorf("%q is labelled %q", reason, got)
		}
	}
	seen := map[string]bool{}
	for i := range 10 * MaxReasons {
		seen[reasonLabel(platform, strconv.Itoa(i))] = true
	}
	if len(seen) > MaxReasons+1 || !seen[otherReason] || reasonLabel(platform, "BadDeviceToken") != "BadDeviceToken" {
		t.Errorf("%d labels", len(seen))
	}
}
