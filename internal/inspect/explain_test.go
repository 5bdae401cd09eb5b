package inspect_test

import (
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/recent"
)

// A reason is given where it says more than the verdict, the dates and the proof.
func TestExplainGivesReasonsThatAreNews(t *testing.T) {
	t.Parallel()
	shown := contacts.Album{Photos: []contacts.Photo{{ID: 5, DateUpload: 500}}}
	site, late := contacts.Detail{IsMember: true}, contacts.Detail{Standing: contacts.Standing{IsContact: true}, IsMember: true}
	for want, c := range map[string]recent.Candidate{
		"":                    {Examined: recent.Examined{Verdict: recent.Chosen, Newest: 500, NewestID: 5}, InSet: true},
		"not in the set":      {Examined: recent.Examined{Verdict: recent.Chosen, Newest: 500, NewestID: 5}},
		"lower id":            {Examined: recent.Examined{Verdict: recent.Older, Newest: 500, NewestID: 4}, InSet: true},
		"changed during":      {Examined: recent.Examined{Verdict: recent.Older, Newest: 501, NewestID: 4}, InSet: true},
		"no member any more":  {Examined: recent.Examined{Verdict: recent.NotContact}, InSet: true},
		"no contact any more": {Examined: recent.Examined{Verdict: recent.NotContact}, InSet: true, Now: site},
		"became a contact":    {Examined: recent.Examined{Verdict: recent.NotContact}, InSet: true, Now: late},
	} {
		if got := inspect.Because(c, shown); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%+v: because %q, want %q", c, got, want)
		}
	}
	beside := recent.Candidate{Examined: recent.Examined{Verdict: recent.Chosen, Newest: 500, NewestID: 5, Broadcast: true}}
	if got := inspect.Because(beside, shown); !strings.HasSuffix(got, "a broadcast member, which was found beside the set") {
		t.Errorf("because %q", got)
	}
	for _, plain := range []recent.Examined{
		{Verdict: recent.Older, Newest: 499, NewestID: 9}, {Verdict: recent.Blocked}, {Verdict: recent.NotLooked}, {Verdict: recent.Nothing},
	} {
		if got := inspect.Because(recent.Candidate{Examined: plain, InSet: true}, shown); got != "" {
			t.Errorf("%+v: because %q", plain, got)
		}
	}
	changed := recent.Candidate{Examined: recent.Examined{Verdict: recent.Older, Newest: 500, NewestID: 6}, InSet: true}
	if got := inspect.Because(changed, shown) + inspect.Because(changed, contacts.Album{}); strings.Count(got, "changed during") != 2 {
		t.Errorf("newer than the answer: because %q", got)
	}
}

// The proof is a sentence of the facts.
func TestExplainSaysTheProof(t *testing.T) {
	t.Parallel()
	set := []recent.Examined{{Contact: 2, Score: 86_400}, {Contact: 3, Score: 3600}, {Contact: 4, Score: 60}}
	shown := []contacts.Photo{{ID: 1, DateUpload: 86_400}}
	for _, c := range []struct {
		trace  recent.Trace
		photos []contacts.Photo
		want   string
	}{
		{recent.Trace{Proof: recent.ByNext, Bound: 3600}, shown, "first candidate (1970-01-02 00:00:00) is newer than the last upload (1970-01-01 01:00:00 at most) of each other"},
		{recent.Trace{Proof: recent.ByLowest, Bound: 60}, shown, "all candidates (1970-01-02 00:00:00) is newer than the last upload (1970-01-01 00:01:00 at most) of each contact that is no candidate"},
		{recent.Trace{Proof: recent.ByAll}, shown, "are all contacts that ever uploaded (3), and no other"},
		{recent.Trace{Proof: recent.ByAll}, nil, "none has a visible photo"},
		{
			recent.Trace{Proof: recent.ByWalk, Bound: 60, Walk: contacts.WalkTrace{LookedAt: 32, Bound: 60}},
			shown,
			"the walk found (1970-01-02 00:00:00) is newer than the last upload (1970-01-01 00:01:00 at most)",
		},
		{recent.Trace{Proof: recent.ByWalk, Walk: contacts.WalkTrace{LookedAt: 7}}, shown, "looked at all contacts that ever uploaded (7)"},
	} {
		c.trace.Candidates = set
		e := recent.Explanation{Answer: recent.Answer{Album: contacts.Album{Photos: c.photos}, Trace: c.trace}}
		if got := inspect.Proof(e); !strings.Contains(got, c.want) {
			t.Errorf("%q does not say %q", got, c.want)
		}
	}
}
