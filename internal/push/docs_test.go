package push_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/push"
)

// docs/push.md has each reason of the rules, in the order of asking, and the
// bounds.
func TestTheRulesOfTheManual(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/push.md")
	must(t, err)
	_, rules, found := strings.Cut(string(text), "\n## Who is notified\n")
	if !found {
		t.Fatal("docs/push.md has no section about who is notified")
	}
	rules, _, _ = strings.Cut(rules, "\n## ")
	at := 0
	for _, reason := range []push.Skip{push.Doubled, push.Expired, push.NoActor, push.Blocked, push.NotVisible, push.Muted, push.OptedOut, push.Unshown, push.NoDevice, push.Off} {
		next := strings.Index(rules[at:], "| `"+string(reason)+"` |")
		if next < 0 {
			t.Fatalf("no line for %s after those of the rules before it", reason)
		}
		at += next
	}
	whole := strings.Join(strings.Fields(string(text)), " ")
	for _, bound := range []string{
		fmt.Sprintf("the title may have %d bytes, the body 1,%d, `data` 1,%03d", push.MaxTitle, push.MaxBody-1000, push.MaxData-1000),
		fmt.Sprintf("a list of up to 1,%03d ids", push.MaxRecipients-1000),
		fmt.Sprintf("up to %d visible characters", push.MaxID),
		fmt.Sprintf("more than %d of a member", push.MaxDevices),
		fmt.Sprintf("up to 1,%03d of a member", push.MaxMutes-1000),
		fmt.Sprintf("1 second to %d days", push.MaxLife/(24*time.Hour)),
	} {
		if !strings.Contains(whole, bound) {
			t.Errorf("there is no %q", bound)
		}
	}
}

// docs/push.md has the bounds of the fields, and the events that it shows are taken.
func TestTheFieldsOfTheManual(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/push.md")
	must(t, err)
	whole := strings.Join(strings.Fields(string(text)), " ")
	for _, bound := range []string{
		fmt.Sprintf("0 to %d,%03d", push.MaxBadge/1000, push.MaxBadge%1000),
		fmt.Sprintf("have **%d,%03d bytes together", push.MaxContent/1000, push.MaxContent%1000),
		fmt.Sprintf("Up to %d languages", push.MaxLanguages),
		fmt.Sprintf("A key has up to %d characters, up to %d arguments %d bytes each", push.MaxName, push.MaxLocArgs, push.MaxLocArg),
		fmt.Sprintf("or `none`: up to %d bytes", push.MaxName), fmt.Sprintf("an https URL: up to %d bytes", push.MaxImage),
		fmt.Sprintf("a tag has up to %d bytes", push.MaxLanguage),
	} {
		if !strings.Contains(whole, bound) {
			t.Errorf("there is no %q", bound)
		}
	}
	blocks := regexp.MustCompile("(?s)```json\n\\{(.*?)```").FindAllStringSubmatch(string(text), -1)
	for _, block := range blocks {
		if _, err := push.ParseEvent(7, []byte(`{"type":"a",`+block[1])); err != nil {
			t.Errorf("%s: %v", block[1], err)
		}
	}
	if len(blocks) < 2 {
		t.Errorf("the page shows %d events", len(blocks))
	}
}

// Decide asks the rules in the order of the manual: where all say no, the first
// counts, and where the rest does, the next.
func TestTheOrderOfTheRules(t *testing.T) {
	t.Parallel()
	now := time.Unix(1795000000, 0)
	e := &push.StoredEvent{Event: push.Event{Type: "upload"}, Expires: now}
	f := push.Facts{
		Now: now, Accepted: true, Departed: true, Blocked: true, Visible: false, Muted: now.Add(time.Hour),
		Settings: push.Settings{Types: map[string]bool{"upload": false}},
	}
	for _, step := range []struct {
		want push.Skip
		mend func()
	}{
		{push.Doubled, func() { f.Accepted = false }},
		{push.Expired, func() { e.Expires = now.Add(time.Hour) }},
		{push.NoActor, func() { f.Departed = false }},
		{push.Blocked, func() { f.Blocked = false }},
		{push.NotVisible, func() { f.Visible = true }},
		{push.Muted, func() { f.Muted = now }},
		{push.OptedOut, func() { f.Settings.Types = nil }},
		{"", func() {}},
	} {
		if got := push.Decide(e, f, nil); got.Skip != step.want {
			t.Errorf("%q, want %q", got.Skip, step.want)
		}
		step.mend()
	}
}
